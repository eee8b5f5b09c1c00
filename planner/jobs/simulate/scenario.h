// What-if: a cluster, the jobs that come and go on it, the links that fail, and what a policy makes of all that.
//
// Every job computes, then (from its release on) sends its bytes in lock step over one path per flow, in one burst or
// several, and starts over when both are done (network/fluid.h has the model). A policy decides paths, classes and time
// shifts, and of a job that arrives also which of its ways to run it takes: its strategy. It is asked again whenever a job
// arrives or leaves and whenever a link changes, as the controller would be.
//
//   Scenario scenario{.name = "two jobs", .topology = LeafSpine(2, 2, 2, GigabitsPerSecond(50)), .jobs = {...}};
//   const Result<SimulationReport> report = Simulate(scenario, SimulationPolicy::kWeft, {});
//
// A job of given hosts begins when it arrives. One with `sizes` waits until the policy starts it, on as many of the scenario's
// places as the policy gives it; one that runs keeps its places until it leaves.
//
// Leaves out: latency, the order of transfers inside one iteration, and the time that a policy takes to decide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/fabric/topology.h"
#include "planner/jobs/decide/decide_types.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// One iteration's bytes between two hosts or GPUs. A flow takes one path, in all bursts.
struct ScenarioFlow {
  NodeId from, to;
  Bytes bytes;
  std::vector<Bytes> per_burst = {};  ///< of `bytes`, in each burst of its job; empty where the job has one
};

/// What the flows of one job may carry together in an iteration, so that sums of them stay exact.
inline constexpr Bytes kMostJobBytes{int64_t{1} << 62};

/// One way to run a job on its hosts, which a strategy makes.
struct ScenarioWay {
  std::string name;                 ///< the strategy, for people
  Seconds compute{0};               ///< as ScenarioJob's
  Seconds release{0};
  std::vector<ScenarioFlow> flows;
  std::vector<BurstTimes> bursts;
};

/// A host that a policy can give to jobs; all of a scenario are alike.
struct ScenarioPlace {
  std::string name;
  std::vector<NodeId> senders;      ///< its GPUs in the topology, or the host itself
};

/// A number of hosts that a job can run on.
struct ScenarioSize {
  int32_t hosts = 1;
  double gpus = 1;                  ///< of all of them
  /// At least one; flows join the senders of the first `hosts` places, which stand for any others.
  std::vector<ScenarioWay> ways;
};

/// A training job. With one burst, iterations last max(compute, release + communication).
struct ScenarioJob {
  std::string name;
  double gpus = 1;                  ///< its weight in the cluster's GPU use
  Seconds compute{0};               ///< per iteration
  Seconds release{0};               ///< when in the iteration communication may start; `compute`: nothing overlaps
  Seconds arrival{0};
  int64_t iterations = 0;           ///< after which it leaves; 0: runs to the end
  std::vector<ScenarioFlow> flows;
  /// Where an iteration sends several bursts, one after another: when each is released and needed, both rising, within the
  /// computation; `release` is then not looked at. Empty: one, from `release` on. At most kMostBursts.
  std::vector<BurstTimes> bursts;
  /// GPU seconds at peak speed that an iteration is worth: model FLOPs / the peak of one GPU. 0: gpus · compute.
  double work = 0;
  /// Ways to run it beside the one that stands above, which is what a planner finds that does not look at the fabric.
  /// At most kMostWays.
  std::vector<ScenarioWay> others = {};
  bool joint = true;                ///< kWeft may choose any of its ways; else it runs the one that is best alone
  std::string way = {};             ///< name of the one above
  /// Not empty: when it begins, on how many hosts and on which is the policy's answer; then it has neither flows nor ways of its own.
  /// Ascending in hosts, at most kMostSizes.
  std::vector<ScenarioSize> sizes = {};
  Seconds deadline{0};              ///< after its arrival, for the end of its last iteration; 0: none
  std::vector<size_t> places = {};  ///< of a job of given hosts: the places that it holds from the start of the scenario until it leaves
};
inline constexpr size_t kMostBursts = 64;
inline constexpr size_t kMostWays = 32;
inline constexpr size_t kMostSizes = 8;

/// From `at` on, the link (one direction) gives `capacity`; 0: it is down. A later fault of the same link replaces
/// it.
struct ScenarioFault {
  Seconds at{0};
  LinkId link;
  BitsPerSecond capacity;
};

/// At `at`, the job stops and begins anew in another of its ways, `Scenario::restart` later.
struct ScenarioRestart {
  Seconds at{0};
  std::string job, way;
};
inline constexpr size_t kMostRestarts = 1000;

/// Which time shifts jobs can be given.
enum class ScenarioWindows : uint8_t {
  kFree,       ///< any: jobs begin when they are told
  kSenders,    ///< those that the plugin's senders keep in a running cluster, as the controller gives them with `joint.time_shifts`
  kNone,       ///< none, as the controller does without
};

struct Scenario {
  std::string name;
  Topology topology;
  std::vector<ScenarioJob> jobs;
  std::vector<ScenarioPlace> places = {};  ///< for jobs with `sizes`
  std::vector<ScenarioFault> faults = {};
  /// Of jobs of given hosts with several ways, after their arrival. One that has left by then is left alone.
  std::vector<ScenarioRestart> restarts = {};
  int32_t classes = 8;              ///< priority classes that the fabric has
  uint64_t seed = 1;                ///< of hashes and samples
  int32_t draws = 1;                ///< hash seeds that kEcmp and kLayersApart are averaged over
  Seconds duration{0};
  /// Unless kFree, kWeft and kHorizontal decide as for running jobs (MeasuredRules): what is in force is changed for a real gain only.
  ScenarioWindows windows = ScenarioWindows::kFree;
  Seconds restart{300};             ///< how long a job is away that begins anew in another way: launch, checkpoint, lost iterations
};

enum class SimulationPolicy : uint8_t {
  kEcmp,       ///< a hash picks every path; one class
  kWeft,       ///< ways, paths, classes and shifts of all jobs together, chosen by simulation
  kCrux,       ///< paths and priorities by GPU intensity (SIGCOMM'24)
  kCassini,    ///< hashed paths, time shifts (NSDI'24)
  kSincronia,  ///< hashed paths, coflow order (SIGCOMM'18)
  kOptimal,    ///< enumeration of paths × classes: small cases only
  kLayersApart,  ///< every job's first way, as if the fabric blocked nobody; hashed paths
  kVertical,   ///< every job through all layers, the others unseen: its way that is best alone on the fabric, on its best paths
  kHorizontal, ///< as kWeft, but every job in its way that is best alone
};

/// "ecmp", "weft", "crux", "cassini", "sincronia", "optimal", "layers-apart", "vertical", "horizontal".
std::string_view PolicyName(SimulationPolicy policy);
std::optional<SimulationPolicy> ParsePolicy(std::string_view name);
/// All of these names, for messages.
std::string PolicyNames();

/// Lines of SimulationReport::decisions at most.
inline constexpr size_t kMostDecisionLines = 2000;

struct SimulationOptions {
  bool trace = false;               ///< fill link_samples and phases
  /// Plans that kWeft's search simulates at most, each time that it decides; kOptimal enumerates 10 times as many cases.
  int64_t evaluations = kDefaultEvaluations;
  /// Simulated events that kWeft's search may spend, each time that it decides, ways and final judgements
  /// included; 10⁷ are about a second. Where they are few for so many jobs, plans are judged by fewer iterations, but
  /// not by less than a tenth of the usual 20. The guard comes on top.
  int64_t work = kDefaultWork;
  SimulationObjective objective = SimulationObjective::kBalanced;
  /// What really happens where policies know no better than the scenario: the same jobs with the same ways and, in the same
  /// order, the same ends of flows; times, bytes and bursts may differ. nullptr: the scenario.
  const Scenario* truth = nullptr;
};

struct SimulatedJob {
  std::string name;
  std::string way;                  ///< that it ran, where it has several; the last one, of a job that began anew
  /// Mean over the iterations that it finished in this way; infinite where it finished none in twice its time alone.
  Seconds iteration{0};
  /// iteration with the network to itself, on its best paths, every link at the best capacity that it ever has
  Seconds alone{0};
  Seconds bound{0};                 ///< no policy is faster, whatever the others do: compute and cuts
  Seconds p99_iteration{0};
  int64_t iterations_done = 0;      ///< in all ways that it ran
  double slowdown = 1;              ///< iteration / alone
  // As decided last:
  int32_t traffic_class = 0;        ///< 0 is served first; kWeft leaves jobs that need no other in the last, the default
  Seconds gate_period{0};           ///< its iterations begin so often; 0: when they will
  std::vector<std::vector<LinkId>> paths = {};  ///< per flow of the way that it ran
  // When it ran:
  std::optional<Seconds> begin;     ///< nothing: it never began
  std::optional<Seconds> end;       ///< of the last iteration, where it has a last one
  std::vector<std::string> hosts = {};  ///< that the policy gave it
  bool late = false;                ///< past its deadline, at the end of the scenario at the latest
};

struct SimulatedLink {
  LinkId link;
  double utilisation = 0;           ///< bytes carried / what it could have carried over the duration
};

struct SimulationReport {
  std::vector<SimulatedJob> jobs;   ///< in the order of the scenario
  std::vector<RestartAdvice> advice;  ///< ascending in time; a job's next one only when it differs
  std::vector<SimulatedLink> links; ///< those that carried bytes, ascending
  double mean_slowdown = 1;         ///< over jobs that finished an iteration or should have
  double p99_slowdown = 1;          ///< over all iterations of all jobs
  double gpu_utilisation = 0;       ///< computing in whole iterations / present, over GPUs and time, 0 … 1
  /// Work of whole iterations (ScenarioJob::work) / present, over GPUs and time, 0 … 1: does not count what a strategy computes twice
  double goodput = 0;
  double bound_gpu_utilisation = 0; ///< no policy reaches more in the steady state between two events
  double bound_goodput = 0;         ///< likewise, whichever ways jobs run
  double bound_mean_slowdown = 1;   ///< likewise, no policy stays below
  double bound_gap = 0;             ///< (bound - reached) / bound, of GPU utilisation
  // Of scenarios in which jobs wait for hosts, or have deadlines:
  double throughput = 0;            ///< work of whole iterations over all GPUs of all places and all of the time, 0 … 1
  Seconds mean_wait{0};             ///< from arrival to the first iteration, or to the end of the scenario
  int64_t never_began = 0;
  int64_t late = 0;                 ///< jobs that missed their deadlines
  int64_t bound_late = 0;           ///< no policy, no size and no places make fewer late
  int64_t events = 0;               ///< phases that ended, in the run that is reported
  int64_t evaluations = 0;          ///< plans simulated by the policy to decide
  bool complete = true;             ///< no search of the policy was cut short by its budget
  /// what the policy decided and why: paths, classes, shifts; of a long list the middle is left out, and one line
  /// says how much of it
  std::vector<std::string> decisions;
  /// ascending in time; if asked for. Of the first draw where draws are averaged
  std::vector<LinkSample> link_samples;
  std::vector<JobPhase> phases;     ///< in order of their end; if asked for
};

/// `scenario` with every job's compute times multiplied by a factor of its own in [1 - spread, 1 + spread], drawn by `seed`: what may be
/// true where profiles are wrong. Requires: 0 ≤ spread < 1.
Scenario WithProfileError(Scenario scenario, double spread, uint64_t seed);

/// Runs `scenario` under `policy`. A function: same input, same answer, byte for byte.
/// Errors: kInvalidArgument names the job, flow, fault or field, its value and what was expected (no jobs, a duration
/// that is not positive, release after compute, two ends without a path, a node or link that does not exist …);
/// kResourceExhausted for kOptimal where there are too many cases, with their number; kInvalidArgument for a truth that is not
/// of these jobs.
[[nodiscard]] Result<SimulationReport> Simulate(const Scenario& scenario, SimulationPolicy policy,
                                                const SimulationOptions& options = {});

}  // namespace weft::planner::jobs

// All jobs of a running cluster together: which paths their flows take, which traffic class each job has, when it starts its
// bursts, and how far all of it is from what any controller could reach. The controller asks it at every re-plan.
//
//   const MultiJobPlan plan = PlanMultiJob(problem);
//   plan.jobs[j].traffic_class ... plan.gpu_use, plan.gpu_use_bound, plan.jobs[j].why
//
// What is decided is DecideJobs() (decide/situation.h), the policy of `weft simulate`, for each group of jobs that could meet:
// paths, classes and shifts replace the present ones only where that gains more than switching costs, and classes only if with
// profiles that are off, in several worlds, the answer still does no worse than flows hashed over their paths in one class.
// First shifts must beat what the measured iterations come to, where all are known: bursts that keep out of each other's
// way by themselves need none. Shifts in force stay until the jobs would do better without them by as much.
//
// Leaves out: jobs whose compute and bytes are not known. Their flows count as background, and have the paths that
// flows/path_choice.h gives all flows at once, without knowing what they belong to.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/fabric/topology.h"
#include "planner/flows/path_choice.h"
#include "planner/jobs/decide/decide_types.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// Shares of a flow's bytes that differ by less are the same: senders weigh their lanes by sixteenths, which puts one of three lanes off
/// by up to 1/24.
inline constexpr double kSameShare = 0.045;

/// One flow of a job: what it sends per iteration, where it could go and where it goes.
struct MultiJobFlow {
  NodeId from, to;
  Bytes bytes;
  std::vector<CandidatePath> paths;   ///< at least one
  std::vector<double> shares;         ///< per path, sum 1: how it goes now
  size_t burst = 0;                   ///< of its job's bursts, the one that it is sent in
};

/// A job as the network sees it (flows/periodic.h). Iterations last max(compute, release + communication), with bursts IterationOf() (network/fluid.h).
struct MultiJobJob {
  std::string name;
  int64_t gpus = 1;
  Seconds compute{0};
  Seconds release{0};                 ///< 0 ≤ release ≤ compute
  std::vector<BurstTimes> bursts;     ///< where flows send in turns, as FluidJob's, within `compute`; empty: all in one, after `release`
  double efficiency = 1;              ///< of the links' capacity, that its bursts reach alone; > 0. Not of the bound
  Seconds measured{0};                ///< its iterations without windows, now or before it had them; 0: not known
  bool stable = false;                ///< measured, and its period holds: it may be shifted
  bool placed = false;                ///< its paths were decided; else, and without a class too, they are what a hash picked
  int32_t present_class = -1;         ///< -1: none yet, which is the default class
  bool shifted = false;               ///< it has a time window now ...
  Seconds present_shift{0};           ///< ... with this shift
  std::vector<MultiJobFlow> flows;
};

struct MultiJobOptions {
  int32_t classes = 1;                ///< that the fabric has; the last is the default
  bool paths = true;                  ///< flows may take other paths
  double class_gain = 0.01;           ///< of simulated GPU use, relative, or as much in the objective: less is not worth other paths and classes
  double shift_gain = 0.02;           ///< of GPU use, for time shifts, and for going on without those in force
  double profile_error = 0.2;         ///< of compute times and bytes, under which the answer must hold
  int32_t hash_seeds = 32;            ///< of plain ECMP; fewer in groups of many jobs
  SimulationObjective objective = SimulationObjective::kBalanced;
  int64_t evaluations = 2'000;        ///< plans simulated per group,
  int64_t work = 10'000'000;          ///< and events of all groups together; as many is about a second
};

struct MultiJobProblem {
  Topology topology;                  ///< with what each link gives now
  std::vector<BitsPerSecond> background;  ///< per link, what flows of no such job take of that, less than all; empty: nothing
  std::vector<MultiJobJob> jobs;
  MultiJobOptions options;
};

/// Another job that loads the same links.
struct MultiJobContender {
  size_t job = 0;
  std::vector<LinkId> links;          ///< ascending
};

struct MultiJobJobPlan {
  bool modelled = false;              ///< else class, shift and times say nothing
  int32_t traffic_class = 0;          ///< 0 is served first
  std::vector<std::vector<double>> shares;  ///< per flow and path of it, sum 1; empty: as they are
  size_t group = 0;                   ///< jobs that could meet have the same
  bool shifted = false;
  Seconds shift{0};                   ///< of its iterations against the others', in [0, period)
  Seconds period{0};                  ///< of its windows, where shifted: a common cycle of the group or a part of it
  Seconds burst{0};                   ///< when in that cycle its bursts may begin, where shifted
  Seconds window{0};                  ///< how long its bursts may begin in each period, where shifted
  double intensity = 0;               ///< corrected (flows/priority.h)
  double correction = 1;
  Seconds communication{0};           ///< alone, on its paths
  Seconds predicted{0};               ///< iteration with all jobs
  Seconds bound{0};                   ///< iteration alone, on the best paths that its hosts' cuts allow
  std::vector<MultiJobContender> meets;
  std::vector<std::string> why;
  std::vector<std::string> rejected;
};

struct MultiJobPlan {
  std::vector<MultiJobJobPlan> jobs;
  int64_t modelled = 0;
  double gpu_use = 0;                 ///< simulated, of the modelled jobs' GPUs
  double gpu_use_present = 0;         ///< with the classes and shifts that are in force
  double gpu_use_default = 0;         ///< mean over hash seeds of plain ECMP, one class
  double gpu_use_bound = 0;           ///< master problem over tier cuts (jobs/master.h); 0 where it could not be solved
  double gap = 0;                     ///< 1 - gpu_use / gpu_use_bound, ≥ 0
  double worst_margin = 0;            ///< least relative lead over plain ECMP where profiles are off
  bool complete = true;               ///< no search was cut short
  std::vector<std::string> notes;     ///< about all jobs: what lost and why, what could not be bounded
};

/// A function: same input, same answer. Requires: valid ids, at least one path and one share per path for every flow, shares
/// ≥ 0 of sum 1, bytes ≥ 0, finite times, efficiencies > 0. Jobs that neither compute nor send are not modelled. When `stop` asks, the
/// best until then is the answer. Complexity: the options' budget, and one linear programme.
MultiJobPlan PlanMultiJob(const MultiJobProblem& problem, const std::stop_token& stop = {});

/// FNV-1a over all that the answer depends on: an answer belongs to the problem of its digest.
uint64_t DigestOf(const MultiJobProblem& problem);

}  // namespace weft::planner::jobs

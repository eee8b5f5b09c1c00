// What a policy knows when it is asked, and what it answers. Every policy of the simulator is one function from the
// first to the second.
// Internal to planner/jobs and planner/baselines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/fabric/topology.h"
#include "planner/flows/job_paths.h"
#include "planner/jobs/decide/decide_types.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// One way to run a job that begins now, or would begin anew.
struct SituationWay {
  std::string name;
  RoutableJob job;
  Seconds alone{0};
  /// Numbers of hosts that are free, if that is what ways differ in: no two jobs can have the same one.
  std::vector<size_t> places = {};
};

/// What holds for jobs that senders run, in a running cluster or in a scenario whose `windows` ask for it: only jobs of a steady
/// period can keep time windows (windows.h), and what is in force is changed for a real gain only.
struct MeasuredRules {
  bool paths_fixed = false;         ///< flows stay on the paths in use, which stand last; the others are what a hash may pick
  std::vector<bool> steady;         ///< per job: its period holds still
  double class_gain = 0.01;         ///< of GPU use, or as much in the objective: less is not worth a change of paths and classes
  double shift_gain = 0.02;         ///< of GPU use, for time windows, and for going on without those in force
  double use = 0;                   ///< GPU use that the iterations come to which were measured without windows; 0: not known
  double profile_error = 0.2;       ///< of compute and bytes, in worlds in which no answer may do worse than
  int32_t hash_seeds = 32;          ///< plain ECMP does in the mean over so many hash seeds
};

/// The jobs present, with the paths that can be used now: dead links are left out wherever a flow has another way.
struct Situation {
  Topology topology;                         ///< capacities of now
  std::vector<BitsPerSecond> capacity;       ///< the same, per link
  std::vector<RoutableJob> jobs;
  std::vector<std::string> names;
  std::vector<uint64_t> keys;                ///< per job: what a hash sees of it, the same in every situation
  std::vector<Seconds> alone;                ///< iteration on the best paths alone
  std::vector<Seconds> best_alone;           ///< likewise, in the way that is fastest alone; empty: `alone`
  std::vector<double> useful;                ///< work of an iteration in GPU seconds; empty, or 0: what its GPUs compute
  /// Of jobs that may be run otherwise than in `jobs`: all their ways; else empty. For advice also of jobs that run, which would
  /// begin anew.
  std::vector<std::vector<SituationWay>> ways;
  std::vector<size_t> way;                   ///< per job: which of these it is in `jobs`
  std::vector<size_t> slots;                 ///< per job: its number in `state`
  JobPaths present;                          ///< paths in use; empty for a job that has just arrived
  std::shared_ptr<const FluidSimulation> state;
  int32_t classes = 8;
  uint64_t seed = 1;
  SimulationObjective objective = SimulationObjective::kBalanced;
  bool predicted = false;                    ///< profiles are predictions, which may be off, and nobody has measured them
  Seconds horizon{0};                        ///< until the end of the scenario
  std::optional<MeasuredRules> measured;     ///< decide as for running jobs
};

/// Per job: paths, class, gate; and what was decided, in words.
struct Decision {
  JobPaths paths;
  std::vector<int32_t> classes;
  std::vector<Gate> gates;
  std::vector<std::string> why;
  int64_t evaluations = 0;
  bool complete = true;
  bool simulated = true;                     ///< false: so many jobs meet that rules alone decided (Estimate() says what it comes to)
  std::vector<size_t> ways;                  ///< empty: as in Situation::jobs; paths are those of the chosen ways' flows
  // Of measured jobs:
  std::vector<std::string> rejected;         ///< what lost, and why
  double pause = 0;                          ///< between bursts of jobs that have windows, of a period
  double default_use = 0;                    ///< GPU use of plain ECMP in one class, mean over hash seeds
  double margin = 0;                         ///< least lead over it where profiles are off, relative
};

/// Weft's policy, for a simulation and for a running cluster: each job's way to run, then paths, classes and time shifts of all of them,
/// chosen by running the state forward. Always has an answer. A function: same input, same answer, unless it is stopped.
/// decide_jobs.cc has the method, way_choice.h that of the ways. Requires: at least one job.
Decision DecideJobs(const Situation& state, const DecideBudget& budget);

/// What a hash sees of a job: FNV-1a of its name. Source: Fowler, Noll and Vo, IETF draft-eastlake-fnv.
uint64_t KeyOf(const std::string& name);
/// The path that a hash of (seed, key, flow) picks.
size_t HashedPath(uint64_t seed, uint64_t key, size_t flow, size_t paths);
/// What a job of these phases is in the simulation.
FluidJob FluidOf(const RoutableJob& job);
/// The situation with other ways: `ways[j]` of job j, which begins anew `pause` from now. Requires: a number of `ways`, or the present one.
Situation WithWays(const Situation& situation, const std::vector<size_t>& ways, Seconds pause = Seconds(0));

/// The jobs on the paths of a decision.
std::vector<PeriodicJob> OnPaths(const Situation& situation, const JobPaths& paths);

}  // namespace weft::planner::jobs

// What a policy knows when it is asked, and what it answers. Every policy of the simulator is one function from the
// first to the second.
// Internal to planner/jobs and planner/baselines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/fabric/topology.h"
#include "planner/flows/job_paths.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// One way to run a job that has just arrived.
struct SituationWay {
  std::string name;
  RoutableJob job;
  Seconds alone{0};
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
  int64_t evaluations = kDefaultEvaluations;
  int64_t work = kDefaultWork;
  SimulationObjective objective = SimulationObjective::kBalanced;
  bool predicted = false;                    ///< profiles are predictions, which may be off, and nobody has measured them
  Seconds horizon{0};                        ///< until the end of the scenario
};

/// Per job: paths, class, gate; and what was decided, in words.
struct Decision {
  JobPaths paths;
  std::vector<int32_t> classes;
  std::vector<Gate> gates;
  std::vector<std::string> why;
  int64_t evaluations = 0;
  bool complete = true;
  std::vector<size_t> ways;                  ///< empty: as in Situation::jobs; paths are those of the chosen ways' flows
};

/// Weft: weft_policy.cc has the method, way_choice.h that of the ways.
Decision DecideWeft(const Situation& situation);

/// What a job of these phases is in the simulation.
FluidJob FluidOf(const RoutableJob& job);
/// The situation with other ways: `ways[j]` of job j. Requires: a number of `ways`, or the present one.
Situation WithWays(const Situation& situation, const std::vector<size_t>& ways);

/// The jobs on the paths of a decision.
std::vector<PeriodicJob> OnPaths(const Situation& situation, const JobPaths& paths);

}  // namespace weft::planner::jobs

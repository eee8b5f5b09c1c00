// What a policy knows when it is asked, and what it answers. Every policy of the simulator is one function from the
// first to the second.
// Internal to planner/jobs and planner/baselines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/fabric/topology.h"
#include "planner/flows/job_paths.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// The jobs present, with the paths that can be used now: dead links are left out wherever a flow has another way.
struct Situation {
  Topology topology;                         ///< capacities of now
  std::vector<BitsPerSecond> capacity;       ///< the same, per link
  std::vector<RoutableJob> jobs;
  std::vector<std::string> names;
  std::vector<uint64_t> keys;                ///< per job: what a hash sees of it, the same in every situation
  std::vector<Seconds> alone;                ///< iteration on the best paths alone
  std::vector<size_t> slots;                 ///< per job: its number in `state`
  JobPaths present;                          ///< paths in use; empty for a job that has just arrived
  const FluidSimulation* state = nullptr;
  int32_t classes = 8;
  uint64_t seed = 1;
  int64_t evaluations = kDefaultEvaluations;
  int64_t work = kDefaultWork;
  SimulationObjective objective = SimulationObjective::kBalanced;
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
};

/// Weft: weft_policy.cc has the method.
Decision DecideWeft(const Situation& situation);

/// The jobs on the paths of a decision.
std::vector<PeriodicJob> OnPaths(const Situation& situation, const JobPaths& paths);

}  // namespace weft::planner::jobs

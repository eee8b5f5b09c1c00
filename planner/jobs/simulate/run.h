// One scenario under one policy, from its first arrival to its end.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/jobs/simulate/bounds.h"
#include "planner/jobs/simulate/prepare.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/jobs/simulate/situation.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// What a run leaves behind.
struct RunRecord {
  std::vector<FluidProgress> jobs;      ///< per job of the scenario
  std::vector<double> carried;          ///< bits per link
  std::vector<double> possible;         ///< bits per link that its capacity allowed
  std::vector<Epoch> epochs;
  std::vector<std::string> decisions;
  int64_t events = 0;
  int64_t evaluations = 0;
  bool complete = true;
  FluidTrace trace;                     ///< jobs numbered as in the scenario
};

/// `seed` replaces the scenario's. Errors: those of the policy.
[[nodiscard]] Result<RunRecord> RunScenario(const Scenario& scenario, const PreparedScenario& prepared,
                                            SimulationPolicy policy, const SimulationOptions& options, uint64_t seed);

}  // namespace weft::planner::jobs

// What `weft simulate` prints. The JSON keys are a contract: docs/simulate.md.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/jobs/simulate/scenario.h"

namespace weft::cli {

/// One policy's run.
struct PolicyRun {
  planner::SimulationPolicy policy = planner::SimulationPolicy::kWeft;
  planner::SimulationReport report;
  Seconds time{0};                    ///< that the simulation took
};

/// What the planner chose for a job with a model.
struct ModelPlan {
  struct Way {
    std::string strategy;
    Seconds predicted{0};             ///< iteration on a fabric that is nowhere narrower than the hosts' NICs
  };
  std::string job;
  std::vector<Way> ways;              ///< at least one; the first is what `weft plan` chooses
};

struct SimulateReport {
  const planner::Scenario& scenario;
  std::vector<PolicyRun> runs;        ///< at least one; the first is what the contract's keys are of
  std::vector<ModelPlan> plans;
};

/// The links with the highest utilisation, at most `most`: of the network where it carries anything, else of servers'
/// insides.
std::vector<planner::SimulatedLink> BusiestLinks(const planner::Scenario& scenario,
                                                 const planner::SimulationReport& report, size_t most);

/// {"jobs", "links", "summary", "solver"} of the first run, and all runs under "policies". Infinite times are null.
std::string SimulateJsonText(const SimulateReport& report);

/// One run: jobs, busiest links, summary and decisions. Several: one line each, and the bound.
std::string SimulateTableText(const SimulateReport& report);

}  // namespace weft::cli

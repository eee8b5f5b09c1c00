// A mix of jobs with models in miniature: the strategies, paths and classes that `weft simulate` decides on, replayed on the fabric with
// everything scaled to its rates.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/jobs/simulate/scenario.h"
#include "tests/real/experiment.h"

namespace weft::real {

struct MixOptions {
  std::string scenario;            ///< SCENARIO.yaml: a leaf-spine of plain hosts, jobs with models on two hosts each
  std::vector<planner::SimulationPolicy> policies;
  Installation installation;
  Seconds phase{5};                ///< measured, of each policy
  int draws = 1;                   ///< of the phases between jobs
};

/// What one policy made of it. Goodput as `weft simulate` has it.
struct MixOutcome {
  Outcome outcome;
  std::vector<std::string> strategies;   ///< per job
  double goodput = 0;                    ///< measured
  double simulated = 0;                  ///< with the phases that the jobs had
};

/// Calls `done` after each policy. Errors: those of the scenario; kInvalidArgument for one that is no such; those of Experiment.
[[nodiscard]] Result<std::vector<MixOutcome>> RunMix(const MixOptions& options, const std::function<void(const MixOutcome&)>& done);

/// One line per policy and job, the goodputs, and whether both orders agree: policies within `tie` of each other, relatively, count as equal.
std::string MixText(const std::vector<MixOutcome>& outcomes, double tie);

}  // namespace weft::real

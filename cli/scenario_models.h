// Strategies for the jobs of a scenario that have a model.
#pragma once

#include <vector>

#include "cli/simulate_report.h"
#include "common/result.h"
#include "formats/scenario_yaml.h"

namespace weft::cli {

/// Plans them, with progress on stderr, and gives them their ways; `truth`, unless null, is the same scenario and gets a burst for every
/// micro-batch. False, with the reasons on stderr, where one fits nowhere. Errors: those of WayPlanner, naming the model's place.
[[nodiscard]] Result<bool> PlanModels(formats::ScenarioFile* file, planner::Scenario* truth, std::vector<ModelPlan>* plans);

}  // namespace weft::cli

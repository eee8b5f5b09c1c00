// How sure `weft plan` is of a prediction, as its JSON and its table say it. Internal to cli/plan*.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "planner/planner.h"

namespace weft::cli {

/// {"iteration_s": [low, high], "memory_bytes": [low, high]}: where measured values lie with probability `share`, by how far such
/// predictions were off. Requires: 0 < share < 1.
nlohmann::json IntervalJson(const planner::JobSpec& job, const planner::Prediction& predicted, double share);

/// "1.52 s -11 +24 %": where it is measured in nine of ten cases.
std::string DurationText(const planner::ModelSpec& model, Seconds iteration);

}  // namespace weft::cli

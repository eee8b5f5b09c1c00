#include "cli/plan_interval.h"

#include <fmt/format.h>

#include <cmath>

#include "common/parse_units.h"

namespace weft::cli {
namespace {

planner::Predicted IterationKind(const planner::ModelSpec& model) {
  return model.IsMoe() ? planner::Predicted::kMixtureIteration : planner::Predicted::kIteration;
}

}  // namespace

nlohmann::json IntervalJson(const planner::JobSpec& job, const planner::Prediction& predicted, double share) {
  const planner::ErrorInterval time = planner::IntervalOf(IterationKind(job.model), share);
  const planner::ErrorInterval memory = planner::IntervalOf(planner::Predicted::kMemory, share);
  const double seconds = predicted.iteration.count(), bytes = static_cast<double>(predicted.memory.total().count());
  return {{"iteration_s", {time.low * seconds, time.high * seconds}},
          {"memory_bytes", {std::llround(memory.low * bytes), std::llround(memory.high * bytes)}}};
}

std::string DurationText(const planner::ModelSpec& model, Seconds iteration) {
  const planner::ErrorInterval of = planner::IntervalOf(IterationKind(model), 0.9);
  return fmt::format("{} {:+.0f} {:+.0f} %", FormatDuration(iteration), 100 * (of.low - 1), 100 * (of.high - 1));
}

}  // namespace weft::cli

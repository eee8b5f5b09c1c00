// weft-train's arguments.
#include <fmt/format.h>

#include "formats/emit/writers.h"
#include "formats/train_plan.h"

namespace weft::formats {

Result<std::string> EmitWeftTrain(const EmitRequest& request) {
  auto words = TrainArguments(request.job, request.strategy, {.operators = request.operators, .sums = request.sums});
  if (!words) return CannotEmit(EmitTarget::kWeftTrain, words.error().message());
  std::string text = fmt::format("# {}\n# Of weft-train {}, beside --config, --data, --rank, --world, --rendezvous and --plugin.\n",
                                 PlanSummary(request), planner::Describe(planner::Framework::kWeftTrain).release);
  for (size_t i = 0; i + 1 < words->size(); i += 2) text += fmt::format("{} {}\n", (*words)[i], (*words)[i + 1]);
  return text;
}

}  // namespace weft::formats

#include "runtime/execute/liveness.h"

namespace weft::runtime {

Liveness LivenessOf(const planner::RankClass& list) {
  Liveness live{.writer = std::vector<int32_t>(list.values.size(), -1),
                .free_after = std::vector<std::vector<int32_t>>(list.instructions.size())};
  std::vector<int32_t> last(list.values.size(), -1);
  for (size_t k = 0; k < list.instructions.size(); ++k) {
    const planner::Instruction& i = list.instructions[k];
    const auto at = static_cast<int32_t>(k);
    for (const int32_t value : i.outputs) live.writer[static_cast<size_t>(value)] = last[static_cast<size_t>(value)] = at;
    for (const int32_t value : i.inputs) last[static_cast<size_t>(value)] = at;
    if (i.action == planner::StepAction::kLossSum) live.loss = i.outputs[0];
    // Summed over the ranks afterwards.
    if (planner::Communicates(i.action) && !i.inputs.empty() && i.inputs[0] == live.loss && !i.outputs.empty())
      live.loss = i.outputs[0];
  }
  for (size_t value = 0; value < last.size(); ++value) {
    if (last[value] >= 0 && static_cast<int32_t>(value) != live.loss)
      live.free_after[static_cast<size_t>(last[value])].push_back(static_cast<int32_t>(value));
  }
  return live;
}

}  // namespace weft::runtime

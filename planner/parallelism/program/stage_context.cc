// Attention whose keys and values lie on several context ranks.
#include <utility>

#include "planner/parallelism/program/stage_program.h"

namespace weft::planner::inline parallelism {

using enum ModelPart;

std::vector<int32_t> StageProgram::Block(StepAction action, int64_t layer, int64_t step, std::vector<int32_t> inputs) {
  const int64_t t = f_.tokens(), q = model_.heads * model_.head_dim / s_.tp, kv = 2 * model_.kv_heads * model_.head_dim / s_.tp;
  const bool forward = action == StepAction::kForward;
  const ValueShape second{t, forward ? model_.heads / s_.tp : kv};
  std::vector<int32_t> made = Compute(action, kAttentionBlock, layer, std::move(inputs), {{t, q}, second});
  out_.instructions.back().tag = static_cast<int32_t>(step);
  return made;
}

/// Tokens of this rank with all heads → all tokens with its share of the heads.
int32_t StageProgram::HeadsOut(int32_t value) {
  const ValueShape all = out_.values[static_cast<size_t>(value)], spread{all.rows * s_.cp, all.columns / s_.cp};
  return Collective(StepAction::kAllToAll, f_.groups.context, One(StepAction::kForward, kSpread, -1, {value}, spread), spread);
}

int32_t StageProgram::HeadsBack(int32_t value) {
  const ValueShape spread = out_.values[static_cast<size_t>(value)];
  const int32_t moved = Collective(StepAction::kAllToAll, f_.groups.context, value, spread);
  return One(StepAction::kForward, kCollect, -1, {moved}, {spread.rows / s_.cp, spread.columns * s_.cp});
}

int32_t StageProgram::ContextForward(int64_t layer, Kept* kept) {
  const int64_t t = f_.tokens(), q = model_.heads * model_.head_dim / s_.tp, heads = model_.heads / s_.tp;
  const auto shape = [&](int32_t value) { return out_.values[static_cast<size_t>(value)]; };
  std::vector<int32_t> made;
  switch (s_.context_mode) {
    case ContextMode::kRing: {
      int32_t keys = kept->kv[0];
      made = Block(StepAction::kForward, layer, 0, {kept->q[0], keys});
      for (int64_t step = 1; step < s_.cp; ++step) {
        keys = Collective(StepAction::kShift, f_.groups.context, keys, shape(keys));
        made = Block(StepAction::kForward, layer, step, {kept->q[0], keys, made[0], made[1]});
      }
      break;
    }
    case ContextMode::kAllGather: {
      const ValueShape own = shape(kept->kv[0]);
      const int32_t keys = Collective(StepAction::kAllGather, f_.groups.context, kept->kv[0], {s_.cp * own.rows, own.columns});
      made = Compute(StepAction::kForward, kAttentionGathered, layer, {kept->q[0], keys}, {{t, q}, {t, heads}});
      break;
    }
    case ContextMode::kUlysses: {
      kept->q[0] = HeadsOut(kept->q[0]), kept->kv[0] = HeadsOut(kept->kv[0]);
      made = Compute(StepAction::kForward, kAttentionHeads, layer, {kept->q[0], kept->kv[0]},
                     {{s_.cp * t, q / s_.cp}, {s_.cp * t, heads / s_.cp}});
      break;
    }
  }
  kept->core = made[0], kept->sums = made[1];
  return s_.context_mode == ContextMode::kUlysses ? HeadsBack(kept->core) : kept->core;
}

/// Keys go round again, and their gradients one step behind them, so that the last step brings them home, where this rank's own
/// block is added.
std::vector<int32_t> StageProgram::RingData(int64_t layer, int32_t of_core, const Kept& kept) {
  const auto shifted = [&](int32_t value) {
    return Collective(StepAction::kShift, f_.groups.context, value, out_.values[static_cast<size_t>(value)]);
  };
  int32_t keys = kept.kv[0];
  std::vector<int32_t> made;
  for (int64_t step = 1; step <= s_.cp; ++step) {
    keys = step < s_.cp ? shifted(keys) : kept.kv[0];
    std::vector<int32_t> inputs = {of_core, kept.q[0], keys, kept.core, kept.sums};
    if (step > 1) inputs.insert(inputs.end(), {made[0], shifted(made[1])});
    made = Block(StepAction::kData, layer, step % s_.cp, std::move(inputs));
  }
  return made;
}

std::vector<int32_t> StageProgram::ContextData(int64_t layer, int32_t of_core, const Kept& kept) {
  const auto shape = [&](int32_t value) { return out_.values[static_cast<size_t>(value)]; };
  if (s_.context_mode == ContextMode::kRing) return RingData(layer, of_core, kept);
  const bool heads = s_.context_mode == ContextMode::kUlysses;
  const ValueShape own = shape(kept.kv[0]), all{s_.cp * own.rows, own.columns};
  const int32_t keys = heads ? kept.kv[0] : Collective(StepAction::kAllGather, f_.groups.context, kept.kv[0], all);
  if (heads) of_core = HeadsOut(of_core);
  const std::vector<int32_t> made =
      Compute(StepAction::kData, heads ? kAttentionHeads : kAttentionGathered, layer,
              {of_core, kept.q[0], keys, kept.core, kept.sums}, {shape(kept.q[0]), shape(keys)});
  if (heads) return {HeadsBack(made[0]), HeadsBack(made[1])};
  return {made[0], Collective(StepAction::kReduceScatter, f_.groups.context, made[1], own)};
}

}  // namespace weft::planner::parallelism

// An MoE layer's router, exchange between the ranks that share its experts, and experts.
#include <utility>

#include "planner/parallelism/program/stage_program.h"

namespace weft::planner::inline parallelism {

/// Of rows that all tensor ranks have: this rank's.
int32_t StageProgram::RowsOfRank(int32_t value) {
  if (s_.tp == 1 || s_.sequence_parallel) return value;
  return One(StepAction::kForward, ModelPart::kSlice, -1, {value}, {f_.routed_tokens(), model_.hidden});
}

/// And back.
int32_t StageProgram::AllRows(int32_t value) {
  if (s_.tp == 1 || s_.sequence_parallel) return value;
  return Collective(StepAction::kAllGather, f_.groups.tensor, value, {f_.tokens(), model_.hidden});
}

/// Rows go to the ranks that have their experts, and there to all that have a part of these experts' matrices.
int32_t StageProgram::ToExperts(int32_t rows) {
  const int64_t routed = f_.routed_rows(), h = model_.hidden;
  if (f_.groups.expert >= 0) rows = Collective(StepAction::kAllToAll, f_.groups.expert, rows, {routed, h});
  if (f_.groups.expert_tensor < 0) return rows;
  return Collective(StepAction::kAllGather, f_.groups.expert_tensor, rows, {s_.etp * routed, h});
}

int32_t StageProgram::FromExperts(int32_t rows) {
  const int64_t routed = f_.routed_rows(), h = model_.hidden;
  if (f_.groups.expert_tensor >= 0) rows = Collective(StepAction::kReduceScatter, f_.groups.expert_tensor, rows, {routed, h});
  return f_.groups.expert < 0 ? rows : Collective(StepAction::kAllToAll, f_.groups.expert, rows, {routed, h});
}

int32_t StageProgram::MoeForward(int64_t layer, int32_t n, bool keeps, Kept* kept) {
  using enum ModelPart;
  const int64_t g = f_.routed_tokens(), routed = f_.routed_rows(), h = model_.hidden;
  const auto forward = [&](ModelPart part, std::vector<int32_t> in, ValueShape out) {
    return One(StepAction::kForward, part, layer, std::move(in), out, keeps);
  };
  const Turn turn = TurnOf(layer, true, 0);
  Enter(turn);
  kept->n2 = RowsOfRank(n);
  const int32_t scores = forward(kRouter, {kept->n2}, {g, model_.experts});
  kept->rows = ToExperts(forward(kDispatch, {kept->n2, scores}, {routed, h}));
  const int32_t done = FromExperts(forward(kExperts, {kept->rows}, {s_.etp * routed, h}));
  Leave(turn);
  return AllRows(forward(kCombine, {done, scores}, {g, h}));
}

int32_t StageProgram::MoeData(int64_t layer, int32_t gradient, const Kept& kept) {
  using enum ModelPart;
  const int64_t g = f_.routed_tokens(), routed = f_.routed_rows(), h = model_.hidden;
  const Turn turn = TurnOf(layer, true, 0);
  Enter(turn);
  const std::vector<int32_t> combined =
      Compute(StepAction::kData, kCombine, layer, {RowsOfRank(gradient)}, {{routed, h}, {g, model_.experts}});
  const int32_t of_rows = One(StepAction::kData, kExperts, layer, {ToExperts(combined[0])}, {s_.etp * routed, h});
  Weights(kExperts, layer, kept.rows, false);
  const int32_t dispatched = One(StepAction::kData, kDispatch, layer, {FromExperts(of_rows)}, {g, h});
  const int32_t of_n = One(StepAction::kData, kRouter, layer, {combined[1], dispatched}, {g, h});
  Weights(kRouter, layer, kept.n2, false);
  if (turn != TurnOf(layer, false, 0)) Leave(turn);
  return AllRows(of_n);
}

}  // namespace weft::planner::parallelism

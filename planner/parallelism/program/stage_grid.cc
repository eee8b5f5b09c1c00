// A layer whose products tensor ranks make together on a grid (tasks/rank_grid.h): panels that every rank of a row or column
// broadcasts in turn (2D and 2.5D: SUMMA), or blocks that are gathered and sums that are scattered (3D).
#include <utility>

#include "planner/parallelism/program/stage_program.h"

namespace weft::planner::inline parallelism {
namespace {

using enum ModelPart;

// Of ProgramGroups::along.
constexpr size_t kColumns = 0, kRows = 1, kLayers = 2;

/// Whether the product reads the residual stream; the others lead back to it.
bool FromStream(ModelPart part) { return part == kQkv || part == kMlpUp; }
/// Where on a cube a product's inputs are gathered, and its outputs scattered.
size_t InputSide(ModelPart part) { return FromStream(part) ? kColumns : kLayers; }
size_t OutputSide(ModelPart part) { return FromStream(part) ? kLayers : kColumns; }

}  // namespace

ValueShape StageProgram::ShapeOf(int32_t value) const { return out_.values[static_cast<size_t>(value)]; }

int64_t StageProgram::PanelElements(ModelPart part, int64_t layer) const {
  for (const StageBlock& b : blocks_) {
    if (b.block.part == part && b.block.layer == layer) return b.block.elements;
  }
  return 0;
}

/// The part's parameters on this rank.
int32_t StageProgram::Own(ModelPart part, int64_t layer) {
  return One(StepAction::kParameters, part, layer, {}, {1, PanelElements(part, layer)});
}

/// A gradient of them, which the grid's layers have each for their own sequences.
void StageProgram::AddGradient(ModelPart part, int64_t layer, int32_t panel) {
  if (grid_.depth > 1) panel = Collective(StepAction::kAllReduce, f_.groups.along[kLayers], panel, ShapeOf(panel));
  Compute(StepAction::kGradient, part, layer, {panel}, {});
  Contributed(part, layer);
}

/// The value of the rank at `place` of a side of the grid.
int32_t StageProgram::PanelOf(size_t side, int64_t place, int32_t value) {
  const int32_t panel = Collective(StepAction::kBroadcast, f_.groups.along[side], value, ShapeOf(value));
  out_.instructions.back().tag = static_cast<int32_t>(place);
  return panel;
}

/// What `value` is on all ranks of a side comes to the one at `place`; the others have what `before` was.
int32_t StageProgram::SumAt(size_t side, int64_t place, int32_t value, int32_t before) {
  const int32_t sum = Collective(StepAction::kReduce, f_.groups.along[side], value, ShapeOf(value));
  Instruction& i = out_.instructions.back();
  i.tag = static_cast<int32_t>(place);
  if (before >= 0) i.inputs.push_back(before);
  return sum;
}

/// One product of a flat grid, of a rank's panels alone.
int32_t StageProgram::Multiply(StepAction action, int64_t layer, std::vector<int32_t> inputs, ValueShape output, int64_t step) {
  return One(action, kProduct, layer, std::move(inputs), output, false, {step, grid_.side});
}

/// One of a cube, of gathered blocks.
int32_t StageProgram::MultiplyBlocks(StepAction action, ModelPart part, int64_t layer, std::vector<int32_t> inputs,
                                     ValueShape output) {
  const int32_t made = One(action, kProduct, layer, std::move(inputs), output);
  out_.instructions.back().tag = FromStream(part) ? 0 : 1;
  return made;
}

int32_t StageProgram::ProductForward(ModelPart part, int64_t layer, int32_t x, int64_t columns, GridProduct* kept) {
  const int64_t r = f_.rows(), q = grid_.side;
  const int32_t own = Own(part, layer);
  if (grid_.cube) {
    kept->x = Collective(StepAction::kAllGather, f_.groups.along[InputSide(part)], x, {q * r, ShapeOf(x).columns});
    kept->panels = Collective(StepAction::kAllGather, f_.groups.along[kRows], own, {q, ShapeOf(own).columns});
    const int32_t partial = MultiplyBlocks(StepAction::kForward, part, layer, {kept->x, kept->panels}, {q * r, columns});
    return Collective(StepAction::kReduceScatter, f_.groups.along[OutputSide(part)], partial, {r, columns});
  }
  kept->x = x;
  // Panels travel while the ones before are multiplied.
  int32_t y = -1, next_x = PanelOf(kColumns, 0, x), next = PanelOf(kRows, 0, own);
  for (int64_t step = 0; step < q; ++step) {
    std::vector<int32_t> inputs = {next_x, next};
    if (step > 0) inputs.push_back(y);
    if (step + 1 < q) next_x = PanelOf(kColumns, step + 1, x), next = PanelOf(kRows, step + 1, own);
    y = Multiply(StepAction::kForward, layer, std::move(inputs), {r, columns}, step);
  }
  return y;
}

int32_t StageProgram::ProductData(ModelPart part, int64_t layer, int32_t gradient, int64_t columns, const GridProduct& kept) {
  const int64_t r = f_.rows(), q = grid_.side;
  if (grid_.cube) {
    const int32_t whole =
        Collective(StepAction::kAllGather, f_.groups.along[OutputSide(part)], gradient, {q * r, ShapeOf(gradient).columns});
    const int32_t partial = MultiplyBlocks(StepAction::kData, part, layer, {whole, kept.panels}, {q * r, columns});
    const int32_t of_x = Collective(StepAction::kReduceScatter, f_.groups.along[InputSide(part)], partial, {r, columns});
    ProductWeight(part, layer, kept.x, whole);
    return of_x;
  }
  const int32_t own = Own(part, layer);
  int32_t of_x = -1, next = PanelOf(kRows, 0, own);
  for (int64_t step = 0; step < q; ++step) {
    const int32_t panel = next;
    if (step + 1 < q) next = PanelOf(kRows, step + 1, own);
    const int32_t partial = Multiply(StepAction::kData, layer, {gradient, panel}, {r, columns}, step);
    of_x = SumAt(kColumns, step, partial, of_x);
  }
  ProductWeight(part, layer, kept.x, gradient);
  return of_x;
}

void StageProgram::ProductWeight(ModelPart part, int64_t layer, int32_t x, int32_t gradient) {
  if (collect_ != nullptr) {
    collect_->push_back({part, layer, x, false, {0, 1}, gradient});
    return;
  }
  const int64_t q = grid_.side;
  const ValueShape panel{1, PanelElements(part, layer)};
  if (grid_.cube) {
    const int32_t partial = MultiplyBlocks(StepAction::kWeight, part, layer, {gradient, x}, {q, panel.columns});
    return AddGradient(part, layer, Collective(StepAction::kReduceScatter, f_.groups.along[kRows], partial, panel));
  }
  int32_t sum = -1, next = PanelOf(kColumns, 0, x);
  for (int64_t step = 0; step < q; ++step) {
    const int32_t of_step = next;
    if (step + 1 < q) next = PanelOf(kColumns, step + 1, x);
    sum = SumAt(kRows, step, Multiply(StepAction::kWeight, layer, {gradient, of_step}, panel, step), sum);
  }
  AddGradient(part, layer, sum);
}

int32_t StageProgram::NormForward(ModelPart part, int64_t layer, int32_t x, GridNorm* kept) {
  const int64_t numbers = model_.rms_norm ? 1 : 2;  // of a row
  const int32_t own = Own(part, layer);
  kept->x = x;
  kept->panels = Collective(StepAction::kAllGather, f_.groups.same_columns, own,
                            {grid_.pieces() / grid_.side, ShapeOf(own).columns});
  const int32_t sums = One(StepAction::kForward, kNormSums, -1, {x}, {f_.rows(), numbers});
  kept->sums = Collective(StepAction::kAllReduce, f_.groups.along[grid_.cube ? kLayers : kColumns], sums, ShapeOf(sums));
  return One(StepAction::kForward, kGridNorm, -1, {x, kept->sums, kept->panels}, ShapeOf(x));
}

int32_t StageProgram::NormData(ModelPart part, int64_t layer, int32_t gradient, const GridNorm& kept) {
  const ValueShape panels = ShapeOf(kept.panels);
  std::vector<int32_t> inputs = {gradient, kept.x, kept.sums, kept.panels};
  const int32_t sums = One(StepAction::kData, kNormSums, -1, inputs, ShapeOf(kept.sums));
  inputs.push_back(Collective(StepAction::kAllReduce, f_.groups.along[grid_.cube ? kLayers : kColumns], sums, ShapeOf(sums)));
  const std::vector<int32_t> made = Compute(StepAction::kData, kGridNorm, -1, std::move(inputs), {ShapeOf(kept.x), panels});
  AddGradient(part, layer, Collective(StepAction::kReduceScatter, f_.groups.same_columns, made[1], {1, panels.columns}));
  return made[0];
}

int32_t StageProgram::GridLayerForward(int64_t layer, int32_t x, bool keeps_core) {
  const int64_t r = f_.rows(), side = grid_.side, h = f_.columns(), inner = model_.ffn_hidden / side;
  const int64_t q = model_.heads * model_.head_dim / side, kv = 2 * model_.kv_heads * model_.head_dim / side;
  GridKept& kept = grid_kept_[{layer, micro_batch_}];
  kept = GridKept();
  kept.x = x;
  const Turn turn = TurnOf(layer, false, 0), of_mlp = TurnOf(layer, true, 0);
  Enter(turn);
  const int32_t n = NormForward(kAttentionNorm, layer, x, &kept.first);
  const int32_t columns = ProductForward(kQkv, layer, n, q + kv, &kept.qkv);
  const std::vector<int32_t> heads = Compute(StepAction::kForward, kHeads, layer, {columns}, {{r, q}, {r, kv}});
  kept.q = heads[0], kept.kv = heads[1];
  const int32_t o = One(StepAction::kForward, kAttentionCore, layer, heads, {r, q}, keeps_core);
  const int32_t y = ProductForward(kAttentionOut, layer, o, h, &kept.attention_out);
  const int32_t middle = One(StepAction::kForward, kResidual, layer, {x, y}, {r, h});
  const int32_t n2 = NormForward(kMlpNorm, layer, middle, &kept.second);
  if (turn != of_mlp) Leave(turn);
  Enter(of_mlp);
  kept.up = ProductForward(kMlpUp, layer, n2, model_.gated_mlp ? 2 * inner : inner, &kept.mlp_up);
  const int32_t active = One(StepAction::kForward, kActivation, layer, {kept.up}, {r, inner});
  const int32_t z = ProductForward(kMlpDown, layer, active, h, &kept.mlp_down);
  Leave(of_mlp);
  return One(StepAction::kForward, kResidual, layer, {middle, z}, {r, h});
}

int32_t StageProgram::GridLayerData(int64_t layer, int32_t gradient) {
  const int64_t r = f_.rows(), side = grid_.side, h = f_.columns(), inner = model_.ffn_hidden / side;
  const int64_t q = model_.heads * model_.head_dim / side, kv = 2 * model_.kv_heads * model_.head_dim / side;
  const bool again = s_.recompute != Recompute::kNone && Recomputes(layer);
  const bool full = again && s_.recompute == Recompute::kFull;
  const Turn together = full ? TurnsOfLayer(layer, /*back=*/true).front() : Turn();
  if (full) {
    Enter(together);
    holds_turn_ = true;
    GridLayerForward(layer, grid_kept_.at({layer, micro_batch_}).x, true);
  }
  const GridKept kept = grid_kept_.extract({layer, int64_t{micro_batch_}}).mapped();
  if (again && !full) One(StepAction::kForward, kAttentionCore, layer, {kept.q, kept.kv}, {r, q}, true);
  const Turn turn = TurnOf(layer, false, 0), of_mlp = TurnOf(layer, true, 0);
  Enter(of_mlp);
  const int32_t of_active = ProductData(kMlpDown, layer, gradient, inner, kept.mlp_down);
  const int32_t of_up = One(StepAction::kData, kActivation, layer, {of_active, kept.up}, ShapeOf(kept.up));
  const int32_t of_n2 = ProductData(kMlpUp, layer, of_up, h, kept.mlp_up);
  if (turn != of_mlp) Leave(of_mlp);
  Enter(turn);
  const int32_t of_middle = NormData(kMlpNorm, layer, of_n2, kept.second);
  const int32_t middle = One(StepAction::kForward, kResidual, layer, {gradient, of_middle}, {r, h});
  const int32_t of_o = ProductData(kAttentionOut, layer, middle, q, kept.attention_out);
  const std::vector<int32_t> of_heads = Compute(StepAction::kData, kAttentionCore, layer, {of_o}, {{r, q}, {r, kv}});
  const int32_t of_columns = One(StepAction::kData, kHeads, layer, of_heads, {r, q + kv});
  const int32_t of_n = ProductData(kQkv, layer, of_columns, h, kept.qkv);
  const int32_t of_x = NormData(kAttentionNorm, layer, of_n, kept.first);
  holds_turn_ = false;
  Leave(full ? together : turn);
  return One(StepAction::kForward, kResidual, layer, {middle, of_x}, {r, h});
}

}  // namespace weft::planner::parallelism

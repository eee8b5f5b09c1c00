// A 3D CNN, whose tensor ranks have a slab of every sample each: halo exchange of activations forward, and of gradients backward.
#include <utility>

#include "planner/parallelism/program/stage_program.h"
#include "planner/tasks/volume_slabs.h"

namespace weft::planner::inline parallelism {

using enum ModelPart;

/// What the neighbours have of a convolution's input; -1 where it needs nothing of them.
int32_t StageProgram::HaloOf(int64_t layer, int32_t x) {
  const Cnn3dLayer& l = model_.cnn_layers[static_cast<size_t>(layer)];
  if (HaloPlanes(l, s_.tp) == 0) return -1;
  const ValueShape planes = SlabHalo(l, f_.tokens(), s_.tp);
  return Collective(StepAction::kHalo, f_.groups.tensor, One(StepAction::kForward, kHalo, layer, {x}, planes), planes);
}

int32_t StageProgram::VolumeForward(int64_t layer, int32_t x) {
  const Cnn3dLayer& l = model_.cnn_layers[static_cast<size_t>(layer)];
  const ValueShape output = SlabOutput(l, f_.tokens(), s_.tp);
  Kept& kept = kept_[{layer, micro_batch_}];
  kept = Kept();
  kept.x = x;
  const Turn turn = TurnOf(layer, false, 0);
  Enter(turn);
  int32_t y = -1;
  switch (l.kind) {
    case Cnn3dKind::kConvolution: {
      kept.rows = HaloOf(layer, x);
      std::vector<int32_t> inputs = {x};
      if (kept.rows >= 0) inputs.push_back(kept.rows);
      y = One(StepAction::kForward, kConvolution, layer, std::move(inputs), output, /*keeps=*/true);
      break;
    }
    case Cnn3dKind::kGlobalPooling:
      y = TensorReduce(StepAction::kAllReduce, One(StepAction::kForward, kGlobalPooling, layer, {x}, output));
      break;
    default: {
      const ModelPart part = l.kind == Cnn3dKind::kPooling ? kPooling : kClassifier;
      y = One(StepAction::kForward, part, layer, {x}, output, /*keeps=*/true);
    }
  }
  Leave(turn);
  return y;
}

/// The gradient of the layer's input; of the first nobody reads it.
int32_t StageProgram::VolumeData(int64_t layer, int32_t gradient) {
  const Cnn3dLayer& l = model_.cnn_layers[static_cast<size_t>(layer)];
  const ValueShape input = SlabInput(l, f_.tokens(), s_.tp);
  const Kept kept = kept_.extract({layer, int64_t{micro_batch_}}).mapped();
  const Turn turn = TurnOf(layer, false, 0);
  Enter(turn);
  int32_t out = -1;
  switch (l.kind) {
    case Cnn3dKind::kConvolution: out = ConvolutionData(layer, gradient, kept); break;
    case Cnn3dKind::kPooling: out = One(StepAction::kData, kPooling, layer, {gradient}, input); break;
    case Cnn3dKind::kGlobalPooling: out = One(StepAction::kData, kGlobalPooling, layer, {gradient}, input); break;
    default:
      out = One(StepAction::kData, kClassifier, layer, {gradient}, input);
      Weights(kClassifier, layer, kept.x, /*gathers=*/false);
  }
  Leave(turn);
  return out;
}

/// The weight gradient is computed while gradients of the halo travel.
int32_t StageProgram::ConvolutionData(int64_t layer, int32_t gradient, const Kept& kept) {
  const Cnn3dLayer& l = model_.cnn_layers[static_cast<size_t>(layer)];
  const bool halo = kept.rows >= 0, first = layer == 0;
  const ValueShape input = SlabInput(l, f_.tokens(), s_.tp), planes = SlabHalo(l, f_.tokens(), s_.tp);
  std::vector<ValueShape> outputs;
  if (!first) outputs.push_back(input);
  if (!first && halo) outputs.push_back(planes);
  const std::vector<int32_t> made = Compute(StepAction::kData, kConvolution, layer, {gradient}, outputs);
  const bool returns = made.size() > 1;
  const int32_t theirs = returns ? Collective(StepAction::kHalo, f_.groups.tensor, made[1], planes) : -1;
  std::vector<int32_t> inputs = {kept.x};
  if (halo) inputs.push_back(kept.rows);
  Compute(StepAction::kWeight, kConvolution, layer, std::move(inputs), {});
  Contributed(kConvolution, layer);
  if (first) return -1;
  return returns ? One(StepAction::kData, kHalo, layer, {made[0], theirs}, input) : made[0];
}

void StageProgram::VolumesForward() {
  std::vector<Turn> turns;
  for (int64_t layer = 0; layer < model_.layers; ++layer) turns.push_back(TurnOf(layer, false, 0));
  BeginTurns(turns);
  const ValueShape samples = SlabInput(model_.cnn_layers.front(), f_.tokens(), s_.tp);
  int32_t x = One(StepAction::kForward, kVolume, -1, {}, samples);
  for (int64_t layer = 0; layer < model_.layers; ++layer) x = VolumeForward(layer, x);
  head_kept_[micro_batch_].logits = x;
  One(StepAction::kForward, kClassLoss, -1, {x}, {1, 1});
}

void StageProgram::VolumesData() {
  std::vector<Turn> turns;
  for (int64_t layer = model_.layers - 1; layer >= 0; --layer) turns.push_back(TurnOf(layer, false, 0));
  BeginTurns(turns);
  const int32_t logits = head_kept_.extract(int64_t{micro_batch_}).mapped().logits;
  int32_t gradient = One(StepAction::kData, kClassLoss, -1, {logits}, ShapeOf(logits));
  for (int64_t layer = model_.layers - 1; layer >= 0; --layer) gradient = VolumeData(layer, gradient);
}

}  // namespace weft::planner::parallelism

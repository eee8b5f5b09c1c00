#include "runtime/model/parts.h"

#include <torch/utils.h>

#include "common/check.h"
#include "runtime/model/activation.h"
#include "runtime/model/attention.h"
#include "runtime/model/grid.h"
#include "runtime/model/moe.h"
#include "runtime/model/volume.h"

namespace weft::runtime {
namespace {

using planner::ModelPart;

/// Output columns whose bias this rank has: all, or its share where the outputs are summed over the tensor ranks.
void AddBias(const ModelShape& s, const torch::Tensor& out, const torch::Tensor& bias, bool summed) {
  const int64_t width = out.size(1) / (summed ? s.tensors : 1);
  out.narrow(1, summed ? s.tensor * width : 0, width).add_(bias);
}

void AddBiasGradient(const ModelShape& s, const torch::Tensor& gradient, const torch::Tensor& bias, bool summed) {
  const int64_t width = gradient.size(1) / (summed ? s.tensors : 1);
  bias.add_(gradient.narrow(1, summed ? s.tensor * width : 0, width).sum(0));
}

torch::Tensor Product(const torch::Tensor& x, const torch::Tensor& matrix) { return torch::mm(x, matrix.t()); }

/// matrix += gradientᵀ · x.
void AddProductGradient(const torch::Tensor& matrix, const torch::Tensor& gradient, const torch::Tensor& x) {
  matrix.addmm_(gradient.t(), x);
}

// Norms. LayerNorm keeps its input, mean and inverse deviation; RMSNorm its input and inverse root.

torch::Tensor NormForward(const PartCall& c, const torch::Tensor& x, PartState* state) {
  const Tensors& p = c.parameters.values;
  const double epsilon = c.shape.model.numerics.norm_epsilon;
  if (!c.shape.model.rms_norm) {
    auto [out, mean, inverse] = at::native_layer_norm(x, {x.size(1)}, p[0], p[1], epsilon);
    if (state != nullptr) state->kept = {x, mean, inverse};
    return out;
  }
  const torch::Tensor inverse = torch::rsqrt(x.square().mean(1, /*keepdim=*/true) + epsilon);
  if (state != nullptr) state->kept = {x, inverse};
  return x * inverse * p[0];
}

torch::Tensor NormBackward(const PartCall& c, const torch::Tensor& gradient, PartState& state) {
  const Tensors& p = c.parameters.values;
  const Tensors& g = c.parameters.gradients;
  const Tensors kept = std::move(state.kept);
  state = {};
  const torch::Tensor& x = kept[0];
  if (!c.shape.model.rms_norm) {
    auto [of_x, of_weight, of_bias] =
        at::native_layer_norm_backward(gradient, x, {x.size(1)}, kept[1], kept[2], p[0], p[1], {true, true, true});
    g[0].add_(of_weight);
    g[1].add_(of_bias);
    return of_x;
  }
  const torch::Tensor& inverse = kept[1];
  const torch::Tensor normal = x * inverse;
  g[0].add_((gradient * normal).sum(0));
  const torch::Tensor scaled = gradient * p[0];
  return (scaled - normal * (scaled * normal).mean(1, true)) * inverse;
}

// Products around attention.

Tensors QkvForward(const PartCall& c) {
  const ModelShape& s = c.shape;
  const torch::Tensor all = Product(c.inputs[0], c.parameters.values[0]);
  if (s.model.attention_bias) AddBias(s, all, c.parameters.values[1], false);
  return SplitHeads(all, s.query_width(), s.model.head_dim);
}

Tensors QkvData(const PartCall& c, PartState& state) {
  const torch::Tensor gradient = JoinedHeads(c.inputs[0], c.inputs[1], c.shape.model.head_dim);
  state = {.kept = {}, .gradients = {gradient}};
  return {torch::mm(gradient, c.parameters.values[0])};
}

Tensors AttentionOutForward(const PartCall& c) {
  const torch::Tensor out = Product(c.inputs[0], c.parameters.values[0]);
  if (c.parameters.values.size() > 1) AddBias(c.shape, out, c.parameters.values[1], true);
  return {out};
}

// The MLP keeps its first product and, gated or not, the activation that the second one reads.

/// Index of the second matrix among the block's tensors.
size_t DownAt(const ModelShape& s) { return s.model.mlp_bias ? 2 : 1; }

Tensors MlpForward(const PartCall& c, PartState* state) {
  const ModelShape& s = c.shape;
  const Tensors& p = c.parameters.values;
  const torch::Tensor up = Product(c.inputs[0], p[0]);
  if (s.model.mlp_bias) AddBias(s, up, p[1], false);
  const torch::Tensor active = Activated(s.model, up);
  const torch::Tensor out = Product(active, p[DownAt(s)]);
  if (s.model.mlp_bias) AddBias(s, out, p[3], true);
  if (state != nullptr) state->kept = {up, active};
  return {out};
}

Tensors MlpData(const PartCall& c, PartState& state) {
  const ModelShape& s = c.shape;
  const Tensors& p = c.parameters.values;
  const torch::Tensor of_active = torch::mm(c.inputs[0], p[DownAt(s)]);
  const torch::Tensor of_up = ActivationGradient(s.model, of_active, state.kept[0]);
  state = {.kept = {state.kept[1]}, .gradients = {of_up, c.inputs[0]}};
  return {torch::mm(of_up, p[0])};
}

void MlpWeight(const PartCall& c, PartState& state) {
  const ModelShape& s = c.shape;
  const Tensors& g = c.parameters.gradients;
  AddProductGradient(g[0], state.gradients[0], c.inputs[0]);
  if (s.model.mlp_bias) AddBiasGradient(s, state.gradients[0], g[1], false);
  AddProductGradient(g[DownAt(s)], state.gradients[1], state.kept[0]);
  if (s.model.mlp_bias) AddBiasGradient(s, state.gradients[1], g[3], true);
}

// The vocabulary's ends: rows of the table lie on several ranks.

struct LocalRows {
  torch::Tensor index;  ///< [tokens], 0 where the row is elsewhere
  torch::Tensor here;   ///< [tokens × 1], of the computation's type
};

LocalRows RowsHere(const ModelShape& s, const torch::Tensor& tokens) {
  const torch::Tensor local = tokens - s.tensor * s.vocab();
  const torch::Tensor here = local.ge(0).logical_and_(local.lt(s.vocab()));
  return {local.mul(here), here.to(s.type).unsqueeze(1)};
}

Tensors EmbeddingForward(const PartCall& c) {
  const ModelShape& s = c.shape;
  const LocalRows rows = RowsHere(s, c.tokens->inputs);
  torch::Tensor out = c.parameters.values[0].index_select(0, rows.index).mul_(rows.here);
  // Summed over the tensor ranks: one of them adds the positions.
  if (s.model.learned_positions && s.tensor == 0) {
    out.view({s.sequence, s.batch, -1}).add_(c.parameters.values[1].index_select(0, c.tokens->positions).unsqueeze(1));
  }
  return {out};
}

void EmbeddingData(const PartCall& c) {
  const ModelShape& s = c.shape;
  const LocalRows rows = RowsHere(s, c.tokens->inputs);
  c.parameters.gradients[0].index_add_(0, rows.index, c.inputs[0] * rows.here);
  if (s.model.learned_positions) {
    c.parameters.gradients[1].index_add_(0, c.tokens->positions, c.inputs[0].view({s.sequence, s.batch, -1}).sum(1));
  }
}

/// The columns of logits that are the slice's words.
torch::Tensor WordsOfSlice(const PartCall& c, const torch::Tensor& logits) {
  const int64_t words = logits.size(1) / c.slices;
  return logits.narrow(1, c.slice * words, words);
}

/// Of a slice: its columns, the others are zero.
torch::Tensor HeadForward(const PartCall& c) {
  const torch::Tensor own = Product(c.inputs[0], c.parameters.values[0]);
  if (c.slices == 1) return own;
  const torch::Tensor logits = torch::zeros({own.size(0), own.size(1) * c.slices}, own.options());
  WordsOfSlice(c, logits).copy_(own);
  return logits;
}

/// Sums of exp(logit - largest), and the target's logit where it is on this rank.
Tensors LossSums(const PartCall& c) {
  const torch::Tensor &logits = c.inputs[0], &largest = c.inputs[1];
  const LocalRows rows = RowsHere(c.shape, c.tokens->targets);
  return {(logits - largest).exp_().sum(1, true), logits.gather(1, rows.index.unsqueeze(1)).mul_(rows.here)};
}

Tensors Loss(const PartCall& c) {
  const torch::Tensor losses = c.inputs[2].log() + c.inputs[1] - c.inputs[3];
  return {(losses.to(torch::kFloat64).sum() / static_cast<double>(c.shape.loss_tokens)).view({1, 1})};
}

Tensors LossData(const PartCall& c) {
  const LocalRows rows = RowsHere(c.shape, c.tokens->targets);
  torch::Tensor gradient = (c.inputs[0] - c.inputs[1]).exp_().div_(c.inputs[2]);
  gradient.scatter_add_(1, rows.index.unsqueeze(1), -rows.here);
  return {gradient.div_(static_cast<double>(c.shape.loss_tokens))};
}

}  // namespace

Tensors ForwardOf(const PartCall& c, PartState* state) {
  switch (c.part) {
    case ModelPart::kEmbedding: return EmbeddingForward(c);
    case ModelPart::kAttentionNorm:
    case ModelPart::kFinalNorm: return {NormForward(c, c.inputs[0], state)};
    case ModelPart::kMlpNorm: {
      const torch::Tensor sum = c.inputs[0] + c.inputs[1];
      return {sum, NormForward(c, sum, state)};
    }
    case ModelPart::kQkv: return QkvForward(c);
    case ModelPart::kAttentionCore: return {AttentionForward(c.shape, c.inputs[0], c.inputs[1], state)};
    case ModelPart::kAttentionBlock:
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads: return ContextAttentionForward(c);
    case ModelPart::kSpread: return {SpreadHeads(c.shape, c.inputs[0])};
    case ModelPart::kCollect: return {CollectHeads(c.shape, c.inputs[0])};
    case ModelPart::kAttentionOut: return AttentionOutForward(c);
    case ModelPart::kMlp: return MlpForward(c, state);
    case ModelPart::kDispatch: return {DispatchForward(c, state)};
    case ModelPart::kExperts: return {ExpertsForward(c, state)};
    case ModelPart::kCombine: return {CombineForward(c, state)};
    case ModelPart::kResidual: return {c.inputs[0] + c.inputs[1]};
    case ModelPart::kRouter: return {Product(c.inputs[0], c.parameters.values[0])};
    case ModelPart::kHead: return {HeadForward(c)};
    case ModelPart::kLossMax: return {std::get<0>(c.inputs[0].max(1, true))};
    case ModelPart::kLossSums: return LossSums(c);
    case ModelPart::kLoss: return Loss(c);
    case ModelPart::kSlice: {
      const int64_t rows = c.inputs[0].size(0) / c.shape.tensors;
      return {c.inputs[0].narrow(0, c.shape.tensor * rows, rows)};
    }
    case ModelPart::kProduct:
    case ModelPart::kNormSums:
    case ModelPart::kGridNorm:
    case ModelPart::kHeads:
    case ModelPart::kActivation:
    case ModelPart::kToGrid:
    case ModelPart::kFromGrid: return GridForward(c);
    case ModelPart::kVolume:
    case ModelPart::kHalo:
    case ModelPart::kConvolution:
    case ModelPart::kPooling:
    case ModelPart::kGlobalPooling:
    case ModelPart::kClassifier:
    case ModelPart::kClassLoss: return VolumesForward(c, state);
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown:           // their panels are values
    case ModelPart::kPositions: break;  // with the embedding
  }
  WEFT_CHECK(false, "a part without a forward pass");
}

Tensors DataGradientOf(const PartCall& c, PartState& state) {
  if (planner::OfVolumes(c.part)) return VolumesData(c, state);
  switch (c.part) {
    case ModelPart::kEmbedding: EmbeddingData(c); return {};
    case ModelPart::kAttentionNorm: return {NormBackward(c, c.inputs[0], state) + c.inputs[1]};
    case ModelPart::kMlpNorm: return {NormBackward(c, c.inputs[1], state) + c.inputs[0]};
    case ModelPart::kFinalNorm: return {NormBackward(c, c.inputs[0], state)};
    case ModelPart::kQkv: return QkvData(c, state);
    case ModelPart::kAttentionCore: return AttentionBackward(c.shape, c.inputs[0], state);
    case ModelPart::kAttentionBlock:
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads: return ContextAttentionBackward(c);
    case ModelPart::kAttentionOut:
    case ModelPart::kHead: {
      const torch::Tensor own = c.part == ModelPart::kHead ? WordsOfSlice(c, c.inputs[0]) : c.inputs[0];
      state = {.kept = {}, .gradients = {own}};
      return {torch::mm(own, c.parameters.values[0])};
    }
    case ModelPart::kMlp: return MlpData(c, state);
    case ModelPart::kRouter:
      state = {.kept = {}, .gradients = {c.inputs[0]}};
      return {torch::mm(c.inputs[0], c.parameters.values[0]) + c.inputs[1]};
    case ModelPart::kDispatch: return {DispatchBackward(c, state)};
    case ModelPart::kExperts: return {ExpertsBackward(c, state)};
    case ModelPart::kCombine: return CombineBackward(c, state);
    case ModelPart::kLoss: return LossData(c);
    case ModelPart::kProduct:
    case ModelPart::kNormSums:
    case ModelPart::kGridNorm:
    case ModelPart::kHeads:
    case ModelPart::kActivation: return GridData(c);
    default: break;
  }
  WEFT_CHECK(false, "a part without a data gradient");
}

void AddWeightGradient(const PartCall& c, PartState& state) {
  if (planner::OfVolumes(c.part)) return AddVolumesGradient(c, state);
  if (c.part == ModelPart::kMlp) {
    MlpWeight(c, state);
  } else if (c.part == ModelPart::kExperts) {
    AddExpertsGradient(c, state);
  } else {
    const Tensors& g = c.parameters.gradients;
    AddProductGradient(g[0], state.gradients[0], c.inputs[0]);
    if (g.size() > 1) AddBiasGradient(c.shape, state.gradients[0], g[1], c.part == ModelPart::kAttentionOut);
  }
  state = {};
}

}  // namespace weft::runtime

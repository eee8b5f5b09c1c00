#include "planner/workload/layer_cost.h"

#include <algorithm>
#include <cmath>

namespace weft::planner::inline workload {
namespace {

/// The sizes of one micro-batch as real numbers: products of them leave 63 bits only in absurd inputs, and then in range.
struct Sizes {
  double tokens, sequence, hidden, query, key, value, heads, vocab, element;
};

Sizes SizesOf(const ModelSpec& model, int64_t sequence, int64_t micro_batch, int bytes_per_element) {
  Sizes s{};
  s.sequence = static_cast<double>(sequence);
  s.tokens = static_cast<double>(micro_batch) * s.sequence;
  s.hidden = static_cast<double>(model.hidden);
  s.heads = static_cast<double>(model.heads);
  s.query = static_cast<double>(model.QueryWidth());
  const bool latent = model.attention == Attention::kLatent;
  s.key = latent ? s.query : static_cast<double>(model.kv_heads * model.head_dim);
  s.value = latent ? static_cast<double>(model.ValueWidth()) : s.key;
  s.vocab = static_cast<double>(model.vocab);
  s.element = bytes_per_element;
  return s;
}

Bytes WholeBytes(double amount) { return Bytes(std::llround(std::min(amount, 4e18))); }

/// Elements of all matrices from and to the hidden width, and of the latents.
double AttentionMatrices(const ModelSpec& model, const Sizes& s) {
  if (model.attention != Attention::kLatent) return s.hidden * (2 * s.query + s.key + s.value);
  const auto rank_q = static_cast<double>(model.q_lora_rank), rank_kv = static_cast<double>(model.kv_lora_rank);
  const auto rope = static_cast<double>(model.qk_rope_head_dim), nope = static_cast<double>(model.qk_nope_head_dim);
  const double query = rank_q > 0 ? rank_q * (s.hidden + s.query) : s.hidden * s.query;
  return query + s.hidden * (rank_kv + rope) + rank_kv * (s.heads * nope + s.value) + s.value * s.hidden;
}

/// Inner width that one token passes: of the dense MLP, or of its routed and shared experts together.
double InnerWidth(const ModelSpec& model, bool moe) {
  if (!moe) return static_cast<double>(model.ffn_hidden);
  return static_cast<double>(model.experts_per_token * model.expert_ffn_hidden +
                             model.shared_experts * model.shared_expert_ffn_hidden);
}

Flops LayerForward(const ModelSpec& model, const Sizes& s, int64_t layer) {
  const bool moe = model.IsMoeLayer(layer);
  double matrices = AttentionMatrices(model, s) + (model.gated_mlp ? 3 : 2) * s.hidden * InnerWidth(model, moe);
  if (moe) matrices += s.hidden * static_cast<double>(model.experts + (model.shared_expert_gate ? 1 : 0));
  // Scores and values: with values as wide as queries 4 s per query element.
  const double core_value = model.attention == Attention::kLatent ? s.value : s.query;
  return Flops(2 * s.tokens * (matrices + CountedKeys(model, layer, s.sequence) * (s.query + core_value)));
}

/// Elements of one token kept by attention: Q, K, V, its output, and what the norms inside it take.
double AttentionElements(const ModelSpec& model, const Sizes& s) {
  if (model.attention == Attention::kLatent) {
    const auto latents = static_cast<double>(model.q_lora_rank + model.kv_lora_rank);
    return 2 * latents + static_cast<double>(model.qk_rope_head_dim) + s.query + s.key + 2 * s.value;
  }
  return 2 * s.query + s.key + s.value + (model.query_key_norm ? s.query + s.key : 0);
}

/// Bytes kept of one layer. Elements: both norms' inputs and outputs (and the inputs of those behind attention and MLP), Q,
/// K, V, the attention output, the MLP's inside; of an MoE model the routed copies at the experts' edge too, and the router's
/// logits in four bytes.
double LayerActivations(const ModelSpec& model, const Sizes& s, bool moe, Recompute recompute) {
  const double inside = (model.gated_mlp ? 3 : 2) * InnerWidth(model, moe);
  const double norms = model.norm_placement == NormPlacement::kSandwich ? 6 : 4;
  double elements = norms * s.hidden + AttentionElements(model, s) + inside;
  double per_token = 0;
  if (moe) {
    elements += 2 * static_cast<double>(model.experts_per_token) * s.hidden;
    per_token += 4 * static_cast<double>(model.experts);
  }
  per_token += s.element * elements;
  const bool masks = model.KeepsDropoutMasks();
  if (masks) per_token += 2 * s.hidden;                            // two masks of one byte
  if (!model.KeepsScores()) {
    per_token += 4 * s.heads;                                      // log-sum-exp of flash attention
  } else if (recompute == Recompute::kNone) {
    per_token += s.heads * s.sequence * (masks ? 2 * s.element + 1 : s.element);  // softmax; dropped-out copy and mask
  }
  return s.tokens * per_token;
}

double Volume(const std::array<int64_t, 3>& extent) {
  return static_cast<double>(extent[0]) * static_cast<double>(extent[1]) * static_cast<double>(extent[2]);
}

LayerCost CnnLayerCost(const ModelSpec& model, size_t index, double samples, double element, Recompute recompute) {
  const Cnn3dLayer& layer = model.cnn_layers[index];
  const double in = static_cast<double>(layer.in_channels), out = static_cast<double>(layer.out_channels);
  const double from = Volume(layer.extent), to = Volume(layer.OutputExtent());
  double work = 0;  // multiply-adds of one sample
  switch (layer.kind) {
    case Cnn3dKind::kConvolution: work = to * in * out * Volume(layer.kernel); break;
    case Cnn3dKind::kTransposedConvolution: work = from * in * out * Volume(layer.kernel); break;
    case Cnn3dKind::kDense: work = from * in * out; break;
    case Cnn3dKind::kPooling: break;
  }
  // Every layer keeps its input; a norm behind it keeps the layer's own output too.
  const double kept = in * from + (layer.normalised && recompute != Recompute::kFull ? out * to : 0);
  return {.name = "layer" + std::to_string(index), .parameters = LayerParameterCount(model, static_cast<int64_t>(index)),
          .forward = Flops(2 * samples * work), .backward = Flops(4 * samples * work),
          .activations = WholeBytes(samples * element * kept)};
}

/// The output matrix at all tokens or one of a sequence, the dense layer before it, and what is kept: inputs of the final
/// norm and of the output matrix, the logits in four bytes, the dense layer's output and its activation.
LayerCost HeadCost(const ModelSpec& model, const Sizes& s) {
  const auto outputs = static_cast<double>(HeadOutputs(model));
  const double positions = HeadOnOnePosition(model) ? s.tokens / s.sequence : s.tokens;
  const double dense = model.head == HeadKind::kMaskedLanguage ? s.hidden : 0;
  const Flops work(2 * positions * s.hidden * (outputs + dense));
  const double inputs = s.element * s.hidden * (s.tokens + positions) + 2 * s.element * positions * dense;
  return {.name = "head", .parameters = HeadParameterCount(model), .forward = work, .backward = 2 * work,
          .activations = WholeBytes(inputs + 4 * positions * outputs)};
}

std::vector<LayerCost> TransformerCosts(const ModelSpec& model, const Sizes& s, Recompute recompute) {
  std::vector<LayerCost> costs;
  const auto patch = static_cast<double>(model.patch_inputs);
  const double mask = model.KeepsDropoutMasks() ? s.tokens * s.hidden : 0;
  const Flops projection(2 * s.tokens * patch * s.hidden);  // an image has no gradient: backward is for the weights alone
  costs.push_back({.name = "embedding", .parameters = EmbeddingParameterCount(model), .forward = projection,
                   .backward = projection, .activations = WholeBytes(mask + s.element * s.tokens * patch)});
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const Flops forward = LayerForward(model, s, layer);
    const double kept = recompute == Recompute::kFull
                            ? s.element * s.tokens * s.hidden
                            : LayerActivations(model, s, model.IsMoeLayer(layer), recompute);
    costs.push_back({.name = "layer" + std::to_string(layer), .parameters = LayerParameterCount(model, layer),
                     .forward = forward, .backward = 2 * forward, .activations = WholeBytes(kept)});
  }
  costs.push_back(HeadCost(model, s));
  return costs;
}

}  // namespace

std::vector<LayerCost> LayerCosts(const ModelSpec& model, int64_t sequence, int64_t micro_batch, int bytes_per_element,
                                  Recompute recompute) {
  if (!model.IsCnn()) {
    return TransformerCosts(model, SizesOf(model, sequence, micro_batch, bytes_per_element), recompute);
  }
  std::vector<LayerCost> costs;
  for (size_t index = 0; index < model.cnn_layers.size(); ++index) {
    costs.push_back(CnnLayerCost(model, index, static_cast<double>(micro_batch), bytes_per_element, recompute));
  }
  return costs;
}

}  // namespace weft::planner::workload

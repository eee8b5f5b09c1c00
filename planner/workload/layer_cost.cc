#include "planner/workload/layer_cost.h"

#include <cmath>

namespace weft::planner {
namespace {

/// The sizes of one micro-batch as real numbers: products of them leave 63 bits only in absurd inputs, and then in range.
struct Sizes {
  double tokens, sequence, hidden, query, key_value, inner, heads, vocab, element;
};

Bytes WholeBytes(double amount) { return Bytes(std::llround(std::min(amount, 4e18))); }

Flops LayerForward(const ModelSpec& model, const Sizes& s) {
  const double matrices = 2 * s.hidden * s.query + s.hidden * s.key_value + (model.gated_mlp ? 3 : 2) * s.hidden * s.inner;
  return Flops(2 * s.tokens * matrices + 4 * s.tokens * s.sequence * s.query);
}

/// Bytes kept of one layer. Elements: both norms' inputs and outputs, Q, K, V, the attention output, the MLP's inside.
double LayerActivations(const ModelSpec& model, const Sizes& s) {
  const double inside = (model.gated_mlp ? 3 : 2) * s.inner;
  double per_token = s.element * (4 * s.hidden + 2 * s.query + s.key_value + inside);
  if (model.architecture == Architecture::kGpt2) {
    per_token += 2 * s.hidden;                                     // two dropout masks of one byte
    per_token += s.heads * s.sequence * (2 * s.element + 1);       // softmax, its dropped-out copy, the mask
  } else {
    per_token += 4 * s.heads;                                      // log-sum-exp of flash attention
  }
  return s.tokens * per_token;
}

}  // namespace

std::vector<LayerCost> LayerCosts(const ModelSpec& model, int64_t sequence, int64_t micro_batch, int bytes_per_element,
                                  Recompute recompute) {
  Sizes s{};
  s.sequence = static_cast<double>(sequence);
  s.tokens = static_cast<double>(micro_batch) * s.sequence;
  s.hidden = static_cast<double>(model.hidden);
  s.heads = static_cast<double>(model.heads);
  s.query = s.heads * static_cast<double>(model.head_dim);
  s.key_value = 2 * static_cast<double>(model.kv_heads * model.head_dim);
  s.inner = static_cast<double>(model.ffn_hidden);
  s.vocab = static_cast<double>(model.vocab);
  s.element = bytes_per_element;

  std::vector<LayerCost> costs;
  const double mask = model.architecture == Architecture::kGpt2 ? s.tokens * s.hidden : 0;
  costs.push_back({.name = "embedding", .parameters = EmbeddingParameterCount(model), .activations = WholeBytes(mask)});
  const double kept = recompute == Recompute::kFull ? s.element * s.tokens * s.hidden : LayerActivations(model, s);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    costs.push_back({.name = "layer" + std::to_string(layer), .parameters = LayerParameterCount(model, layer),
                     .forward = LayerForward(model, s), .backward = 2 * LayerForward(model, s),
                     .activations = WholeBytes(kept)});
  }
  // Inputs of the final norm and of the output matrix, and the logits in four bytes.
  const Flops head(2 * s.tokens * s.hidden * s.vocab);
  costs.push_back({.name = "head", .parameters = HeadParameterCount(model), .forward = head, .backward = 2 * head,
                   .activations = WholeBytes(s.tokens * (2 * s.element * s.hidden + 4 * s.vocab))});
  return costs;
}

}  // namespace weft::planner

#include "planner/workload/model_spec.h"

namespace weft::planner {
namespace {

int64_t NormParameters(const ModelSpec& model) { return model.rms_norm ? model.hidden : 2 * model.hidden; }

int64_t AttentionParameters(const ModelSpec& m) {
  if (m.attention == Attention::kLatent) {
    const int64_t query_key = m.heads * (m.qk_nope_head_dim + m.qk_rope_head_dim);
    int64_t count = m.q_lora_rank > 0 ? m.hidden * m.q_lora_rank + m.q_lora_rank * query_key : m.hidden * query_key;
    count += m.hidden * (m.kv_lora_rank + m.qk_rope_head_dim);
    count += m.kv_lora_rank * m.heads * (m.qk_nope_head_dim + m.v_head_dim) + m.heads * m.v_head_dim * m.hidden;
    // Only the matrices from and to the hidden width have biases.
    if (m.attention_bias) count += m.q_lora_rank + m.kv_lora_rank + m.qk_rope_head_dim;
    if (m.attention_bias && m.attention_output_bias) count += m.hidden;
    return count;
  }
  const int64_t query = m.heads * m.head_dim, key_value = 2 * m.kv_heads * m.head_dim;
  int64_t count = m.hidden * query + m.hidden * key_value + query * m.hidden;
  if (m.attention_bias) count += query + key_value + (m.attention_output_bias ? m.hidden : 0);
  return count;
}

/// The MLP of `inner` width, without biases.
int64_t MlpMatrices(const ModelSpec& model, int64_t inner) { return (model.gated_mlp ? 3 : 2) * model.hidden * inner; }

int64_t CnnLayerParameters(const Cnn3dLayer& layer) {
  const int64_t norm = layer.normalised ? 2 * layer.out_channels : 0;
  const int64_t bias = layer.bias ? layer.out_channels : 0;
  const auto volume = [](const std::array<int64_t, 3>& sizes) { return sizes[0] * sizes[1] * sizes[2]; };
  switch (layer.kind) {
    case Cnn3dKind::kConvolution:
    case Cnn3dKind::kTransposedConvolution:
      return layer.in_channels * layer.out_channels * volume(layer.kernel) + bias + norm;
    case Cnn3dKind::kDense: return layer.in_channels * volume(layer.extent) * layer.out_channels + bias + norm;
    case Cnn3dKind::kPooling: break;
  }
  return 0;
}

}  // namespace

std::array<int64_t, 3> Cnn3dLayer::OutputExtent() const {
  std::array<int64_t, 3> out{1, 1, 1};
  if (kind == Cnn3dKind::kDense) return out;
  for (size_t i = 0; i < 3; ++i) {
    out[i] = kind == Cnn3dKind::kTransposedConvolution ? extent[i] * stride[i] : (extent[i] + stride[i] - 1) / stride[i];
  }
  return out;
}

bool ModelSpec::IsMoeLayer(int64_t layer) const {
  if (!IsMoe() || layer < first_dense_layers) return false;
  return (layer + (architecture == Architecture::kDeepSeek ? 0 : 1)) % moe_layer_period == 0;
}

int64_t ModelSpec::MoeLayers() const {
  int64_t count = 0;
  for (int64_t layer = 0; layer < layers; ++layer) count += IsMoeLayer(layer) ? 1 : 0;
  return count;
}

int64_t ModelSpec::QueryWidth() const {
  return attention == Attention::kLatent ? heads * (qk_nope_head_dim + qk_rope_head_dim) : heads * head_dim;
}

int64_t ModelSpec::ValueWidth() const {
  return attention == Attention::kLatent ? heads * v_head_dim : heads * head_dim;
}

LayerParameters LayerParametersOf(const ModelSpec& model, int64_t layer) {
  LayerParameters parts;
  parts.attention = AttentionParameters(model);
  parts.norms = 2 * NormParameters(model);
  if (model.query_key_norm) parts.norms += 2 * model.head_dim;
  if (model.attention == Attention::kLatent) parts.norms += model.q_lora_rank + model.kv_lora_rank;
  if (model.IsMoeLayer(layer)) {
    parts.router = model.hidden * model.experts + (model.shared_expert_gate ? model.hidden : 0);
    parts.routed = model.experts * MlpMatrices(model, model.expert_ffn_hidden);
    parts.shared = model.shared_experts * MlpMatrices(model, model.shared_expert_ffn_hidden);
  } else {
    parts.mlp = MlpMatrices(model, model.ffn_hidden);
    if (model.mlp_bias) parts.mlp += (model.gated_mlp ? 2 : 1) * model.ffn_hidden + model.hidden;
  }
  return parts;
}

int64_t LayerParameterCount(const ModelSpec& model, int64_t layer) {
  if (model.IsCnn()) return CnnLayerParameters(model.cnn_layers[static_cast<size_t>(layer)]);
  return LayerParametersOf(model, layer).total();
}

int64_t EmbeddingParameterCount(const ModelSpec& model) {
  return (model.vocab + (model.learned_positions ? model.max_positions : 0)) * model.hidden;
}

int64_t HeadParameterCount(const ModelSpec& model) {
  if (model.IsCnn()) return 0;
  return NormParameters(model) + (model.tied_embeddings ? 0 : model.vocab * model.hidden);
}

int64_t ParameterCount(const ModelSpec& model) {
  int64_t count = EmbeddingParameterCount(model) + HeadParameterCount(model);
  for (int64_t layer = 0; layer < model.layers; ++layer) count += LayerParameterCount(model, layer);
  return count;
}

int64_t ActiveParameterCount(const ModelSpec& model) {
  if (!model.IsMoe()) return ParameterCount(model);
  const int64_t idle = (model.experts - model.experts_per_token) * MlpMatrices(model, model.expert_ffn_hidden);
  return ParameterCount(model) - model.MoeLayers() * idle;
}

}  // namespace weft::planner

#include "planner/workload/model_spec.h"

namespace weft::planner::inline workload {
namespace {

/// Width of a time step's sines, arXiv 2212.09748's and diffusers' constant.
constexpr int64_t kTimestepWidth = 256;

int64_t NormParameters(const ModelSpec& model) {
  if (model.architecture == Architecture::kDit) return 0;  // scaled and shifted by the modulation
  return model.rms_norm ? model.hidden : 2 * model.hidden;
}

/// Rows in, columns out, with a bias.
int64_t Dense(int64_t in, int64_t out) { return in * out + out; }

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
  if (m.attention_sinks) count += m.heads;
  return count;
}

/// The MLP of `inner` width, without biases.
int64_t MlpMatrices(const ModelSpec& model, int64_t inner) { return (model.gated_mlp ? 3 : 2) * model.hidden * inner; }

int64_t MlpBiases(const ModelSpec& model, int64_t inner) { return (model.gated_mlp ? 2 : 1) * inner + model.hidden; }

int64_t OneExpert(const ModelSpec& model) {
  const int64_t inner = model.expert_ffn_hidden;
  return MlpMatrices(model, inner) + (model.expert_mlp_bias ? MlpBiases(model, inner) : 0);
}

/// Embedders of time step (two dense layers) and class, and six vectors from their sum.
int64_t ModulationParameters(const ModelSpec& model) {
  const int64_t h = model.hidden;
  return Dense(kTimestepWidth, h) + Dense(h, h) + model.condition_classes * h + Dense(h, 6 * h);
}

int64_t CnnLayerParameters(const Cnn3dLayer& layer) {
  const int64_t norm = layer.normalised ? 2 * layer.out_channels : 0;
  const int64_t bias = layer.bias ? layer.out_channels : 0;
  const auto volume = [](const std::array<int64_t, 3>& sizes) { return sizes[0] * sizes[1] * sizes[2]; };
  switch (layer.kind) {
    case Cnn3dKind::kConvolution:
    case Cnn3dKind::kTransposedConvolution:
      return layer.in_channels / layer.groups * layer.out_channels * volume(layer.kernel) + bias + norm;
    case Cnn3dKind::kDense: return layer.in_channels * volume(layer.extent) * layer.out_channels + bias + norm;
    case Cnn3dKind::kPooling:
    case Cnn3dKind::kGlobalPooling: break;
  }
  return 0;
}

}  // namespace

std::array<int64_t, 3> Cnn3dLayer::OutputExtent() const {
  std::array<int64_t, 3> out{1, 1, 1};
  if (kind == Cnn3dKind::kDense || kind == Cnn3dKind::kGlobalPooling) return out;
  if (output[0] > 0) return output;
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
  parts.norms = (model.norm_placement == NormPlacement::kSandwich ? 4 : 2) * NormParameters(model);
  if (model.query_key_norm) parts.norms += 2 * model.head_dim;
  if (model.attention == Attention::kLatent) parts.norms += model.q_lora_rank + model.kv_lora_rank;
  if (model.IsMoeLayer(layer)) {
    parts.router = model.hidden * model.experts + (model.shared_expert_gate ? model.hidden : 0);
    if (model.router_bias) parts.router += model.experts;
    parts.routed = model.experts * OneExpert(model);
    parts.shared = model.shared_experts * MlpMatrices(model, model.shared_expert_ffn_hidden);
  } else {
    parts.mlp = MlpMatrices(model, model.ffn_hidden);
    if (model.mlp_bias) parts.mlp += MlpBiases(model, model.ffn_hidden);
  }
  if (model.architecture == Architecture::kDit) parts.modulation = ModulationParameters(model);
  return parts;
}

int64_t LayerParameterCount(const ModelSpec& model, int64_t layer) {
  if (model.IsCnn()) return CnnLayerParameters(model.cnn_layers[static_cast<size_t>(layer)]);
  return LayerParametersOf(model, layer).total();
}

int64_t EmbeddingParameterCount(const ModelSpec& model) {
  int64_t count = (model.vocab + model.token_types + (model.learned_positions ? model.max_positions : 0)) * model.hidden;
  if (model.IsImage()) count += Dense(model.patch_inputs, model.hidden);
  if (model.architecture == Architecture::kVit) count += model.hidden;  // the token of the class
  if (model.embedding_norm) count += NormParameters(model);
  return count;
}

int64_t HeadParameterCount(const ModelSpec& model) {
  if (model.IsCnn()) return 0;
  const int64_t h = model.hidden;
  int64_t count = model.norm_placement == NormPlacement::kPost ? 0 : NormParameters(model);
  if (!model.tied_embeddings) count += model.vocab * h;
  if (model.pooler) count += Dense(h, h);
  if (model.classes > 0) count += Dense(h, model.classes);
  if (model.head == HeadKind::kMaskedLanguage) count += Dense(h, h) + NormParameters(model) + model.vocab;
  // The condition scales and shifts once more before the patches are put out.
  if (model.head == HeadKind::kPatches) count += Dense(h, 2 * h) + Dense(h, model.patch_outputs);
  return count;
}

int64_t HeadOutputs(const ModelSpec& model) {
  switch (model.head) {
    case HeadKind::kVocabulary:
    case HeadKind::kMaskedLanguage: return model.vocab;
    case HeadKind::kClasses: return model.classes;
    case HeadKind::kPatches: return model.patch_outputs;
    case HeadKind::kNone: break;
  }
  return 0;
}

bool HeadOnOnePosition(const ModelSpec& model) { return model.head == HeadKind::kClasses; }

double AttendedPairs(const ModelSpec& model, int64_t layer, double sequence) {
  if (!model.causal) return sequence * sequence;
  const auto window = static_cast<double>(model.attention_window);
  if (!model.IsLocalLayer(layer) || window >= sequence) return sequence * sequence / 2;
  if (model.window_kind == AttentionWindow::kChunk) return sequence * window / 2;
  return sequence * window - window * window / 2;
}

double MeanAttendedShare(const ModelSpec& model, double sequence) {
  // Two kinds of layers at most; a share of one half comes out exactly where there is but one.
  double local = 0;
  int64_t a_local = 0, a_full = 0;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const bool is_local = model.IsLocalLayer(layer);
    local += is_local ? 1 : 0;
    (is_local ? a_local : a_full) = layer;
  }
  const double all = static_cast<double>(model.layers), square = sequence * sequence;
  return local / all * (AttendedPairs(model, a_local, sequence) / square) +
         (1 - local / all) * (AttendedPairs(model, a_full, sequence) / square);
}

double CountedKeys(const ModelSpec& model, int64_t layer, double sequence) {
  return (model.causal ? 2 : 1) * AttendedPairs(model, layer, sequence) / sequence;
}

int64_t ParameterCount(const ModelSpec& model) {
  int64_t count = EmbeddingParameterCount(model) + HeadParameterCount(model);
  for (int64_t layer = 0; layer < model.layers; ++layer) count += LayerParameterCount(model, layer);
  return count;
}

int64_t ActiveParameterCount(const ModelSpec& model) {
  if (!model.IsMoe()) return ParameterCount(model);
  const int64_t idle = (model.experts - model.experts_per_token) * OneExpert(model);
  return ParameterCount(model) - model.MoeLayers() * idle;
}

}  // namespace weft::planner::workload

// Which models the programs have the layers of.
#include "planner/parallelism/framework.h"

namespace weft::planner::inline parallelism {
namespace {

bool PlainDecoder(const ModelSpec& m) {
  return !m.IsCnn() && m.causal && m.head == HeadKind::kVocabulary && m.norm_placement == NormPlacement::kPre &&
         m.numerics.attention_softcap == 0 && m.numerics.logit_softcap == 0 && m.numerics.embedding_scale == 1 &&
         !m.numerics.norm_weight_plus_one && m.numerics.rope.local_theta == 0;
}

bool IsLlama31(const RopeNumerics& r) {
  return r.scaling == RopeScaling::kLlama3 && r.factor == 8 && r.low_frequency_factor == 1 && r.high_frequency_factor == 4 &&
         r.original_positions == 8192;
}

/// Rotations that --rotary-base, --rotary-percent, --use-rope-scaling and the yarn options say.
bool MegatronRotates(const ModelSpec& m) {
  const RopeNumerics& r = m.numerics.rope;
  if (m.learned_positions || r.scaling == RopeScaling::kNone) return true;
  if (r.scaling == RopeScaling::kYarn) {
    return m.attention != Attention::kLatent || r.original_positions == 0 || r.original_positions == 4096;
  }
  return IsLlama31(r) || (r.scaling == RopeScaling::kLinear && r.factor == static_cast<double>(static_cast<int64_t>(r.factor)));
}

bool MegatronActivates(const ModelSpec& m) {
  const Activation a = m.numerics.activation;
  if (m.gated_mlp) return a == Activation::kSilu && m.numerics.glu_limit == 0 && m.numerics.glu_offset == 0;
  return a == Activation::kGelu || a == Activation::kGeluTanh || a == Activation::kRelu2;
}

}  // namespace

const char* HuggingFaceLacks(const ModelSpec& m) {
  const bool language = !m.IsCnn() && (m.head == HeadKind::kVocabulary || m.head == HeadKind::kMaskedLanguage);
  if (!language) return "expected a model that predicts tokens";
  if (m.attention_sinks || m.numerics.attention_softcap != 0) {
    return "attention with sinks or soft caps, which runs unfused there and is not priced so";
  }
  return nullptr;
}

const char* MegatronLacks(const ModelSpec& m) {
  if (!m.causal || m.head != HeadKind::kVocabulary) return "pretrain_gpt.py trains decoders with a vocabulary, expected one";
  if (!PlainDecoder(m)) return "norms behind layers, soft caps, scaled embeddings or two rotations, for which there is no option";
  if (m.attention_sinks || m.window_kind == AttentionWindow::kChunk) return "attention sinks or chunks, which are not described";
  if (m.numerics.query_key_l2_norm || !m.numerics.rope.skipped_layers.empty()) {
    return "norms without weights or layers without rotation, which are not described";
  }
  if (m.numerics.attention_scale_width != 0) return "a scale of its own for attention's scores, for which there is no option";
  if (!MegatronActivates(m)) return "its activation, for which there is no option (silu where gated; gelu or squared relu)";
  if (!MegatronRotates(m)) return "its rope scaling: of llama3's only factor 8 over 8192 positions reaches the model, whatever the option says";
  if (m.router_bias || m.expert_mlp_bias) return "biases of router or experts, which are not described";
  if (m.mlp_bias != m.attention_output_bias && m.mlp_bias) return "biases in the MLP but not behind attention, for which there is no option";
  if (m.attention_output_bias && m.attention_bias && !m.mlp_bias) {
    return "biases behind attention but not in the MLP, for which there is no option";
  }
  return nullptr;
}

std::string_view TorchtitanFamily(const ModelSpec& m) {
  if (!PlainDecoder(m) || !m.rms_norm || !m.gated_mlp || m.numerics.activation != Activation::kSilu) return "";
  if (m.attention_bias || m.mlp_bias || m.learned_positions || m.attention_sinks || m.router_bias || m.expert_mlp_bias) return "";
  if (m.window_kind != AttentionWindow::kNone || m.numerics.query_key_l2_norm || m.numerics.attention_scale_width != 0) return "";
  const RopeNumerics& r = m.numerics.rope;
  if (r.fraction != 1 || !r.skipped_layers.empty() || m.shared_expert_gate) return "";
  const bool all_or_none = m.MoeLayers() == 0 || m.MoeLayers() == m.layers;
  if (m.attention == Attention::kLatent && (!m.IsMoe() || m.moe_layer_period != 1 || m.tied_embeddings)) return "";
  if (m.attention == Attention::kLatent) return r.scaling == RopeScaling::kYarn || r.scaling == RopeScaling::kNone ? "deepseek_v3" : "";
  if (m.query_key_norm) return r.scaling == RopeScaling::kNone && m.shared_experts == 0 && all_or_none ? "qwen3" : "";
  const bool scaled = r.scaling == RopeScaling::kNone || r.scaling == RopeScaling::kLlama3;
  return !m.IsMoe() && scaled && !m.tied_embeddings && m.head_dim * m.heads == m.hidden ? "llama3" : "";
}

}  // namespace weft::planner::parallelism

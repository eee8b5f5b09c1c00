// The way back from a spec to a config.json: presets have no file, and runtimes want one.
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/cnn3d_config.h"
#include "formats/hf_config.h"
#include "formats/hf_reader.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::Architecture;
using planner::AttentionWindow;
using planner::HeadKind;
using planner::ModelSpec;
using planner::RopeNumerics;
using planner::RopeScaling;

/// Zero stands for "not said".
json OrNull(double value) { return value != 0 ? json(value) : json(); }

json Scaling(const RopeNumerics& rope) {
  if (rope.scaling == RopeScaling::kNone) {
    return rope.sections.empty() ? json() : json{{"rope_type", "default"}, {"mrope_section", rope.sections}};
  }
  static constexpr const char* kNames[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
  json object = {{"rope_type", kNames[static_cast<size_t>(rope.scaling)]}, {"factor", rope.factor}};
  if (!rope.sections.empty()) object["mrope_section"] = rope.sections;
  if (rope.original_positions > 0) object["original_max_position_embeddings"] = rope.original_positions;
  if (rope.attention_factor > 0) object["attention_factor"] = rope.attention_factor;
  if (rope.scaling == RopeScaling::kYarn) {
    object.update({{"beta_fast", rope.beta_fast}, {"beta_slow", rope.beta_slow}, {"truncate", rope.truncate}});
    if (rope.mscale > 0) object["mscale"] = rope.mscale;
    if (rope.mscale_all_dim > 0) object["mscale_all_dim"] = rope.mscale_all_dim;
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    object.update({{"low_freq_factor", rope.low_frequency_factor}, {"high_freq_factor", rope.high_frequency_factor}});
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    object.update({{"short_factor", rope.short_factors}, {"long_factor", rope.long_factors}});
  }
  return object;
}

/// `size_key`, null without a window, and which layers have it.
void AddWindow(const ModelSpec& model, const char* size_key, json* object) {
  (*object)[size_key] = model.attention_window > 0 ? json(model.attention_window) : json();
  if (model.window_kind == AttentionWindow::kNone) return;
  const char* local = model.window_kind == AttentionWindow::kChunk ? "chunked_attention" : "sliding_attention";
  for (const bool is_local : model.local_layers) (*object)["layer_types"].push_back(is_local ? local : "full_attention");
}

/// What ReadModern, ReadHeads and ReadRope read.
json Modern(const ModelSpec& model, std::string_view type) {
  const planner::ModelNumerics& numerics = model.numerics;
  json object = {{"model_type", type}, {"num_hidden_layers", model.layers}, {"hidden_size", model.hidden},
                 {"num_attention_heads", model.heads}, {"num_key_value_heads", model.kv_heads}, {"head_dim", model.head_dim},
                 {"intermediate_size", model.ffn_hidden}, {"max_position_embeddings", model.max_positions},
                 {"hidden_act", ActivationName(numerics.activation)}, {"rms_norm_eps", numerics.norm_epsilon},
                 {"initializer_range", numerics.initializer_range}, {"attention_dropout", numerics.attention_dropout},
                 {"rope_theta", numerics.rope.theta}, {"rope_scaling", Scaling(numerics.rope)}};
  if (numerics.rope.fraction != 1) object["partial_rotary_factor"] = numerics.rope.fraction;
  return object;
}

/// qwen's window is switched on.
json Qwen(const ModelSpec& model, std::string_view type) {
  json object = Modern(model, type);
  AddWindow(model, "sliding_window", &object);
  object["use_sliding_window"] = model.attention_window > 0;
  if (model.query_key_norm) object["attention_bias"] = model.attention_bias;
  return object;
}

json Dense(const ModelSpec& model) {
  const planner::ModelNumerics& numerics = model.numerics;
  const RopeNumerics& rope = numerics.rope;
  if (!rope.sections.empty()) return Qwen(model, "qwen2_vl_text");
  if (model.query_key_norm) return Qwen(model, "qwen3");
  if (model.attention_bias && !model.attention_output_bias) return Qwen(model, "qwen2");
  const bool drops = numerics.hidden_dropout > 0 || numerics.embedding_dropout > 0;
  if (drops || (model.attention_window > 0 && (rope.scaling == RopeScaling::kLongRope || rope.fraction != 1))) {
    json object = Modern(model, "phi3");
    object.update({{"resid_pdrop", numerics.hidden_dropout}, {"embd_pdrop", numerics.embedding_dropout}});
    AddWindow(model, "sliding_window", &object);
    return object;
  }
  json object = Modern(model, model.attention_window > 0 ? "mistral" : "llama");
  if (model.attention_window > 0) {
    AddWindow(model, "sliding_window", &object);
  } else {
    object.update({{"attention_bias", model.attention_bias}, {"mlp_bias", model.mlp_bias}});
  }
  return object;
}

json Gpt2(const ModelSpec& model) {
  const planner::ModelNumerics& numerics = model.numerics;
  const double kept = model.dropout ? 1 : 0;  // a spec without dropout may carry its family's rates
  json object = {{"model_type", "gpt2"}, {"n_layer", model.layers}, {"n_embd", model.hidden}, {"n_head", model.heads},
                 {"n_inner", model.ffn_hidden}, {"n_positions", model.max_positions},
                 {"activation_function", ActivationName(numerics.activation)},
                 {"layer_norm_epsilon", numerics.norm_epsilon}, {"initializer_range", numerics.initializer_range},
                 {"attn_pdrop", kept * numerics.attention_dropout}, {"resid_pdrop", kept * numerics.hidden_dropout},
                 {"embd_pdrop", numerics.embedding_dropout}};
  if (model.flash_attention) object["_attn_implementation"] = "flash_attention_2";
  return object;
}

json Gemma(const ModelSpec& model) {
  const planner::ModelNumerics& numerics = model.numerics;
  json object = Modern(model, model.query_key_norm ? "gemma3_text" : "gemma2");
  object.erase("hidden_act");
  object.update({{"hidden_activation", ActivationName(numerics.activation)},
                 {"attention_bias", model.attention_bias},
                 {"query_pre_attn_scalar", numerics.attention_scale_width},
                 {"attn_logit_softcapping", OrNull(numerics.attention_softcap)},
                 {"final_logit_softcapping", OrNull(numerics.logit_softcap)}});
  if (model.query_key_norm) object["rope_local_base_freq"] = numerics.rope.local_theta;
  AddWindow(model, "sliding_window", &object);
  return object;
}

json Mixtral(const ModelSpec& model) {
  json object = Modern(model, "mixtral");
  object.update({{"num_local_experts", model.experts}, {"num_experts_per_tok", model.experts_per_token},
                 {"router_aux_loss_coef", model.numerics.router.aux_loss},
                 {"router_jitter_noise", model.numerics.router.jitter}});
  AddWindow(model, "sliding_window", &object);
  return object;
}

json QwenMoe(const ModelSpec& model) {
  json object = Qwen(model, model.shared_expert_gate ? "qwen2_moe" : "qwen3_moe");
  object.update({{"num_experts", model.experts}, {"num_experts_per_tok", model.experts_per_token},
                 {"moe_intermediate_size", model.expert_ffn_hidden}, {"decoder_sparse_step", model.moe_layer_period},
                 {"norm_topk_prob", model.numerics.router.normalise_top_k},
                 {"router_aux_loss_coef", model.numerics.router.aux_loss}});
  if (model.shared_expert_gate) object["shared_expert_intermediate_size"] = model.shared_expert_ffn_hidden;
  json dense = json::array();
  for (int64_t layer = 0; layer < model.first_dense_layers; ++layer) dense.push_back(layer);
  object["mlp_only_layers"] = dense;
  return object;
}

json DeepSeek(const ModelSpec& model) {
  const planner::RouterNumerics& router = model.numerics.router;
  json object = Modern(model, "deepseek_v3");
  object.erase("head_dim");
  object["q_lora_rank"] = model.q_lora_rank > 0 ? json(model.q_lora_rank) : json();
  object.update({{"attention_bias", model.attention_bias}, {"kv_lora_rank", model.kv_lora_rank},
                 {"qk_nope_head_dim", model.qk_nope_head_dim}, {"qk_rope_head_dim", model.qk_rope_head_dim},
                 {"v_head_dim", model.v_head_dim}, {"rope_interleave", model.numerics.rope.interleaved},
                 {"num_nextn_predict_layers", model.numerics.mtp_layers}});
  if (!model.IsMoe()) return object;
  const char* ungrouped = router.groups > 1 ? "group_limited_greedy" : "greedy";
  object.update({{"n_routed_experts", model.experts}, {"num_experts_per_tok", model.experts_per_token},
                 {"moe_intermediate_size", model.expert_ffn_hidden}, {"n_shared_experts", model.shared_experts},
                 {"first_k_dense_replace", model.first_dense_layers}, {"moe_layer_freq", model.moe_layer_period},
                 {"scoring_func", router.score == planner::RouterScore::kSigmoid ? "sigmoid" : "softmax"},
                 {"topk_method", router.expert_bias ? "noaux_tc" : ungrouped},
                 {"n_group", router.groups}, {"topk_group", router.groups_per_token},
                 {"norm_topk_prob", router.normalise_top_k}, {"routed_scaling_factor", router.scaling_factor},
                 {"aux_loss_alpha", router.aux_loss}, {"seq_aux", router.aux_loss_per_sequence}});
  return object;
}

json GptOss(const ModelSpec& model) {
  json object = Modern(model, "gpt_oss");
  object.update({{"hidden_act", "silu"}, {"attention_bias", model.attention_bias},
                 {"swiglu_limit", model.numerics.glu_limit}, {"num_local_experts", model.experts},
                 {"num_experts_per_tok", model.experts_per_token},
                 {"router_aux_loss_coef", model.numerics.router.aux_loss}});
  AddWindow(model, "sliding_window", &object);
  return object;
}

json Llama4(const ModelSpec& model) {
  const planner::ModelNumerics& numerics = model.numerics;
  json object = Modern(model, "llama4_text");
  object.update({{"intermediate_size", model.expert_ffn_hidden}, {"intermediate_size_mlp", model.ffn_hidden},
                 {"attention_bias", model.attention_bias}, {"num_local_experts", model.experts},
                 {"num_experts_per_tok", model.experts_per_token},
                 {"interleave_moe_layer_step", model.moe_layer_period}, {"use_qk_norm", numerics.query_key_l2_norm},
                 {"router_aux_loss_coef", numerics.router.aux_loss}, {"router_jitter_noise", numerics.router.jitter},
                 {"attn_temperature_tuning", numerics.temperature_scale > 0}});
  if (numerics.temperature_scale > 0) {
    object.update({{"floor_scale", numerics.temperature_floor}, {"attn_scale", numerics.temperature_scale}});
  }
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::vector<bool>& skipped = numerics.rope.skipped_layers;
    object["no_rope_layers"].push_back(skipped.empty() || !skipped[static_cast<size_t>(layer)] ? 1 : 0);
  }
  AddWindow(model, "attention_chunk_size", &object);
  return object;
}

json Encoder(const ModelSpec& model, std::string_view type) {
  const planner::ModelNumerics& numerics = model.numerics;
  return {{"model_type", type}, {"num_hidden_layers", model.layers}, {"hidden_size", model.hidden},
          {"num_attention_heads", model.heads}, {"intermediate_size", model.ffn_hidden},
          {"hidden_act", ActivationName(numerics.activation)}, {"layer_norm_eps", numerics.norm_epsilon},
          {"initializer_range", numerics.initializer_range}, {"hidden_dropout_prob", numerics.hidden_dropout},
          {"attention_probs_dropout_prob", numerics.attention_dropout}};
}

json Bert(const ModelSpec& model) {
  const bool roberta = model.reserved_positions > 0;
  json object = Encoder(model, roberta ? "roberta" : "bert");
  const char* name = model.head == HeadKind::kNone ? "Model" : model.classes > 0 ? "ForPreTraining" : "ForMaskedLM";
  object.update({{"architectures", {std::string(roberta ? "Roberta" : "Bert") + name}},
                 {"max_position_embeddings", model.max_positions}, {"type_vocab_size", model.token_types}});
  if (roberta) object["pad_token_id"] = model.reserved_positions - 1;
  return object;
}

/// Side of a square of `tokens`.
int64_t Side(int64_t tokens) { return std::llround(std::sqrt(static_cast<double>(tokens))); }

json Vit(const ModelSpec& model) {
  json object = Encoder(model, "vit");
  // Only channels × side² is kept: three channels if it can be, else one pixel per patch.
  const int64_t side = Side(model.patch_inputs / 3);
  const bool square = 3 * side * side == model.patch_inputs;
  const int64_t patch = square ? side : 1, channels = square ? 3 : model.patch_inputs;
  object.update({{"architectures", {model.head == HeadKind::kNone ? "ViTModel" : "ViTForImageClassification"}},
                 {"patch_size", patch}, {"num_channels", channels}, {"image_size", Side(model.image_tokens - 1) * patch}});
  if (model.classes > 0) object["num_labels"] = model.classes;
  return object;
}

json Dit(const ModelSpec& model) {
  const planner::ModelNumerics& numerics = model.numerics;
  const int64_t patch = model.patch_inputs % 4 == 0 && model.patch_outputs % 4 == 0 ? 2 : 1, area = patch * patch;
  return {{"_class_name", kDitClass}, {"num_layers", model.layers}, {"num_attention_heads", model.heads},
          {"attention_head_dim", model.head_dim}, {"in_channels", model.patch_inputs / area},
          {"out_channels", model.patch_outputs / area}, {"patch_size", patch},
          {"sample_size", Side(model.image_tokens) * patch}, {"num_embeds_ada_norm", model.condition_classes - 1},
          {"norm_type", "ada_norm_zero"}, {"norm_eps", numerics.norm_epsilon}, {"dropout", numerics.hidden_dropout},
          {"activation_fn", numerics.activation == planner::Activation::kGelu ? "gelu" : "gelu-approximate"}};
}

json FamilyConfig(const ModelSpec& model) {
  switch (model.architecture) {
    case Architecture::kGpt2: return Gpt2(model);
    case Architecture::kLlama: return Dense(model);
    case Architecture::kMixtral: return Mixtral(model);
    case Architecture::kQwenMoe: return QwenMoe(model);
    case Architecture::kDeepSeek: return DeepSeek(model);
    case Architecture::kGemma: return Gemma(model);
    case Architecture::kGptOss: return GptOss(model);
    case Architecture::kLlama4: return Llama4(model);
    case Architecture::kBert: return Bert(model);
    case Architecture::kVit: return Vit(model);
    case Architecture::kDit: return Dit(model);
    case Architecture::kCnn3d: break;
  }
  return WriteCnn3d(model);
}

}  // namespace

std::string WriteHfConfig(const ModelSpec& model) {
  json object = FamilyConfig(model);
  if (!model.IsCnn()) object["_name_or_path"] = model.name;
  if (!model.IsCnn() && !model.IsImage()) {
    object.update({{"vocab_size", model.vocab}, {"tie_word_embeddings", model.tied_embeddings}});
  }
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace weft::formats

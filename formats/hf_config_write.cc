// The way back from a spec to a config.json: presets have no file, and runtimes want one.
#include <nlohmann/json.hpp>

#include "formats/cnn3d_config.h"
#include "formats/hf_config.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::Architecture;
using planner::ModelSpec;

json Gpt2(const ModelSpec& model) {
  json object = {{"model_type", "gpt2"}, {"n_layer", model.layers}, {"n_embd", model.hidden}, {"n_head", model.heads},
                 {"n_inner", model.ffn_hidden}, {"n_positions", model.max_positions}};
  if (!model.dropout) object.update({{"attn_pdrop", 0.0}, {"resid_pdrop", 0.0}, {"embd_pdrop", 0.0}});
  if (model.flash_attention) object["_attn_implementation"] = "flash_attention_2";
  return object;
}

json Modern(const ModelSpec& model, std::string_view type) {
  return {{"model_type", type}, {"num_hidden_layers", model.layers}, {"hidden_size", model.hidden},
          {"num_attention_heads", model.heads}, {"num_key_value_heads", model.kv_heads}, {"head_dim", model.head_dim},
          {"intermediate_size", model.ffn_hidden}, {"max_position_embeddings", model.max_positions},
          {"attention_bias", model.attention_bias}, {"mlp_bias", model.mlp_bias}};
}

std::string_view DenseType(const ModelSpec& model) {
  if (model.query_key_norm) return "qwen3";
  return model.attention_bias && !model.attention_output_bias ? "qwen2" : "llama";
}

json Mixtral(const ModelSpec& model) {
  json object = Modern(model, "mixtral");
  object.update({{"num_local_experts", model.experts}, {"num_experts_per_tok", model.experts_per_token}});
  return object;
}

json QwenMoe(const ModelSpec& model) {
  json object = Modern(model, model.shared_expert_gate ? "qwen2_moe" : "qwen3_moe");
  object.update({{"num_experts", model.experts}, {"num_experts_per_tok", model.experts_per_token},
                 {"moe_intermediate_size", model.expert_ffn_hidden}, {"decoder_sparse_step", model.moe_layer_period}});
  if (model.shared_expert_gate) object["shared_expert_intermediate_size"] = model.shared_expert_ffn_hidden;
  json dense = json::array();
  for (int64_t layer = 0; layer < model.first_dense_layers; ++layer) dense.push_back(layer);
  object["mlp_only_layers"] = dense;
  return object;
}

json DeepSeek(const ModelSpec& model) {
  json object = Modern(model, "deepseek_v3");
  object.erase("head_dim");
  object["q_lora_rank"] = model.q_lora_rank > 0 ? json(model.q_lora_rank) : json();
  object.update({{"kv_lora_rank", model.kv_lora_rank}, {"qk_nope_head_dim", model.qk_nope_head_dim},
                 {"qk_rope_head_dim", model.qk_rope_head_dim}, {"v_head_dim", model.v_head_dim}});
  if (!model.IsMoe()) return object;
  object.update({{"n_routed_experts", model.experts}, {"num_experts_per_tok", model.experts_per_token},
                 {"moe_intermediate_size", model.expert_ffn_hidden}, {"n_shared_experts", model.shared_experts},
                 {"first_k_dense_replace", model.first_dense_layers}, {"moe_layer_freq", model.moe_layer_period}});
  return object;
}

json FamilyConfig(const ModelSpec& model) {
  switch (model.architecture) {
    case Architecture::kGpt2: return Gpt2(model);
    case Architecture::kLlama: return Modern(model, DenseType(model));
    case Architecture::kMixtral: return Mixtral(model);
    case Architecture::kQwenMoe: return QwenMoe(model);
    case Architecture::kDeepSeek: return DeepSeek(model);
    case Architecture::kCnn3d: break;
  }
  return WriteCnn3d(model);
}

}  // namespace

std::string WriteHfConfig(const ModelSpec& model) {
  json object = FamilyConfig(model);
  if (!model.IsCnn()) {
    object.update({{"_name_or_path", model.name}, {"vocab_size", model.vocab},
                   {"tie_word_embeddings", model.tied_embeddings}});
  }
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace weft::formats

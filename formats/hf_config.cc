#include "formats/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/cnn3d_config.h"
#include "formats/json_fields.h"
#include "formats/one_line.h"
#include "formats/read_file.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::Architecture;
using planner::Attention;
using planner::ModelSpec;

// Far above any model there is; a model at all of these limits at once is refused by CheckSize.
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPositions = 1 << 28;

/// Refuses a model whose parameters would not fit 63 bits a few times over.
void CheckSize(const ModelSpec& model, JsonFields& fields) {
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double h = real(model.hidden);
  const double heads = real(model.heads) * (real(model.head_dim) + real(model.qk_nope_head_dim) +
                                            real(model.qk_rope_head_dim) + real(model.v_head_dim));
  const double widest = std::max({h, real(model.q_lora_rank), real(model.kv_lora_rank)});
  const double experts = real(model.experts) * real(model.expert_ffn_hidden) +
                         real(model.shared_experts) * real(model.shared_expert_ffn_hidden);
  const double layer = 4 * heads * widest + 3 * h * (real(model.ffn_hidden) + experts + real(model.experts)) + 2 * h * widest;
  const double all = real(model.layers) * layer + h * (2 * real(model.vocab) + real(model.max_positions));
  if (all > 1e17) fields.Reject(fmt::format("about {:.0e} parameters, expected fewer than 1e17", all));
}

void ReadGpt2(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kGpt2;
  model->layers = fields.Integer("n_layer", 1, kMaxLayers);
  model->hidden = fields.Integer("n_embd", 1, kMaxWidth);
  model->heads = fields.Integer("n_head", 1, kMaxWidth);
  fields.Divides("n_head", model->heads, "n_embd", model->hidden);
  model->kv_heads = model->heads;
  model->head_dim = model->hidden / model->heads;
  model->ffn_hidden = fields.Integer("n_inner", 1, 4 * kMaxWidth, 4 * model->hidden);
  model->vocab = fields.Integer("vocab_size", 1, kMaxVocab);
  model->max_positions = fields.Integer("n_positions", 1, kMaxPositions);
  model->tied_embeddings = fields.Boolean("tie_word_embeddings", true);
  model->dropout = fields.Number("attn_pdrop", 0, 1, 0.1) > 0 || fields.Number("resid_pdrop", 0, 1, 0.1) > 0;
  model->flash_attention = fields.Text("_attn_implementation", "eager") != "eager";
}

/// What all families since Llama share: RMS norms, rotary positions, SwiGLU, fused attention, no dropout.
void ReadModern(JsonFields& fields, ModelSpec* model) {
  model->layers = fields.Integer("num_hidden_layers", 1, kMaxLayers);
  model->hidden = fields.Integer("hidden_size", 1, kMaxWidth);
  model->heads = fields.Integer("num_attention_heads", 1, kMaxWidth);
  model->vocab = fields.Integer("vocab_size", 1, kMaxVocab);
  model->max_positions = fields.Integer("max_position_embeddings", 1, kMaxPositions);
  model->tied_embeddings = fields.Boolean("tie_word_embeddings", false);
  model->gated_mlp = model->rms_norm = model->flash_attention = true;
  model->dropout = model->learned_positions = model->mlp_bias = false;
  model->attention_bias = model->attention_output_bias = false;
}

void ReadHeads(JsonFields& fields, ModelSpec* model, int64_t head_dim) {
  model->kv_heads = fields.Integer("num_key_value_heads", 1, kMaxWidth, model->heads);
  fields.Divides("num_key_value_heads", model->kv_heads, "num_attention_heads", model->heads);
  if (model->kv_heads < model->heads) model->attention = Attention::kGroupedQuery;
  if (fields.Has("head_dim") || head_dim > 0) {
    model->head_dim = fields.Integer("head_dim", 1, kMaxWidth, head_dim);
  } else {
    fields.Divides("num_attention_heads", model->heads, "hidden_size", model->hidden);
    model->head_dim = model->hidden / model->heads;
  }
}

/// llama and mistral; also the dense part of what follows.
void ReadLlama(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kLlama;
  ReadModern(fields, model);
  ReadHeads(fields, model, 0);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", false);
  model->mlp_bias = fields.Boolean("mlp_bias", false);
}

void ReadQwen2(JsonFields& fields, ModelSpec* model) {
  ReadLlama(fields, model);
  model->attention_bias = true;  // Q, K and V always have one, the output never
  model->attention_output_bias = false;
}

void ReadQwen3(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kLlama;
  ReadModern(fields, model);
  ReadHeads(fields, model, 128);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", false);
  model->query_key_norm = true;
}

void ReadExperts(JsonFields& fields, const char* count, ModelSpec* model) {
  model->experts = fields.Integer(count, 1, kMaxExperts);
  model->experts_per_token = fields.Integer("num_experts_per_tok", 1, kMaxExperts);
  if (model->experts_per_token > model->experts) {
    fields.Reject("num_experts_per_tok", fmt::format("value {}, expected at most {} = {}", model->experts_per_token, count,
                                                     model->experts));
  }
}

void ReadMixtral(JsonFields& fields, ModelSpec* model) {
  ReadLlama(fields, model);
  model->architecture = Architecture::kMixtral;
  ReadExperts(fields, "num_local_experts", model);
  model->expert_ffn_hidden = model->ffn_hidden;
}

void ReadQwenExperts(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kQwenMoe;
  ReadExperts(fields, "num_experts", model);
  model->expert_ffn_hidden = fields.Integer("moe_intermediate_size", 1, 4 * kMaxWidth);
  model->moe_layer_period = fields.Integer("decoder_sparse_step", 1, kMaxLayers, 1);
  model->first_dense_layers = fields.CountUp("mlp_only_layers", model->layers);
}

void ReadQwen2Moe(JsonFields& fields, ModelSpec* model) {
  ReadQwen2(fields, model);
  ReadQwenExperts(fields, model);
  model->shared_experts = 1;
  model->shared_expert_ffn_hidden = fields.Integer("shared_expert_intermediate_size", 1, 4 * kMaxWidth);
  model->shared_expert_gate = true;
}

void ReadQwen3Moe(JsonFields& fields, ModelSpec* model) {
  ReadQwen3(fields, model);
  ReadQwenExperts(fields, model);
}

void ReadDeepSeek(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kDeepSeek;
  ReadModern(fields, model);
  model->kv_heads = model->heads;
  model->attention = Attention::kLatent;
  model->q_lora_rank = fields.Integer("q_lora_rank", 1, kMaxWidth, 0);
  model->kv_lora_rank = fields.Integer("kv_lora_rank", 1, kMaxWidth);
  model->qk_nope_head_dim = fields.Integer("qk_nope_head_dim", 1, kMaxWidth);
  model->qk_rope_head_dim = fields.Integer("qk_rope_head_dim", 1, kMaxWidth);
  model->v_head_dim = model->head_dim = fields.Integer("v_head_dim", 1, kMaxWidth);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", false);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  if (!fields.Has("n_routed_experts")) return;  // the family's class allows a dense model
  ReadExperts(fields, "n_routed_experts", model);
  model->expert_ffn_hidden = fields.Integer("moe_intermediate_size", 1, 4 * kMaxWidth);
  model->shared_experts = fields.Integer("n_shared_experts", 0, kMaxExperts, 0);
  model->shared_expert_ffn_hidden = model->shared_experts > 0 ? model->expert_ffn_hidden : 0;
  model->first_dense_layers = fields.Integer("first_k_dense_replace", 0, model->layers, 0);
  model->moe_layer_period = fields.Integer("moe_layer_freq", 1, kMaxLayers, 1);
}

struct Family {
  std::string_view model_type;
  void (*read)(JsonFields& fields, ModelSpec* model);
};
constexpr Family kFamilies[] = {
    {"gpt2", ReadGpt2},           {"llama", ReadLlama},          {"mistral", ReadLlama},     {"mixtral", ReadMixtral},
    {"qwen2", ReadQwen2},         {"qwen2_moe", ReadQwen2Moe},   {"qwen3", ReadQwen3},       {"qwen3_moe", ReadQwen3Moe},
    {"deepseek_v2", ReadDeepSeek}, {"deepseek_v3", ReadDeepSeek},
};

}  // namespace

Result<ModelSpec> ParseHfConfig(std::string_view text, std::string_view source_name) {
  if (text.starts_with("PK\x03\x04")) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: a zip archive, perhaps of TorchScript, expected the model's config.json", source_name));
  }
  WEFT_ASSIGN_OR_RETURN(const json object, ParseJsonObject(text, source_name));
  JsonFields fields(object, source_name);
  const std::string type = fields.Text("model_type", "");
  WEFT_RETURN_IF_ERROR(fields.Finish());
  if (type == kCnn3dModelType) return ReadCnn3d(object, source_name);
  std::string known;
  for (const Family& family : kFamilies) {
    if (type == family.model_type) {
      ModelSpec model;
      model.name = fields.Text("_name_or_path", "");
      if (model.name.empty()) model.name = type;
      family.read(fields, &model);
      if (!fields.failed()) CheckSize(model, fields);
      WEFT_RETURN_IF_ERROR(fields.Finish());
      return model;
    }
    known += std::string(family.model_type) + ", ";
  }
  fields.Reject("model_type", fmt::format("{}, expected one of {}{}",
                                          type.empty() ? "missing" : "value \"" + OneLine(type, 60) + "\"", known,
                                          kCnn3dModelType));
  return Fail(fields.Finish().error());
}

Result<ModelSpec> ReadHfConfig(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseHfConfig(text, path);
}

Result<ModelSpec> ResolveModel(const std::string& name) {
  if (auto preset = planner::FindModelPreset(name)) return *preset;
  Result<ModelSpec> read = ReadHfConfig(name);
  if (!read && read.error().code() == Code::kNotFound) {
    return Fail(Code::kNotFound, fmt::format("model \"{}\": no such file, and no preset: expected a config.json or one of {}",
                                             name, planner::ModelPresetNames()));
  }
  return read;
}

}  // namespace weft::formats

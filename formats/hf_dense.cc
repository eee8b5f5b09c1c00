// Readers of dense decoders, and of what MoE models share with them. Defaults are those of the families' classes in
// transformers.
#include <fmt/format.h>

#include <cmath>

#include "formats/hf_reader.h"

namespace weft::formats {
namespace {

using planner::Architecture;
using planner::Attention;
using planner::AttentionWindow;
using planner::ModelSpec;

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
  planner::ModelNumerics& numerics = model->numerics;
  numerics.attention_dropout = fields.Number("attn_pdrop", 0, 1, 0.1);
  numerics.hidden_dropout = fields.Number("resid_pdrop", 0, 1, 0.1);
  numerics.embedding_dropout = fields.Number("embd_pdrop", 0, 1, 0.1);
  model->dropout = numerics.attention_dropout > 0 || numerics.hidden_dropout > 0;
  model->flash_attention = fields.Text("_attn_implementation", "eager") != "eager";
  ReadActivation(fields, "activation_function", "gelu_new", model);
  numerics.norm_epsilon = fields.Number("layer_norm_epsilon", 0, 1, 1e-5);
  numerics.initializer_range = fields.Number("initializer_range", 0, kMostNumber, 0.02);
  fields.Expect("scale_attn_weights", true);
  fields.Expect("scale_attn_by_inverse_layer_idx", false);
  fields.Expect("reorder_and_upcast_attn", false);
}

void ReadLlamaBody(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kLlama;
  ReadModern(fields, model);
  ReadHeads(fields, model, 0);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  ReadRope(fields, {}, model);
}

void ReadLlama(JsonFields& fields, ModelSpec* model) {
  ReadLlamaBody(fields, model);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", false);
  model->mlp_bias = fields.Boolean("mlp_bias", false);
}

void ReadMistral(JsonFields& fields, ModelSpec* model) {
  ReadLlamaBody(fields, model);
  ReadWindowOfAllLayers(fields, 4096, model);
}

/// The last layers have the window, and only if it is switched on.
void ReadQwenWindow(JsonFields& fields, int64_t full_layers, ModelSpec* model) {
  const bool use = fields.Boolean("use_sliding_window", false);
  const int64_t size = fields.Integer("sliding_window", 1, kMaxPositions, 4096);
  const int64_t full = fields.Integer("max_window_layers", 0, kMaxLayers, full_layers);
  ReadWindow(fields, AttentionWindow::kSliding, "use_sliding_window", use ? size : 0,
             [full](int64_t layer) { return layer >= full; }, model);
}

void ReadQwen2Body(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kLlama;
  ReadModern(fields, model);
  ReadHeads(fields, model, 0);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  model->attention_bias = true;  // Q, K and V always have one, the output never
}

/// qwen2_vl and qwen2_5_vl: their text model, in an object of its own or beside the rest.
void ReadQwen2Vl(JsonFields& fields, ModelSpec* model) {
  ReadQwen2Body(fields, model);
  ReadRope(fields, {.theta = 1e6, .sections = true}, model);
  ReadQwenWindow(fields, 80, model);
}

/// Fused projections and MLP inputs: the same numbers of parameters.
void ReadPhi3(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kLlama;
  ReadModern(fields, model, {.epsilon = 1e-5});
  ReadHeads(fields, model, 0);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  ReadRope(fields, {}, model);
  ReadWindowOfAllLayers(fields, 0, model);
  model->numerics.hidden_dropout = fields.Number("resid_pdrop", 0, 1, 0);
  model->numerics.embedding_dropout = fields.Number("embd_pdrop", 0, 1, 0);
  fields.Expect("attention_bias", false);
  fields.Expect("mlp_bias", false);
  fields.Expect("lm_head_bias", false);
}

/// What gemma2 and gemma3 share. Source: arXiv 2408.00118, 2503.19786.
void ReadGemmaBody(JsonFields& fields, int64_t vocab, int64_t positions, ModelSpec* model) {
  model->architecture = Architecture::kGemma;
  model->layers = 26;
  model->hidden = 2304;
  model->heads = 8;
  model->kv_heads = 4;
  model->vocab = vocab;
  model->max_positions = positions;
  ReadModern(fields, model, {.tied = true, .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh"});
  ReadHeads(fields, model, 256);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth, 9216);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", false);
  model->norm_placement = planner::NormPlacement::kSandwich;
  planner::ModelNumerics& numerics = model->numerics;
  numerics.norm_weight_plus_one = true;
  numerics.embedding_scale = std::sqrt(static_cast<double>(model->hidden));
  numerics.attention_scale_width = fields.Number("query_pre_attn_scalar", kLeastNumber, kMostNumber, 256);
}

/// Null is none.
void ReadSoftcaps(JsonFields& fields, double of_scores, double of_logits, ModelSpec* model) {
  const auto cap = [&fields](const char* key, double otherwise) {
    return fields.Number(key, kLeastNumber, kMostNumber, fields.Holds(key) ? 0 : otherwise);
  };
  model->numerics.attention_softcap = cap("attn_logit_softcapping", of_scores);
  model->numerics.logit_softcap = cap("final_logit_softcapping", of_logits);
}

void ReadGemma2(JsonFields& fields, ModelSpec* model) {
  ReadGemmaBody(fields, 256'000, 8192, model);
  ReadRope(fields, {}, model);
  ReadSoftcaps(fields, 50, 30, model);
  ReadWindow(fields, AttentionWindow::kSliding, "sliding_window", ReadWindowSize(fields, 4096),
             [](int64_t layer) { return layer % 2 == 0; }, model);
}

void ReadGemma3(JsonFields& fields, ModelSpec* model) {
  ReadGemmaBody(fields, 262'208, 131'072, model);
  ReadRope(fields, {.theta = 1e6, .local_theta = 10'000}, model);
  model->query_key_norm = true;
  ReadSoftcaps(fields, 0, 0, model);
  const int64_t underscored = fields.Integer("_sliding_window_pattern", 1, kMaxLayers, 6);
  const int64_t period = fields.Integer("sliding_window_pattern", 1, kMaxLayers, underscored);
  ReadWindow(fields, AttentionWindow::kSliding, "sliding_window", ReadWindowSize(fields, 4096),
             [period](int64_t layer) { return (layer + 1) % period != 0; }, model);
  fields.Expect("use_bidirectional_attention", false);
}

}  // namespace

void ReadModern(JsonFields& fields, ModelSpec* model, const ModernDefaults& defaults) {
  const auto size = [&fields](const char* key, int64_t most, int64_t otherwise) {
    return otherwise > 0 ? fields.Integer(key, 1, most, otherwise) : fields.Integer(key, 1, most);
  };
  model->layers = size("num_hidden_layers", kMaxLayers, model->layers);
  model->hidden = size("hidden_size", kMaxWidth, model->hidden);
  model->heads = size("num_attention_heads", kMaxWidth, model->heads);
  model->vocab = size("vocab_size", kMaxVocab, model->vocab);
  model->max_positions = size("max_position_embeddings", kMaxPositions, model->max_positions);
  model->tied_embeddings = fields.Boolean("tie_word_embeddings", defaults.tied);
  model->gated_mlp = model->rms_norm = model->flash_attention = true;
  model->dropout = model->learned_positions = model->mlp_bias = false;
  model->attention_bias = model->attention_output_bias = false;
  ReadActivation(fields, defaults.activation_key, defaults.activation, model);
  model->numerics.norm_epsilon = fields.Number("rms_norm_eps", 0, 1, defaults.epsilon);
  model->numerics.initializer_range = fields.Number("initializer_range", 0, kMostNumber, 0.02);
  model->numerics.attention_dropout = fields.Number("attention_dropout", 0, 1, 0);
}

void ReadHeads(JsonFields& fields, ModelSpec* model, int64_t head_dim) {
  const int64_t otherwise = model->kv_heads > 0 ? model->kv_heads : model->heads;
  model->kv_heads = fields.Integer("num_key_value_heads", 1, kMaxWidth, otherwise);
  fields.Divides("num_key_value_heads", model->kv_heads, "num_attention_heads", model->heads);
  if (model->kv_heads < model->heads) model->attention = Attention::kGroupedQuery;
  if (fields.Has("head_dim") || head_dim > 0) {
    model->head_dim = fields.Integer("head_dim", 1, kMaxWidth, head_dim);
  } else {
    fields.Divides("num_attention_heads", model->heads, "hidden_size", model->hidden);
    model->head_dim = model->hidden / model->heads;
  }
}

void ReadQwen2(JsonFields& fields, ModelSpec* model) {
  ReadQwen2Body(fields, model);
  ReadRope(fields, {}, model);
  ReadQwenWindow(fields, 28, model);
}

void ReadQwen3(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kLlama;
  ReadModern(fields, model);
  ReadHeads(fields, model, 128);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", false);
  model->query_key_norm = true;
  ReadRope(fields, {}, model);
  ReadQwenWindow(fields, 28, model);
}

std::span<const HfFamily> DenseFamilies() {
  static constexpr HfFamily kFamilies[] = {
      {"gpt2", ReadGpt2},
      {"llama", ReadLlama},
      {"mistral", ReadMistral},
      {"qwen2", ReadQwen2},
      {"qwen3", ReadQwen3},
      {"phi3", ReadPhi3},
      {"gemma2", ReadGemma2},
      {"gemma3_text", ReadGemma3},
      {"qwen2_vl_text", ReadQwen2Vl},
      {"qwen2_5_vl_text", ReadQwen2Vl},
  };
  return kFamilies;
}

}  // namespace weft::formats

// Readers of MoE models. Defaults are those of the families' classes in transformers.
#include <fmt/format.h>

#include "formats/hf_reader.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

using planner::Architecture;
using planner::Attention;
using planner::AttentionWindow;
using planner::ModelSpec;
using planner::RouterNumerics;
using planner::RouterScore;

void ReadExperts(JsonFields& fields, const char* count, ModelSpec* model) {
  model->experts = fields.Integer(count, 1, kMaxExperts);
  model->experts_per_token = fields.Integer("num_experts_per_tok", 1, kMaxExperts);
  if (model->experts_per_token > model->experts) {
    fields.Reject("num_experts_per_tok", fmt::format("value {}, expected at most {} = {}", model->experts_per_token, count,
                                                     model->experts));
  }
}

void ReadAuxLoss(JsonFields& fields, double otherwise, ModelSpec* model) {
  model->numerics.router.aux_loss = fields.Number("router_aux_loss_coef", 0, kMostNumber, otherwise);
}

void ReadMixtral(JsonFields& fields, ModelSpec* model) {
  ReadModern(fields, model, {.epsilon = 1e-5});
  model->architecture = Architecture::kMixtral;
  ReadHeads(fields, model, 0);
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  ReadRope(fields, {.theta = 1e6}, model);
  ReadWindowOfAllLayers(fields, 0, model);
  ReadExperts(fields, "num_local_experts", model);
  model->expert_ffn_hidden = model->ffn_hidden;
  ReadAuxLoss(fields, 0.001, model);
  model->numerics.router.jitter = fields.Number("router_jitter_noise", 0, 1, 0);
}

void ReadQwenExperts(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kQwenMoe;
  const bool renamed = !fields.Has("num_experts") && fields.Has("num_local_experts");  // as transformers 5 writes it
  ReadExperts(fields, renamed ? "num_local_experts" : "num_experts", model);
  model->expert_ffn_hidden = fields.Integer("moe_intermediate_size", 1, 4 * kMaxWidth);
  model->moe_layer_period = fields.Integer("decoder_sparse_step", 1, kMaxLayers, 1);
  model->first_dense_layers = fields.CountUp("mlp_only_layers", model->layers);
  model->numerics.router.normalise_top_k = fields.Boolean("norm_topk_prob", false);
  ReadAuxLoss(fields, 0.001, model);
}

void ReadQwen2Moe(JsonFields& fields, ModelSpec* model) {
  ReadQwen2(fields, model);
  ReadQwenExperts(fields, model);
  model->shared_experts = 1;
  model->shared_expert_ffn_hidden = fields.Integer("shared_expert_intermediate_size", 1, 4 * kMaxWidth);
  model->shared_expert_gate = true;
  fields.Expect("qkv_bias", true);
}

void ReadQwen3Moe(JsonFields& fields, ModelSpec* model) {
  ReadQwen3(fields, model);
  ReadQwenExperts(fields, model);
}

RouterScore ReadScore(JsonFields& fields, RouterScore otherwise) {
  const std::string text = fields.Text("scoring_func", otherwise == RouterScore::kSigmoid ? "sigmoid" : "softmax");
  if (text == "sigmoid") return RouterScore::kSigmoid;
  if (text != "softmax") {
    fields.Reject("scoring_func", fmt::format("value \"{}\", expected softmax or sigmoid", OneLine(text, 60)));
  }
  return RouterScore::kSoftmax;
}

/// Source of the methods: arXiv 2405.04434 section 2.1.2 (groups), 2412.19437 section 2.1.2 (noaux_tc: groups and a bias).
void ReadDeepSeekRouter(JsonFields& fields, bool v3, ModelSpec* model) {
  RouterNumerics& router = model->numerics.router;
  router.score = ReadScore(fields, v3 ? RouterScore::kSigmoid : RouterScore::kSoftmax);
  const std::string method = fields.Text("topk_method", v3 ? "noaux_tc" : "greedy");
  if (method != "noaux_tc" && method != "group_limited_greedy" && method != "greedy") {
    fields.Reject("topk_method", fmt::format("value \"{}\", expected noaux_tc, group_limited_greedy or greedy",
                                             OneLine(method, 60)));
  }
  router.expert_bias = method == "noaux_tc";
  const int64_t groups = fields.Integer("n_group", 1, kMaxExperts, v3 ? 8 : 1);
  const int64_t chosen = fields.Integer("topk_group", 1, kMaxExperts, v3 ? 4 : 1);
  if (method != "greedy") {
    fields.Divides("n_group", groups, "n_routed_experts", model->experts);
    if (chosen > groups) {
      fields.Reject("topk_group", fmt::format("value {}, expected at most n_group = {}", chosen, groups));
    }
    router.groups = groups;
    router.groups_per_token = chosen;
  }
  router.normalise_top_k = fields.Boolean("norm_topk_prob", v3);
  router.scaling_factor = fields.Number("routed_scaling_factor", 0, kMostNumber, v3 ? 2.5 : 1);
  router.aux_loss = fields.Number("aux_loss_alpha", 0, kMostNumber, 0);
  router.aux_loss_per_sequence = fields.Boolean("seq_aux", false);
}

void ReadDeepSeek(JsonFields& fields, bool v3, ModelSpec* model) {
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
  ReadRope(fields, {}, model);
  model->numerics.rope.interleaved = fields.Boolean("rope_interleave", true);
  model->numerics.mtp_layers = fields.Integer("num_nextn_predict_layers", 0, kMaxLayers, 0);
  if (model->numerics.mtp_layers > 0) {
    fields.Note("num_nextn_predict_layers", fmt::format("{} modules of multi-token prediction, planned without them",
                                                        model->numerics.mtp_layers));
  }
  if (!fields.Has("n_routed_experts")) return;  // the family's class allows a dense model
  ReadExperts(fields, "n_routed_experts", model);
  model->expert_ffn_hidden = fields.Integer("moe_intermediate_size", 1, 4 * kMaxWidth);
  model->shared_experts = fields.Integer("n_shared_experts", 0, kMaxExperts, 0);
  model->shared_expert_ffn_hidden = model->shared_experts > 0 ? model->expert_ffn_hidden : 0;
  model->first_dense_layers = fields.Integer("first_k_dense_replace", 0, model->layers, 0);
  model->moe_layer_period = fields.Integer("moe_layer_freq", 1, kMaxLayers, 1);
  ReadDeepSeekRouter(fields, v3, model);
}

void ReadDeepSeekV2(JsonFields& fields, ModelSpec* model) { ReadDeepSeek(fields, false, model); }
void ReadDeepSeekV3(JsonFields& fields, ModelSpec* model) { ReadDeepSeek(fields, true, model); }

/// What the family's class takes where a file says nothing of scaling.
void SetGptOssRope(ModelSpec* model) {
  planner::RopeNumerics& rope = model->numerics.rope;
  rope.scaling = planner::RopeScaling::kYarn;
  rope.factor = 32;
  rope.original_positions = 4096;
  rope.truncate = false;
}

/// Source: arXiv 2508.10925. The activation that the file calls silu is x·sigmoid(1.702 x), clamped, with an offset of one.
void ReadGptOss(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kGptOss;
  ReadModern(fields, model, {.epsilon = 1e-5});
  if (model->numerics.activation != planner::Activation::kSilu) {
    fields.Reject("hidden_act", "expected \"silu\", which stands for gpt_oss's own activation");
  }
  model->numerics.activation = planner::Activation::kQuickGelu;
  model->numerics.glu_limit = fields.Number("swiglu_limit", kLeastNumber, kMostNumber, 7);
  model->numerics.glu_offset = 1;
  if (const double alpha = fields.Number("swiglu_alpha", 0, kMostNumber, 1.702); alpha != 1.702) {
    fields.Note("swiglu_alpha", fmt::format("value {}, planned as 1.702", alpha));
  }
  ReadHeads(fields, model, 64);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", true);
  model->attention_sinks = model->router_bias = model->expert_mlp_bias = true;
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  ReadExperts(fields, "num_local_experts", model);
  model->expert_ffn_hidden = model->ffn_hidden;
  ReadAuxLoss(fields, 0.001, model);
  ReadRope(fields, {.theta = 150'000}, model);
  if (!fields.Holds("rope_scaling") && !fields.Holds("rope_parameters")) SetGptOssRope(model);
  ReadWindow(fields, AttentionWindow::kSliding, "sliding_window", ReadWindowSize(fields, 128),
             [](int64_t layer) { return layer % 2 == 0; }, model);
}

/// Which layers are not rotated: 0 in no_rope_layers, or every no_rope_layer_interval-th.
std::vector<bool> ReadSkippedLayers(JsonFields& fields, int64_t layers) {
  const std::vector<int64_t> rotated = fields.Integers("no_rope_layers", 0, 1);
  const int64_t interval = fields.Integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  std::vector<bool> skipped(static_cast<size_t>(layers));
  if (!rotated.empty() && rotated.size() != skipped.size()) {
    fields.Reject("no_rope_layers", fmt::format("{} entries, expected one for each of {} layers", rotated.size(), layers));
    return {};
  }
  bool any = false;
  for (size_t layer = 0; layer < skipped.size(); ++layer) {
    skipped[layer] = rotated.empty() ? (static_cast<int64_t>(layer) + 1) % interval == 0 : rotated[layer] == 0;
    any = any || skipped[layer];
  }
  return any ? skipped : std::vector<bool>();
}

/// moe_layers is what interleave_moe_layer_step says, or the file contradicts itself.
void ReadMoeLayers(JsonFields& fields, ModelSpec* model) {
  model->moe_layer_period = fields.Integer("interleave_moe_layer_step", 1, kMaxLayers, 1);
  if (!fields.Has("moe_layers")) return;
  const std::vector<int64_t> listed = fields.Integers("moe_layers", 0, kMaxLayers);
  std::vector<int64_t> expected;
  for (int64_t layer = 0; layer < model->layers; ++layer) {
    if (model->IsMoeLayer(layer)) expected.push_back(layer);
  }
  if (listed != expected) {
    fields.Reject("moe_layers", fmt::format("{} layers, expected every layer that interleave_moe_layer_step = {} counts up to",
                                            listed.size(), model->moe_layer_period));
  }
}

void ReadTemperature(JsonFields& fields, ModelSpec* model) {
  // The first published files hold a number in place of true.
  const bool tuned = fields.IsNumber("attn_temperature_tuning") ? fields.Number("attn_temperature_tuning", 0, kMostNumber) > 0
                            : fields.Boolean("attn_temperature_tuning", true);
  const double floor = fields.Number("floor_scale", kLeastNumber, kMostNumber, 8192);
  const double scale = fields.Number("attn_scale", 0, kMostNumber, 0.1);
  if (!tuned || scale == 0) return;
  model->numerics.temperature_floor = floor;
  model->numerics.temperature_scale = scale;
}

void ReadLlama4(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kLlama4;
  ReadModern(fields, model, {.epsilon = 1e-5});
  ReadHeads(fields, model, 128);
  model->attention_bias = model->attention_output_bias = fields.Boolean("attention_bias", false);
  model->ffn_hidden = fields.Integer("intermediate_size_mlp", 1, 4 * kMaxWidth, 16384);
  ReadExperts(fields, "num_local_experts", model);
  model->expert_ffn_hidden = model->shared_expert_ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  model->shared_experts = 1;
  if (fields.failed()) return;  // layers may mean nothing
  ReadMoeLayers(fields, model);
  RouterNumerics& router = model->numerics.router;
  router.score = RouterScore::kSigmoid;
  router.normalise_top_k = false;
  router.scores_on_input = true;
  ReadAuxLoss(fields, 0.001, model);
  router.jitter = fields.Number("router_jitter_noise", 0, 1, 0);
  ReadRope(fields, {.theta = 500'000}, model);
  planner::RopeNumerics& rope = model->numerics.rope;
  rope.interleaved = true;
  rope.skipped_layers = ReadSkippedLayers(fields, model->layers);
  model->numerics.query_key_l2_norm = fields.Boolean("use_qk_norm", true);
  ReadTemperature(fields, model);
  const int64_t chunk = fields.Integer("attention_chunk_size", 1, kMaxPositions,
                                       fields.Holds("attention_chunk_size") ? 0 : 8192);
  ReadWindow(fields, AttentionWindow::kChunk, "attention_chunk_size", chunk,
             [&rope](int64_t layer) {
               return rope.skipped_layers.empty() || !rope.skipped_layers[static_cast<size_t>(layer)];
             }, model);
}

}  // namespace

std::span<const HfFamily> MoeFamilies() {
  static constexpr HfFamily kFamilies[] = {
      {"mixtral", ReadMixtral},         {"qwen2_moe", ReadQwen2Moe},      {"qwen3_moe", ReadQwen3Moe},
      {"deepseek_v2", ReadDeepSeekV2},  {"deepseek_v3", ReadDeepSeekV3},  {"gpt_oss", ReadGptOss},
      {"llama4_text", ReadLlama4},
  };
  return kFamilies;
}

}  // namespace weft::formats

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/validation_case.h"

namespace weft::formats {
namespace {

using planner::Architecture;
using planner::Attention;
using planner::ModelSpec;

/// What a family's public config.json says beyond the columns of a row.
struct Family {
  std::string_view prefix;
  bool llama = true;          ///< RMS norms, rotary positions, no biases
  bool gated = true;
  bool tied = false;
  int64_t head_dim = 0;       ///< 0: hidden / heads
  int64_t shared_experts = 0;
  int64_t first_dense = 0, dense_ffn = 0, period = 1;
  bool latent = false;
};

// Sources: config.json of the models on the Hugging Face hub; MPT and BLOOM their repositories; Nemotron-4 arXiv
// 2402.16819 (squared ReLU, no gate); Grok-1 its release.
constexpr std::array kFamilies = {
    Family{.prefix = "Llama-4", .head_dim = 128, .shared_experts = 1, .dense_ffn = 16384, .period = 2},
    Family{.prefix = "Llama"},
    Family{.prefix = "LLAMA"},
    Family{.prefix = "InternLM"},
    Family{.prefix = "Qwen3", .head_dim = 128},
    Family{.prefix = "Qwen"},
    Family{.prefix = "Mixtral"},
    Family{.prefix = "Mistral"},
    Family{.prefix = "GPT-OSS", .head_dim = 64},
    Family{.prefix = "Grok", .head_dim = 128},
    Family{.prefix = "DeepSeek-V3", .shared_experts = 1, .first_dense = 3, .dense_ffn = 18432, .latent = true},
    Family{.prefix = "DeepSeek-V2", .shared_experts = 2, .first_dense = 1, .dense_ffn = 12288, .latent = true},
    Family{.prefix = "Kimi-K2", .shared_experts = 1, .first_dense = 1, .dense_ffn = 18432, .latent = true},
    Family{.prefix = "Nemotron", .gated = false},
    Family{.prefix = "MPT", .llama = false, .gated = false, .tied = true},
    Family{.prefix = "GPT", .llama = false, .gated = false, .tied = true},
    Family{.prefix = "BLOOM", .llama = false, .gated = false, .tied = true},
    Family{.prefix = "BERT", .llama = false, .gated = false, .tied = true},
    Family{.prefix = "OPT", .llama = false, .gated = false, .tied = true},
};

const Family* FindFamily(std::string_view model) {
  for (const Family& family : kFamilies) {
    if (model.starts_with(family.prefix)) return &family;
  }
  return nullptr;
}

void ApplyBert(ModelSpec& model) {
  model.architecture = Architecture::kBert;
  model.causal = false;
  model.norm_placement = planner::NormPlacement::kPost;
  model.head = planner::HeadKind::kMaskedLanguage;
  model.embedding_norm = true;
  model.token_types = 2;
}

/// Whether the notes say that attention is fused.
bool SaysFlash(std::string_view notes) {
  const auto has = [&](std::string_view what) { return notes.find(what) != std::string_view::npos; };
  return has("flash attention") && !has("no flash attention") && !has("without flash attention") && !has("flash attention off");
}

/// An unknown family: the one whose parameter count comes closer to the row's.
Family GuessFamily(const ModelSpec& sizes, double parameters) {
  Family best;
  double least = 1e300;
  for (const bool gated : {true, false}) {
    for (const bool tied : {false, true}) {
      ModelSpec model = sizes;
      model.gated_mlp = gated;
      model.tied_embeddings = tied;
      const double distance = std::abs(static_cast<double>(planner::ParameterCount(model)) - parameters);
      if (distance < least) {
        least = distance;
        best = {.prefix = "", .llama = gated, .gated = gated, .tied = tied};
      }
    }
  }
  return best;
}

void ApplyLatent(ModelSpec& model) {
  model.architecture = Architecture::kDeepSeek;
  model.attention = Attention::kLatent;
  model.q_lora_rank = 1536;
  model.kv_lora_rank = 512;
  model.qk_nope_head_dim = 128;
  model.qk_rope_head_dim = 64;
  model.v_head_dim = 128;
  model.head_dim = 128;
}

void ApplyFamily(ModelSpec& model, const Family& family) {
  model.architecture = family.llama ? Architecture::kLlama : Architecture::kGpt2;
  model.gated_mlp = family.gated;
  if (family.gated) model.numerics.activation = planner::Activation::kSilu;
  model.tied_embeddings = family.tied;
  model.attention_bias = model.attention_output_bias = model.mlp_bias = model.learned_positions = !family.llama;
  model.rms_norm = family.llama;
  model.dropout = !family.llama;
  if (family.head_dim > 0) model.head_dim = family.head_dim;
  if (model.experts > 0) model.architecture = Architecture::kMixtral;
  model.shared_experts = family.shared_experts;
  model.shared_expert_ffn_hidden = family.shared_experts > 0 ? model.expert_ffn_hidden : 0;
  model.first_dense_layers = family.first_dense;
  if (family.dense_ffn > 0) model.ffn_hidden = family.dense_ffn;
  model.moe_layer_period = family.period;
  if (family.latent) ApplyLatent(model);
}

}  // namespace

Result<ModelSpec> ModelOfRow(const ValidationRow& row, std::vector<std::string>& defaults) {
  ModelSpec model;
  model.name = row.model;
  if (!row.layers || !row.hidden) {
    return Fail(Code::kFailedPrecondition, fmt::format("{}: layers or hidden not stated", row.model));
  }
  model.layers = *row.layers;
  model.hidden = *row.hidden;
  const auto otherwise = [&](const std::optional<int64_t>& value, int64_t instead, const char* name) {
    if (!value) defaults.push_back(fmt::format("{}={}", name, instead));
    return value.value_or(instead);
  };
  model.heads = otherwise(row.heads, std::max<int64_t>(1, model.hidden / 128), "heads");
  model.kv_heads = otherwise(row.kv_heads, model.heads, "kv_heads");
  model.vocab = otherwise(row.vocab, 51200, "vocab");
  const int64_t inner = otherwise(row.ffn_hidden, 4 * model.hidden, "ffn_hidden");
  model.ffn_hidden = inner;
  model.head_dim = std::max<int64_t>(1, model.hidden / model.heads);
  model.max_positions = row.seq.value_or(2048);
  if (row.experts) {
    model.experts = *row.experts;
    model.experts_per_token = otherwise(row.topk, 2, "topk");
    model.expert_ffn_hidden = inner;
  }
  const Family* family = FindFamily(row.model);
  if (family == nullptr && row.params_b) {
    defaults.push_back("family: the one whose parameter count comes closest");
    ApplyFamily(model, GuessFamily(model, *row.params_b * 1e9));
  } else {
    ApplyFamily(model, family == nullptr ? Family{} : *family);
  }
  if (row.model.starts_with("BERT")) ApplyBert(model);
  if (SaysFlash(row.notes)) model.flash_attention = true;
  if (row.model.starts_with("MPT")) {  // no biases, no dropout, fused attention
    model.attention_bias = model.mlp_bias = model.attention_output_bias = false;
    model.dropout = false;
    model.flash_attention = true;
  }
  if (row.model.starts_with("Nemotron-H")) {
    // 54 pairs of a mixer and an MLP; the mixer's matrices (6 h² in Mamba-2) as attention of 1.5 times the width.
    defaults.push_back("hybrid layers: 54 pairs of a mixer, as attention 1.5 h wide, and an MLP");
    model.layers = 54;
    model.heads = model.kv_heads = model.hidden * 3 / 2 / 128;
    model.head_dim = 128;
  }
  if (row.model.starts_with("BLOOM")) model.learned_positions = false, model.dropout = false;
  return model;
}

double SourceFlops(const ValidationRow& row) {
  const double B = static_cast<double>(*row.global_batch), s = static_cast<double>(*row.seq);
  const double L = static_cast<double>(*row.layers), h = static_cast<double>(*row.hidden);
  const double V = static_cast<double>(row.vocab.value_or(51200));
  if (row.metric == "hw_tflops_per_gpu") return 96 * B * L * s * h * h * (1 + s / (6 * h) + V / (16 * L * h));
  // Matrices as they are (grouped queries, gate), attention whole, head once. For GPT this is 72BLsh²(1 + s/6h + V/12hL).
  std::vector<std::string> ignored;
  const auto model = ModelOfRow(row, ignored);
  if (!model) return 0;
  double forward = 2 * s * h * V;
  for (int64_t layer = 0; layer < model->layers; ++layer) {
    const planner::LayerParameters p = planner::LayerParametersOf(*model, layer);
    double active = static_cast<double>(p.attention + p.mlp + p.router + p.shared);
    if (p.routed > 0) {
      active += static_cast<double>(p.routed) * static_cast<double>(model->experts_per_token) /
                static_cast<double>(model->experts);
    }
    forward += 2 * s * active + 2 * s * s * static_cast<double>(model->QueryWidth() + model->ValueWidth());
  }
  // Llama 3's paper counts the unmasked half of the scores.
  const double attention = 2 * s * s * static_cast<double>(model->QueryWidth() + model->ValueWidth()) * L;
  if (row.source.find("2407.21783") != std::string::npos) forward -= attention / 2;
  return 3 * forward * B;
}

}  // namespace weft::formats

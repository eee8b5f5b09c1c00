#include "planner/workload/model_presets.h"

#include <vector>

namespace weft::planner::inline workload {
namespace {

/// A GPT of arXiv 2104.04473's parameter formula: f = 4h, learned positions, tied embeddings. Dropout of openai-community's
/// config.json files.
ModelSpec Gpt(const char* name, int64_t layers, int64_t hidden, int64_t heads, int64_t vocab, int64_t positions) {
  ModelSpec model{.name = name, .architecture = Architecture::kGpt2, .layers = layers, .hidden = hidden, .heads = heads,
                  .kv_heads = heads, .head_dim = hidden / heads, .ffn_hidden = 4 * hidden, .vocab = vocab,
                  .max_positions = positions};
  model.numerics.attention_dropout = model.numerics.hidden_dropout = model.numerics.embedding_dropout = 0.1;
  return model;
}

// Radford et al. 2019, table 2; vocabulary and positions of openai-community's config.json files.
ModelSpec Gpt2(const char* name, int64_t layers, int64_t hidden, int64_t heads) {
  return Gpt(name, layers, hidden, heads, 50257, 1024);
}

// arXiv 2104.04473, table 1, with its vocabulary (section 5.1) and sequence. GPT-3 175B: arXiv 2005.14165, table 2.1, with
// the same vocabulary, as arXiv 2104.04473 trains it.
ModelSpec Megatron(const char* name, int64_t layers, int64_t hidden, int64_t heads) {
  return Gpt(name, layers, hidden, heads, 51200, 2048);
}

ModelSpec Modern(const char* name, Architecture architecture) {
  ModelSpec model;
  model.name = name;
  model.architecture = architecture;
  model.gated_mlp = true;
  model.tied_embeddings = model.attention_bias = model.mlp_bias = model.learned_positions = false;
  model.attention_output_bias = model.dropout = false;
  model.rms_norm = model.flash_attention = true;
  model.numerics.activation = Activation::kSilu;
  return model;
}

/// With eight key and value heads of width 128, as the two families below have them.
ModelSpec GroupedQuery(const char* name, Architecture architecture, int64_t layers, int64_t hidden, int64_t heads,
                       int64_t ffn) {
  ModelSpec model = Modern(name, architecture);
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = 8;
  model.attention = Attention::kGroupedQuery;
  model.head_dim = 128;
  model.ffn_hidden = ffn;
  return model;
}

// arXiv 2407.21783, table 3; vocabulary, positions and numerics of meta-llama's config.json.
ModelSpec Llama3(const char* name, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  ModelSpec model = GroupedQuery(name, Architecture::kLlama, layers, hidden, heads, ffn);
  model.vocab = 128256;
  model.max_positions = 8192;
  model.numerics.rope.theta = 500'000;
  return model;
}

// arXiv 2401.04088, table 1, and mistralai's config.json files.
ModelSpec Mixtral(const char* name, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn, int64_t vocab,
                  int64_t positions, double aux_loss) {
  ModelSpec model = GroupedQuery(name, Architecture::kMixtral, layers, hidden, heads, ffn);
  model.vocab = vocab;
  model.max_positions = positions;
  model.experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden = ffn;
  model.numerics.rope.theta = 1'000'000;
  model.numerics.router.aux_loss = aux_loss;
  return model;
}

// arXiv 2412.19437, section 4.2; vocabulary, positions and numerics of deepseek-ai's config.json.
ModelNumerics DeepSeekV3Numerics() {
  ModelNumerics numerics;
  numerics.activation = Activation::kSilu;
  numerics.norm_epsilon = 1e-6;
  numerics.mtp_layers = 1;
  numerics.rope.interleaved = true;
  numerics.rope.scaling = RopeScaling::kYarn;
  numerics.rope.factor = 40;
  numerics.rope.original_positions = 4096;
  numerics.rope.mscale = numerics.rope.mscale_all_dim = 1;
  numerics.router.score = RouterScore::kSigmoid;
  numerics.router.groups = 8;
  numerics.router.groups_per_token = 4;
  numerics.router.expert_bias = true;
  numerics.router.scaling_factor = 2.5;
  numerics.router.aux_loss = 0.001;
  numerics.router.aux_loss_per_sequence = true;
  return numerics;
}

ModelSpec DeepSeekV3() {
  ModelSpec model = Modern("deepseek-v3", Architecture::kDeepSeek);
  model.layers = 61;
  model.hidden = 7168;
  model.heads = model.kv_heads = 128;
  model.ffn_hidden = 18432;
  model.vocab = 129280;
  model.max_positions = 163840;
  model.attention = Attention::kLatent;
  model.q_lora_rank = 1536;
  model.kv_lora_rank = 512;
  model.qk_nope_head_dim = model.v_head_dim = 128;
  model.head_dim = 128;
  model.qk_rope_head_dim = 64;
  model.experts = 256;
  model.experts_per_token = 8;
  model.expert_ffn_hidden = model.shared_expert_ffn_hidden = 2048;
  model.shared_experts = 1;
  model.first_dense_layers = 3;
  model.numerics = DeepSeekV3Numerics();
  return model;
}

const std::vector<ModelSpec>& Presets() {
  static const auto* const kPresets = new std::vector<ModelSpec>{
      Gpt2("gpt2", 12, 768, 12),
      Gpt2("gpt2-medium", 24, 1024, 16),
      Gpt2("gpt2-large", 36, 1280, 20),
      Gpt2("gpt2-xl", 48, 1600, 25),
      Megatron("gpt3-175b", 96, 12288, 96),
      Llama3("llama3-8b", 32, 4096, 32, 14336),
      Llama3("llama3-70b", 80, 8192, 64, 28672),
      Llama3("llama3-405b", 126, 16384, 128, 53248),
      Mixtral("mixtral-8x7b", 32, 4096, 32, 14336, 32000, 32768, 0.02),
      Mixtral("mixtral-8x22b", 56, 6144, 48, 16384, 32768, 65536, 0.001),
      DeepSeekV3(),
      Megatron("megatron-1.7b", 24, 2304, 24),
      Megatron("megatron-3.6b", 30, 3072, 32),
      Megatron("megatron-7.5b", 36, 4096, 32),
      Megatron("megatron-18.4b", 40, 6144, 48),
      Megatron("megatron-39.1b", 48, 8192, 64),
      Megatron("megatron-76.1b", 60, 10240, 80),
      Megatron("megatron-145.6b", 80, 12288, 96),
      Megatron("megatron-310.1b", 96, 16384, 128),
      Megatron("megatron-529.6b", 105, 20480, 128),
      Megatron("megatron-1008b", 128, 25600, 160),
  };
  return *kPresets;
}

}  // namespace

std::optional<ModelSpec> FindModelPreset(std::string_view name) {
  for (const ModelSpec& model : Presets()) {
    if (model.name == name) return model;
  }
  return std::nullopt;
}

std::string ModelPresetNames() {
  std::string names;
  for (const ModelSpec& model : Presets()) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

}  // namespace weft::planner::workload

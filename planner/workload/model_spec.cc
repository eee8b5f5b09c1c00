#include "planner/workload/model_spec.h"

#include <array>

namespace weft::planner {
namespace {

// openai-community/gpt2 config.json; Radford et al. 2019, table 2.
ModelSpec Gpt2() {
  return {.name = "gpt2", .architecture = Architecture::kGpt2, .layers = 12, .hidden = 768, .heads = 12, .kv_heads = 12,
          .head_dim = 64, .ffn_hidden = 3072, .vocab = 50257, .max_positions = 1024};
}

// arXiv 2407.21783, table 3; vocabulary and positions of meta-llama's config.json.
ModelSpec Llama3(const char* name, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  return {.name = name, .architecture = Architecture::kLlama, .layers = layers, .hidden = hidden, .heads = heads,
          .kv_heads = 8, .head_dim = 128, .ffn_hidden = ffn, .vocab = 128256, .max_positions = 8192, .gated_mlp = true,
          .tied_embeddings = false, .attention_bias = false, .mlp_bias = false, .learned_positions = false,
          .rms_norm = true};
}

std::array<ModelSpec, 3> Presets() {
  return {Gpt2(), Llama3("llama3-8b", 32, 4096, 32, 14336), Llama3("llama3-70b", 80, 8192, 64, 28672)};
}

int64_t NormParameters(const ModelSpec& model) { return model.rms_norm ? model.hidden : 2 * model.hidden; }

}  // namespace

int64_t LayerParameterCount(const ModelSpec& model) {
  const int64_t h = model.hidden, f = model.ffn_hidden;
  const int64_t query = model.heads * model.head_dim, key_value = 2 * model.kv_heads * model.head_dim;
  int64_t attention = h * query + h * key_value + query * h;
  if (model.attention_bias) attention += query + key_value + h;
  const int64_t wide = model.gated_mlp ? 2 : 1;  // matrices from hidden to inner width
  int64_t mlp = (wide + 1) * h * f;
  if (model.mlp_bias) mlp += wide * f + h;
  return attention + mlp + 2 * NormParameters(model);
}

int64_t EmbeddingParameterCount(const ModelSpec& model) {
  return (model.vocab + (model.learned_positions ? model.max_positions : 0)) * model.hidden;
}

int64_t HeadParameterCount(const ModelSpec& model) {
  return NormParameters(model) + (model.tied_embeddings ? 0 : model.vocab * model.hidden);
}

int64_t ParameterCount(const ModelSpec& model) {
  return EmbeddingParameterCount(model) + model.layers * LayerParameterCount(model) + HeadParameterCount(model);
}

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

}  // namespace weft::planner

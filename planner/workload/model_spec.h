// A transformer as its config.json describes it: what costs are computed from. GPT-2 and Llama families in this version;
// formats/hf_config.h makes one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::planner {

enum class Architecture { kGpt2, kLlama };

struct ModelSpec {
  std::string name;
  Architecture architecture = Architecture::kGpt2;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_hidden = 0;
  int64_t vocab = 0;
  int64_t max_positions = 0;
  bool gated_mlp = false;          ///< SwiGLU: three matrices in place of two
  bool tied_embeddings = true;
  bool attention_bias = true;
  bool mlp_bias = true;
  bool learned_positions = true;
  bool rms_norm = false;

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

/// Parameters of one transformer layer: attention, MLP and two norms.
int64_t LayerParameterCount(const ModelSpec& model);

/// Parameters of the embedding (token, and learned positions) and of the head (final norm, output matrix unless tied).
int64_t EmbeddingParameterCount(const ModelSpec& model);
int64_t HeadParameterCount(const ModelSpec& model);

/// Parameters of the whole model, embeddings included. Source: arXiv 2104.04473 eq. (2) for GPT; for grouped queries and
/// gated MLPs the matrices' shapes (arXiv 2407.21783, table 3).
int64_t ParameterCount(const ModelSpec& model);

/// A model by name: "gpt2", "llama3-8b", "llama3-70b"; nullopt if unknown. Sources in the .cc file.
std::optional<ModelSpec> FindModelPreset(std::string_view name);
/// The names that FindModelPreset knows, for messages: "gpt2, llama3-8b, llama3-70b".
std::string ModelPresetNames();

}  // namespace weft::planner

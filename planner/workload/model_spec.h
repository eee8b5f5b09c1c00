// A transformer as its config.json describes it: what costs are computed from. GPT-2 and Llama families in this version;
// formats/hf_config.h makes one.
#pragma once

#include <cstdint>
#include <string>

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

/// Parameters of the whole model, embeddings included. Source: refs in docs/planner.md, arXiv 2104.04473 eq. (2) for GPT.
int64_t ParameterCount(const ModelSpec& model);

}  // namespace weft::planner

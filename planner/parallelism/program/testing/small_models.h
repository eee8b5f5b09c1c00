// Small models for tests of programs: of each family that is executed.
#pragma once

#include "planner/workload/model_spec.h"

namespace weft::planner::inline parallelism {

inline ModelSpec SmallGpt() {
  return {.name = "gpt",
          .architecture = Architecture::kGpt2,
          .layers = 4,
          .hidden = 64,
          .heads = 8,
          .kv_heads = 8,
          .head_dim = 8,
          .ffn_hidden = 256,
          .vocab = 256,
          .max_positions = 64};
}

inline ModelSpec SmallLlama() {
  ModelSpec m{.name = "llama",
              .architecture = Architecture::kLlama,
              .layers = 6,
              .hidden = 64,
              .heads = 8,
              .kv_heads = 4,
              .head_dim = 8,
              .ffn_hidden = 96,
              .vocab = 256,
              .max_positions = 64,
              .gated_mlp = true,
              .tied_embeddings = false,
              .attention_bias = false,
              .mlp_bias = false,
              .learned_positions = false,
              .rms_norm = true};
  m.attention = Attention::kGroupedQuery;
  m.numerics.activation = Activation::kSilu;
  return m;
}

inline ModelSpec SmallMixtral() {
  ModelSpec m = SmallLlama();
  m.name = "mixtral";
  m.architecture = Architecture::kMixtral;
  m.experts = 8;
  m.experts_per_token = 2;
  m.expert_ffn_hidden = m.ffn_hidden;
  return m;
}

}  // namespace weft::planner::parallelism

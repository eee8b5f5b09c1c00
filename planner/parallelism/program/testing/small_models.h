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

/// Volumes of 16 planes, which two or four ranks can share.
inline ModelSpec SmallCnn() {
  ModelSpec m{.name = "cnn", .architecture = Architecture::kCnn3d, .layers = 6, .max_positions = 1};
  m.cnn_layers = {
      {.in_channels = 2, .out_channels = 4, .kernel = {3, 3, 3}, .extent = {16, 8, 8}},
      {.kind = Cnn3dKind::kPooling, .in_channels = 4, .out_channels = 4, .kernel = {2, 2, 2}, .stride = {2, 2, 2},
       .extent = {16, 8, 8}, .bias = false},
      {.in_channels = 4, .out_channels = 8, .kernel = {3, 3, 3}, .stride = {2, 2, 2}, .extent = {8, 4, 4}},
      {.in_channels = 8, .out_channels = 8, .kernel = {3, 1, 3}, .extent = {4, 2, 2}, .bias = false},
      {.kind = Cnn3dKind::kGlobalPooling, .in_channels = 8, .out_channels = 8, .extent = {4, 2, 2}, .bias = false},
      {.kind = Cnn3dKind::kDense, .in_channels = 8, .out_channels = 256}};
  return m;
}

}  // namespace weft::planner::parallelism

#include "planner/tasks/part_tensors.h"

namespace weft::planner::inline tasks {
namespace {

using Start = TensorLayout::Start;

std::vector<TensorLayout> NormLayout(const ModelSpec& m) {
  std::vector<TensorLayout> tensors = {{.name = "weight", .whole = {m.hidden}, .start = Start::kOne}};
  if (!m.rms_norm) tensors.push_back({.name = "bias", .whole = {m.hidden}, .start = Start::kZero});
  return tensors;
}

}  // namespace

std::vector<TensorLayout> LayoutOf(ModelPart part, const ModelSpec& m) {
  const int64_t h = m.hidden, q = m.heads * m.head_dim, k = m.kv_heads * m.head_dim, f = m.ffn_hidden;
  std::vector<TensorLayout> tensors;
  switch (part) {
    case ModelPart::kEmbedding:
      return {{.name = "embedding", .whole = {m.vocab, h}, .cut = 0}};
    case ModelPart::kPositions:
      return {{.name = "positions", .whole = {m.max_positions, h}}};
    // A tied head has the embedding's name, and with it its values.
    case ModelPart::kHead:
      return {{.name = m.tied_embeddings ? "embedding" : "head", .whole = {m.vocab, h}, .cut = 0}};
    case ModelPart::kAttentionNorm:
    case ModelPart::kMlpNorm:
    case ModelPart::kFinalNorm:
      return NormLayout(m);
    case ModelPart::kQkv:
      tensors = {{.name = "qkv", .whole = {q + 2 * k, h}, .cut = 0, .pieces = {q, k, k}}};
      if (m.attention_bias)
        tensors.push_back({.name = "qkv bias", .whole = {q + 2 * k}, .cut = 0, .pieces = {q, k, k}, .start = Start::kZero});
      return tensors;
    case ModelPart::kAttentionOut:
      tensors = {{.name = "attention out", .whole = {h, q}, .cut = 1, .start = Start::kResidual}};
      if (m.attention_bias && m.attention_output_bias)
        tensors.push_back({.name = "attention out bias", .whole = {h}, .cut = 0, .start = Start::kZero});
      return tensors;
    case ModelPart::kMlp: {
      const std::vector<int64_t> ways = m.gated_mlp ? std::vector<int64_t>{f, f} : std::vector<int64_t>{f};
      const int64_t rows = m.gated_mlp ? 2 * f : f;
      tensors = {{.name = "up", .whole = {rows, h}, .cut = 0, .pieces = ways}};
      if (m.mlp_bias) tensors.push_back({.name = "up bias", .whole = {rows}, .cut = 0, .pieces = ways, .start = Start::kZero});
      tensors.push_back({.name = "down", .whole = {h, f}, .cut = 1, .start = Start::kResidual});
      if (m.mlp_bias) tensors.push_back({.name = "down bias", .whole = {h}, .cut = 0, .start = Start::kZero});
      return tensors;
    }
    case ModelPart::kRouter: return {{.name = "router", .whole = {m.experts, h}}};
    case ModelPart::kExperts: {
      const int64_t inner = m.expert_ffn_hidden;
      return {{.name = "experts up", .whole = {m.experts, 2 * inner, h}, .cut = 1, .pieces = {inner, inner}, .by_expert = true},
              {.name = "experts down", .whole = {m.experts, h, inner}, .cut = 2, .start = Start::kResidual, .by_expert = true}};
    }
    default: return {};
  }
}

}  // namespace weft::planner::tasks

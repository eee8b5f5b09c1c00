#include "planner/tasks/part_tensors.h"

#include <algorithm>

namespace weft::planner::inline tasks {
namespace {

using Start = TensorLayout::Start;

std::vector<TensorLayout> NormLayout(const ModelSpec& m) {
  std::vector<TensorLayout> tensors = {{.name = "weight", .whole = {m.hidden}, .start = Start::kOne}};
  if (!m.rms_norm) tensors.push_back({.name = "bias", .whole = {m.hidden}, .start = Start::kZero});
  return tensors;
}

/// Which chunks of outputs and inputs a rank has, of as many as the grid's side, and which part of the chunk's rows and vectors.
struct GridShare {
  int64_t out = 0, in = 0;
  int64_t row_part = 0, row_parts = 1;
  int64_t vector_part = 0, vector_parts = 1;
};

GridShare ShareOnGrid(const RankGrid& grid, ModelPart part, int64_t tensor) {
  const int64_t q = grid.side, j = tensor % q, i = tensor / q % q, l = tensor / q / q;
  if (!grid.cube) return {.out = j, .in = i, .vector_part = i, .vector_parts = q};
  switch (part) {
    case ModelPart::kQkv:
    case ModelPart::kMlpUp:
      return {.out = j, .in = l, .row_part = i, .row_parts = q, .vector_part = l * q + i, .vector_parts = q * q};
    case ModelPart::kAttentionOut:
    case ModelPart::kMlpDown:
      return {.out = l, .in = j, .row_part = i, .row_parts = q, .vector_part = j * q + i, .vector_parts = q * q};
    default:
      return {.out = l, .vector_part = i * q + j, .vector_parts = q * q};
  }
}

}  // namespace

ModelTensors ModelTensorsOf(ModelPart part, const ModelSpec& m) {
  if (part == ModelPart::kMlpUp) return {ModelPart::kMlp, 0};
  if (part == ModelPart::kMlpDown) return {ModelPart::kMlp, m.mlp_bias ? 2 : 1};
  return {part, 0};
}

bool CutByGrid(ModelPart part) {
  return part != ModelPart::kEmbedding && part != ModelPart::kPositions && part != ModelPart::kHead;
}

std::vector<TensorPiece> PiecesOnGrid(const RankGrid& grid, ModelPart part, const TensorLayout& layout, int64_t tensor) {
  const GridShare share = ShareOnGrid(grid, part, tensor);
  const bool matrix = layout.whole.size() > 1;
  const int64_t columns = matrix ? layout.whole[1] / grid.side : 1, column = matrix ? share.in * columns : 0;
  const int64_t rows = layout.whole[0] / grid.side;  // of the chunk
  const int64_t index = matrix ? share.row_part : share.vector_part, parts = matrix ? share.row_parts : share.vector_parts;
  const int64_t begin = index * rows / parts, end = (index + 1) * rows / parts;
  std::vector<TensorPiece> pieces;
  int64_t at = 0, row = 0;  // in the chunk, in the tensor
  for (const int64_t piece : layout.pieces.empty() ? std::vector<int64_t>{layout.whole[0]} : layout.pieces) {
    const int64_t own = piece / grid.side, first = std::max(begin, at), last = std::min(end, at + own);
    if (first < last)
      pieces.push_back({.row = row + share.out * own + first - at, .rows = last - first, .column = column, .columns = columns});
    at += own;
    row += piece;
  }
  return pieces;
}

namespace {

/// A convolution's, or a dense layer's.
std::vector<TensorLayout> VolumeLayout(const Cnn3dLayer& l) {
  const bool convolves = l.kind == Cnn3dKind::kConvolution;
  const int64_t inputs = convolves ? l.in_channels * l.kernel[0] * l.kernel[1] * l.kernel[2] : l.InputElements();
  const char* const matrix = convolves ? "convolution" : "classifier";
  const char* const bias = convolves ? "convolution bias" : "classifier bias";
  std::vector<TensorLayout> tensors = {
      {.name = matrix, .whole = {l.out_channels, inputs}, .start = convolves ? Start::kRectified : Start::kNormal}};
  if (l.bias) tensors.push_back({.name = bias, .whole = {l.out_channels}, .start = Start::kZero});
  return tensors;
}

}  // namespace

std::vector<TensorLayout> LayoutOf(ModelPart part, const ModelSpec& m, int64_t layer) {
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
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown: {
      tensors = LayoutOf(ModelPart::kMlp, m, layer);
      const auto down = tensors.begin() + ModelTensorsOf(ModelPart::kMlpDown, m).first;
      return part == ModelPart::kMlpUp ? std::vector(tensors.begin(), down) : std::vector(down, tensors.end());
    }
    case ModelPart::kRouter: return {{.name = "router", .whole = {m.experts, h}}};
    case ModelPart::kExperts: {
      const int64_t inner = m.expert_ffn_hidden;
      return {{.name = "experts up", .whole = {m.experts, 2 * inner, h}, .cut = 1, .pieces = {inner, inner}, .by_expert = true},
              {.name = "experts down", .whole = {m.experts, h, inner}, .cut = 2, .start = Start::kResidual, .by_expert = true}};
    }
    case ModelPart::kConvolution:
    case ModelPart::kClassifier: return VolumeLayout(m.cnn_layers[static_cast<size_t>(layer)]);
    default: return {};
  }
}

}  // namespace weft::planner::tasks

#include "runtime/model/shape.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/utils.h>

#include <cmath>
#include <string_view>

namespace weft::runtime {
namespace {

using planner::ModelSpec;
using Start = TensorLayout::Start;

/// SplitMix64's finaliser: neighbouring seeds give unrelated streams.
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t SeedOf(std::string_view name, int64_t layer, uint64_t seed) {
  uint64_t hash = Mixed(seed + 0x9e3779b97f4a7c15u);
  for (const char c : name) hash = Mixed(hash ^ static_cast<unsigned char>(c));
  return Mixed(hash ^ static_cast<uint64_t>(layer + 1));
}

}  // namespace

torch::Tensor ShareOf(planner::ModelPart part, const TensorLayout& layout, const torch::Tensor& all, const ModelShape& shape) {
  torch::Tensor whole = all;
  if (shape.grid.exists() && planner::CutByGrid(part)) {
    std::vector<torch::Tensor> pieces;
    for (const planner::TensorPiece& p : planner::PiecesOnGrid(shape.grid, part, layout, shape.tensor)) {
      const torch::Tensor rows = whole.narrow(0, p.row, p.rows);
      pieces.push_back(rows.dim() == 1 ? rows : rows.narrow(1, p.column, p.columns));
    }
    return torch::cat(pieces, 0);
  }
  if (layout.by_expert) whole = all.narrow(0, shape.expert * shape.local_experts(), shape.local_experts());
  const int64_t ranks = layout.by_expert ? shape.expert_tensors : shape.tensors;
  const int64_t index = layout.by_expert ? shape.expert_tensor : shape.tensor;
  if (layout.cut < 0 || ranks == 1) return whole;
  const std::vector<int64_t> pieces =
      layout.pieces.empty() ? std::vector<int64_t>{layout.whole[static_cast<size_t>(layout.cut)]} : layout.pieces;
  std::vector<torch::Tensor> shares;
  int64_t begin = 0;
  for (const int64_t piece : pieces) {
    shares.push_back(whole.narrow(layout.cut, begin + index * (piece / ranks), piece / ranks));
    begin += piece;
  }
  return torch::cat(shares, layout.cut);
}

std::vector<int64_t> ShareSizes(planner::ModelPart part, const TensorLayout& layout, const ModelShape& shape) {
  std::vector<int64_t> sizes = layout.whole;
  if (shape.grid.exists() && planner::CutByGrid(part)) {
    sizes[0] = 0;
    for (const planner::TensorPiece& p : planner::PiecesOnGrid(shape.grid, part, layout, shape.tensor)) {
      sizes[0] += p.rows;
      if (sizes.size() > 1) sizes[1] = p.columns;
    }
    return sizes;
  }
  if (layout.by_expert) sizes[0] = shape.local_experts();
  if (layout.cut >= 0) sizes[static_cast<size_t>(layout.cut)] /= layout.by_expert ? shape.expert_tensors : shape.tensors;
  return sizes;
}

torch::Tensor InitialValue(const TensorLayout& layout, const ModelSpec& model, int64_t layer, uint64_t seed,
                           torch::ScalarType type) {
  const auto options = torch::TensorOptions().dtype(torch::kFloat64);
  if (layout.start == Start::kZero) return torch::zeros(layout.whole, options.dtype(type));
  if (layout.start == Start::kOne) return torch::ones(layout.whole, options.dtype(type));
  double deviation = model.numerics.initializer_range;
  if (layout.start == Start::kRectified) deviation = std::sqrt(2.0 / static_cast<double>(layout.whole[1]));
  if (layout.start == Start::kResidual) deviation /= std::sqrt(2.0 * static_cast<double>(model.layers));
  at::Generator generator = at::detail::createCPUGenerator(SeedOf(layout.name, layer, seed));
  return torch::empty(layout.whole, options).normal_(0, deviation, generator).to(type);
}

}  // namespace weft::runtime

// The sizes of a model's parts on one rank, and the tensors that each part's parameters are. Reaches torch.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "planner/planner.h"

namespace weft::runtime {

/// What the parts of a rank compute with.
struct ModelShape {
  planner::ModelSpec model;
  torch::ScalarType type = torch::kFloat32;
  int64_t tensor = 0, tensors = 1;  ///< this rank among those that split matrices
  int64_t batch = 1, sequence = 1;  ///< of a micro-batch on this rank
  int64_t loss_tokens = 1;          ///< of the global batch: what the mean loss is over

  int64_t tokens() const { return batch * sequence; }
  int64_t query_width() const { return model.heads * model.head_dim / tensors; }
  int64_t key_width() const { return model.kv_heads * model.head_dim / tensors; }
  int64_t inner() const { return model.ffn_hidden / tensors; }
  int64_t vocab() const { return model.vocab / tensors; }
};

/// Which piece of a model's tensors a slice of a rank's share is: tensor ranks and slices cut alike.
struct SliceShare {
  int64_t index = 0, pieces = 1;
};
inline SliceShare ShareOfSlice(const ModelShape& shape, int64_t slice, int64_t slices) {
  return {shape.tensor * slices + slice, shape.tensors * slices};
}

/// What a slice computes with: as a tensor rank of so many more.
inline ModelShape ShapeOfSlice(const ModelShape& whole, int64_t slice, int64_t slices) {
  ModelShape shape = whole;
  const SliceShare share = ShareOfSlice(whole, slice, slices);
  shape.tensor = share.index;
  shape.tensors = share.pieces;
  return shape;
}

/// Where a tensor of a block comes from: the rank's share of a tensor of the whole model. A product's outputs may be several
/// matrices, one below the other (queries, keys, values; gate and up), each of which is cut.
struct TensorLayout {
  const char* name = "";
  std::vector<int64_t> whole;        ///< sizes of the model's tensor
  int64_t cut = -1;                  ///< dimension that tensor ranks share; -1: all have it whole
  std::vector<int64_t> pieces = {};  ///< sizes along `cut` that are cut one by one; empty: all of it
  enum class Start : uint8_t { kZero, kOne, kNormal, kResidual } start = Start::kNormal;
};

/// The tensors of a block, in the order in which they lie in its memory.
std::vector<TensorLayout> LayoutOf(planner::ModelPart part, const planner::ModelSpec& model);

/// A rank's share of a tensor of the whole model.
torch::Tensor ShareOf(const TensorLayout& layout, const torch::Tensor& whole, int64_t index, int64_t ranks);

/// Sizes of that share.
std::vector<int64_t> ShareSizes(const TensorLayout& layout, int64_t ranks);

/// What a tensor of the whole model is before the first step: it depends on seed, layer and name alone, never on how the model is
/// split. Normal with the model's initializer_range, residual projections smaller by √(2·layers). Source: Radford et al. 2019.
torch::Tensor InitialValue(const TensorLayout& layout, const planner::ModelSpec& model, int64_t layer, uint64_t seed,
                           torch::ScalarType type);

}  // namespace weft::runtime

// The sizes of a model's parts on one rank, and what each part's parameters begin with. Reaches torch.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "planner/planner.h"
#include "planner/tasks/program_state.h"

namespace weft::runtime {

/// What the parts of a rank compute with.
struct ModelShape {
  planner::ModelSpec model;
  torch::ScalarType type = torch::kFloat32;
  int64_t tensor = 0, tensors = 1;  ///< this rank among those that split matrices
  int64_t context = 0, contexts = 1;  ///< this rank among those that share the positions of a sequence
  planner::RankGrid grid = {};      ///< of the tensor ranks
  int64_t batch = 1, sequence = 1;  ///< of a micro-batch on this rank, before a grid cuts it
  int64_t expert = 0, expert_ranks = 1;              ///< this rank among those that share the experts …
  int64_t expert_tensor = 0, expert_tensors = 1;     ///< … and among those that share the matrices of each
  int64_t loss_tokens = 1;          ///< of the global batch: what the mean loss is over

  int64_t tokens() const { return batch * sequence; }
  /// Sequences that attention has here.
  int64_t own_batch() const { return batch / grid.batches(); }
  int64_t query_width() const { return model.heads * model.head_dim / tensors; }
  int64_t key_width() const { return model.kv_heads * model.head_dim / tensors; }
  int64_t inner() const { return model.ffn_hidden / tensors; }
  int64_t vocab() const { return model.vocab / tensors; }
  int64_t local_experts() const { return model.experts / expert_ranks; }
  int64_t expert_inner() const { return model.expert_ffn_hidden / expert_tensors; }
};

/// What a slice of the rank's share computes with, and has of the model's tensors: tensor ranks and slices cut alike.
inline ModelShape ShapeOfSlice(const ModelShape& whole, int64_t slice, int64_t slices) {
  ModelShape shape = whole;
  shape.tensor = whole.tensor * slices + slice;
  shape.tensors = whole.tensors * slices;
  return shape;
}

// What a part's parameters are is the planner's account, which checkpoints and resharding read as well.
using planner::LayoutOf;
using planner::TensorLayout;

/// A rank's share of a tensor of the whole model, which is one of the part's.
torch::Tensor ShareOf(planner::ModelPart part, const TensorLayout& layout, const torch::Tensor& whole, const ModelShape& shape);

/// Sizes of that share.
std::vector<int64_t> ShareSizes(planner::ModelPart part, const TensorLayout& layout, const ModelShape& shape);

/// What a tensor of the whole model is before the first step: it depends on seed, layer and name alone, never on how the model is
/// split. Normal with the model's initializer_range, residual projections smaller by √(2·layers); what a
/// rectifier follows √(2/inputs). Source: Radford et al. 2019; He et al. 2015, arXiv 1502.01852.
torch::Tensor InitialValue(const TensorLayout& layout, const planner::ModelSpec& model, int64_t layer, uint64_t seed,
                           torch::ScalarType type);

}  // namespace weft::runtime

// The computations of a program (planner::ModelPart): forward, data gradient and weight gradient of each part, written out, so
// that each can run when the list says and nothing is kept that it does not need. No autograd; that the two agree, a test shows
// by training the same model with it.
//
// What a forward pass keeps for its data gradient lies in a PartState; the data gradient leaves there what the weight gradient
// needs besides the part's input. Matrices' gradients are added by the weight gradient, all others by the data gradient.
#pragma once

#include <torch/types.h>

#include <span>
#include <vector>

#include "runtime/model/shape.h"

namespace weft::runtime {

using Tensors = std::vector<torch::Tensor>;

/// What one part of one micro-batch keeps.
struct PartState {
  Tensors kept;       ///< by the forward pass
  Tensors gradients;  ///< by the data gradient: of products' outputs, and inner inputs
};

/// The parameters of a block and their gradients, in the order of LayoutOf().
struct PartParameters {
  Tensors values;
  Tensors gradients;  ///< added to; empty in a forward pass
};

/// A micro-batch's tokens on this rank, sequence-major; of a 3D CNN its samples, the bytes of this rank's slab of each.
struct MicroBatchTokens {
  torch::Tensor inputs, targets;  ///< int64 [tokens]; of a 3D CNN uint8 [samples × bytes], int64 [samples]
  torch::Tensor positions;        ///< int64 [sequence]
};

/// All of one computation. Of a slice `shape` is ShapeOfSlice()'s; of the head the rank's, whose logits have all of its columns.
struct PartCall {
  const ModelShape& shape;
  planner::ModelPart part;
  std::span<const torch::Tensor> inputs;     ///< as planner/tasks/step_program.h has them
  const PartParameters& parameters;          ///< of kEmbedding: table, then positions where the model has them
  const MicroBatchTokens* tokens = nullptr;  ///< of kEmbedding, kLossSums, kLoss
  int64_t slice = 0, slices = 1;             ///< of the head, kProduct
  int64_t layer = -1;                        ///< of a 3D CNN
  int64_t step = 0;                          ///< of kAttentionBlock, kProduct: Instruction::tag
  planner::ValueShape output = {};           ///< of kProduct: the first output's
};

/// Outputs. `state`: where to keep what the data gradient needs; null: nothing is kept.
Tensors ForwardOf(const PartCall& call, PartState* state);

/// Gradients of the inputs. `state` holds afterwards what AddWeightGradient() needs.
Tensors DataGradientOf(const PartCall& call, PartState& state);

/// Adds the gradients of the part's matrices.
void AddWeightGradient(const PartCall& call, PartState& state);

}  // namespace weft::runtime

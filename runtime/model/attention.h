// The core of causal attention with grouped queries and, where the model has them, rotary positions; forward and backward. Of a
// whole sequence, or of what context ranks have of it.
#pragma once

#include "runtime/model/parts.h"

namespace weft::runtime {

/// q: [tokens × query width], kv: [tokens × heads of both] → [tokens × query width].
torch::Tensor AttentionForward(const ModelShape& shape, const torch::Tensor& q, const torch::Tensor& kv, PartState* state);

/// Gradients of q and kv.
Tensors AttentionBackward(const ModelShape& shape, const torch::Tensor& gradient, PartState& state);

/// Of kAttentionBlock, kAttentionGathered and kAttentionHeads (planner/tasks/step_program.h).
/// Source: arXiv 2310.01889; sums and backward pass, 2205.14135.
Tensors ContextAttentionForward(const PartCall& call);
Tensors ContextAttentionBackward(const PartCall& call);

/// kSpread and kCollect.
torch::Tensor SpreadHeads(const ModelShape& shape, const torch::Tensor& x);
torch::Tensor CollectHeads(const ModelShape& shape, const torch::Tensor& x);

}  // namespace weft::runtime

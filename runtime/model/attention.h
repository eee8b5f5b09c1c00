// The core of causal attention with grouped queries and, where the model has them, rotary positions; forward and backward.
#pragma once

#include "runtime/model/parts.h"

namespace weft::runtime {

/// q, k, v: [tokens × width] → [tokens × query width].
torch::Tensor AttentionForward(const ModelShape& shape, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               PartState* state);

/// Gradients of q, k, v.
Tensors AttentionBackward(const ModelShape& shape, const torch::Tensor& gradient, PartState& state);

}  // namespace weft::runtime

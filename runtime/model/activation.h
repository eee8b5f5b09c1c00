// What lies between products, and is the same however they are cut: activations, and how columns are heads.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "planner/planner.h"

namespace weft::runtime {

/// Inner columns of an MLP from those of its first product: twice as many of a gated one, gates first.
torch::Tensor Activated(const planner::ModelSpec& model, const torch::Tensor& up);
/// The gradient of `up`.
torch::Tensor ActivationGradient(const planner::ModelSpec& model, const torch::Tensor& gradient, const torch::Tensor& up);

/// Queries, the first `queries` columns, and of each head of `width` its keys and its values; from queries, keys, values.
std::vector<torch::Tensor> SplitHeads(const torch::Tensor& all, int64_t queries, int64_t width);
/// And back.
torch::Tensor JoinedHeads(const torch::Tensor& queries, const torch::Tensor& kv, int64_t width);

}  // namespace weft::runtime

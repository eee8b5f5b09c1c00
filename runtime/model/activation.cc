#include "runtime/model/activation.h"

#include <torch/utils.h>

namespace weft::runtime {
namespace {

c10::string_view GeluKind(const planner::ModelSpec& m) {
  return m.numerics.activation == planner::Activation::kGelu ? "none" : "tanh";
}

}  // namespace

torch::Tensor Activated(const planner::ModelSpec& m, const torch::Tensor& up) {
  if (!m.gated_mlp) return at::gelu(up, GeluKind(m));
  const int64_t inner = up.size(1) / 2;
  return at::silu(up.narrow(1, 0, inner)).mul_(up.narrow(1, inner, inner));
}

torch::Tensor ActivationGradient(const planner::ModelSpec& m, const torch::Tensor& gradient, const torch::Tensor& up) {
  if (!m.gated_mlp) return at::gelu_backward(gradient, up, GeluKind(m));
  const int64_t inner = up.size(1) / 2;
  const torch::Tensor gate = up.narrow(1, 0, inner), linear = up.narrow(1, inner, inner);
  return torch::cat({at::silu_backward(gradient * linear, gate), gradient * at::silu(gate)}, 1);
}

std::vector<torch::Tensor> SplitHeads(const torch::Tensor& all, int64_t queries, int64_t width) {
  const int64_t rest = all.size(1) - queries;
  const torch::Tensor kv =
      all.narrow(1, queries, rest).view({all.size(0), 2, -1, width}).transpose(1, 2).reshape({all.size(0), rest});
  return {all.narrow(1, 0, queries).contiguous(), kv};
}

torch::Tensor JoinedHeads(const torch::Tensor& queries, const torch::Tensor& kv, int64_t width) {
  const torch::Tensor apart = kv.view({kv.size(0), -1, 2, width}).transpose(1, 2).reshape(kv.sizes());
  return torch::cat({queries, apart}, 1);
}

}  // namespace weft::runtime

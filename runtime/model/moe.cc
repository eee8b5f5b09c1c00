#include "runtime/model/moe.h"

#include <torch/utils.h>

namespace weft::runtime {
namespace {

/// Where the choices of a group's tokens go; a choice that found its expert full is in none of the lists.
struct Routing {
  torch::Tensor probabilities;  ///< [G × E]
  torch::Tensor chosen;         ///< int64 [G × K], best first
  torch::Tensor token, choice;  ///< int64 [kept]
  torch::Tensor row;            ///< int64 [kept]: of the E·C
};

/// Depends on the scores alone, so that it need not be kept.
Routing Route(const ModelShape& s, const torch::Tensor& scores) {
  const int64_t tokens = scores.size(0), experts = s.model.experts, choices = s.model.experts_per_token;
  const int64_t capacity = tokens * choices / experts;
  Routing r;
  r.probabilities = torch::softmax(scores, 1);
  r.chosen = std::get<1>(torch::topk(r.probabilities, choices, 1));
  const auto chosen = r.chosen.accessor<int64_t, 2>();
  std::vector<int64_t> taken(static_cast<size_t>(experts)), token, choice, row;
  for (int64_t k = 0; k < choices; ++k) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t expert = chosen[t][k], place = taken[static_cast<size_t>(expert)]++;
      if (place >= capacity) continue;
      token.push_back(t), choice.push_back(k), row.push_back(expert * capacity + place);
    }
  }
  r.token = torch::tensor(token, torch::kInt64);
  r.choice = torch::tensor(choice, torch::kInt64);
  r.row = torch::tensor(row, torch::kInt64);
  return r;
}

/// Weights of the chosen experts, which sum to one: [G × K].
torch::Tensor Weights(const Routing& r) {
  const torch::Tensor best = r.probabilities.gather(1, r.chosen);
  return best / best.sum(1, true);
}

/// Of the kept choices, [kept × 1].
torch::Tensor OfChoices(const Routing& r, const torch::Tensor& weights) { return weights.index({r.token, r.choice}).unsqueeze(1); }

/// [sources × experts here × C × h] ↔ [experts here × sources · C × h].
torch::Tensor ByExpert(const ModelShape& s, const torch::Tensor& rows) {
  const int64_t here = s.local_experts(), sources = s.expert_ranks * s.expert_tensors, width = rows.size(1);
  return rows.view({sources, here, -1, width}).transpose(0, 1).reshape({here, -1, width});
}

torch::Tensor BySource(const ModelShape& s, const torch::Tensor& experts) {
  const int64_t here = s.local_experts(), sources = s.expert_ranks * s.expert_tensors, width = experts.size(2);
  return experts.view({here, sources, -1, width}).transpose(0, 1).reshape({-1, width});
}

}  // namespace

torch::Tensor DispatchForward(const PartCall& c, PartState* state) {
  const torch::Tensor &n = c.inputs[0], &scores = c.inputs[1];
  const Routing r = Route(c.shape, scores);
  const int64_t capacity = n.size(0) * c.shape.model.experts_per_token / c.shape.model.experts;
  if (state != nullptr) state->kept = {r.token, r.row};
  return torch::zeros({c.shape.model.experts * capacity, n.size(1)}, n.options()).index_copy_(0, r.row, n.index_select(0, r.token));
}

torch::Tensor DispatchBackward(const PartCall& c, PartState& state) {
  const torch::Tensor& gradient = c.inputs[0];
  const torch::Tensor token = state.kept[0], row = state.kept[1];
  state = {};
  const int64_t tokens = gradient.size(0) / c.shape.model.experts_per_token;
  return torch::zeros({tokens, gradient.size(1)}, gradient.options()).index_add_(0, token, gradient.index_select(0, row));
}

torch::Tensor ExpertsForward(const PartCall& c, PartState* state) {
  const ModelShape& s = c.shape;
  const Tensors& p = c.parameters.values;
  const torch::Tensor up = torch::bmm(ByExpert(s, c.inputs[0]), p[0].transpose(1, 2));
  const torch::Tensor active = at::silu(up.narrow(2, 0, s.expert_inner())).mul_(up.narrow(2, s.expert_inner(), s.expert_inner()));
  if (state != nullptr) state->kept = {up, active};
  return BySource(s, torch::bmm(active, p[1].transpose(1, 2)));
}

torch::Tensor ExpertsBackward(const PartCall& c, PartState& state) {
  const ModelShape& s = c.shape;
  const Tensors& p = c.parameters.values;
  const torch::Tensor gradient = ByExpert(s, c.inputs[0]), up = state.kept[0];
  const torch::Tensor of_active = torch::bmm(gradient, p[1]);
  const torch::Tensor gate = up.narrow(2, 0, s.expert_inner()), linear = up.narrow(2, s.expert_inner(), s.expert_inner());
  const torch::Tensor of_up = torch::cat({at::silu_backward(of_active * linear, gate), of_active * at::silu(gate)}, 2);
  state = {.kept = {state.kept[1]}, .gradients = {of_up, gradient}};
  return BySource(s, torch::bmm(of_up, p[0]));
}

void AddExpertsGradient(const PartCall& c, PartState& state) {
  const Tensors& g = c.parameters.gradients;
  g[0].baddbmm_(state.gradients[0].transpose(1, 2), ByExpert(c.shape, c.inputs[0]));
  g[1].baddbmm_(state.gradients[1].transpose(1, 2), state.kept[0]);
}

torch::Tensor CombineForward(const PartCall& c, PartState* state) {
  const torch::Tensor &rows = c.inputs[0], &scores = c.inputs[1];
  const Routing r = Route(c.shape, scores);
  if (state != nullptr) state->kept = {rows, scores};
  const torch::Tensor weighted = rows.index_select(0, r.row).mul_(OfChoices(r, Weights(r)));
  return torch::zeros({scores.size(0), rows.size(1)}, rows.options()).index_add_(0, r.token, weighted);
}

Tensors CombineBackward(const PartCall& c, PartState& state) {
  const ModelShape& s = c.shape;
  const torch::Tensor rows = state.kept[0], scores = state.kept[1];
  state = {};
  const Routing r = Route(s, scores);
  const torch::Tensor weights = Weights(r), of_tokens = c.inputs[0].index_select(0, r.token);
  const torch::Tensor of_kept = rows.index_select(0, r.row).mul_(of_tokens).sum(1);
  const torch::Tensor of_rows = torch::zeros_like(rows).index_copy_(0, r.row, of_tokens.mul_(OfChoices(r, weights)));
  const torch::Tensor of_weights = torch::zeros_like(weights).index_put_({r.token, r.choice}, of_kept);
  // w_k = p_k / Σ p over the chosen.
  const torch::Tensor sum = r.probabilities.gather(1, r.chosen).sum(1, true);
  const torch::Tensor of_best = (of_weights - (of_weights * weights).sum(1, true)) / sum;
  torch::Tensor of_probabilities = torch::zeros_like(scores).scatter_(1, r.chosen, of_best);
  // E · f_e of the balance loss, as a share of all tokens' mean; f_e is constant.
  const torch::Tensor count = torch::bincount(r.chosen.reshape({-1}), {}, s.model.experts).to(scores.scalar_type());
  const auto experts = static_cast<double>(s.model.experts), tokens = static_cast<double>(scores.size(0));
  of_probabilities.add_(count, s.model.numerics.router.aux_loss * experts / tokens / static_cast<double>(s.loss_tokens));
  return {of_rows, at::_softmax_backward_data(of_probabilities, r.probabilities, 1, scores.scalar_type())};
}

}  // namespace weft::runtime

#include "runtime/model/attention.h"

#include <torch/utils.h>

#include <cmath>
#include <limits>

namespace weft::runtime {
namespace {

/// Heads of one key/value head lie together: [batch · key heads × queries per key · sequence × head width].
torch::Tensor ByKeyHead(const ModelShape& s, const torch::Tensor& rows, int64_t per_key) {
  const int64_t keys = s.model.kv_heads / s.tensors, d = s.model.head_dim;
  return rows.view({s.sequence, s.batch, keys, per_key, d})
      .permute({1, 2, 3, 0, 4})
      .reshape({s.batch * keys, per_key * s.sequence, d});
}

torch::Tensor ByToken(const ModelShape& s, const torch::Tensor& heads, int64_t per_key) {
  const int64_t keys = s.model.kv_heads / s.tensors, d = s.model.head_dim;
  return heads.view({s.batch, keys, per_key, s.sequence, d}).permute({3, 0, 1, 2, 4}).reshape({s.tokens(), keys * per_key * d});
}

/// Cosines and sines of positions, [sequence × head width].
std::pair<torch::Tensor, torch::Tensor> Rotation(const ModelShape& s) {
  const int64_t d = s.model.head_dim;
  const auto options = torch::TensorOptions().dtype(torch::kFloat64);
  const torch::Tensor frequency =
      torch::pow(s.model.numerics.rope.theta, -torch::arange(0, d, 2, options) / static_cast<double>(d));
  const torch::Tensor half = torch::outer(torch::arange(s.sequence, options), frequency);
  const torch::Tensor angle = torch::cat({half, half}, 1);
  return {torch::cos(angle).to(s.type), torch::sin(angle).to(s.type)};
}

/// Turns pairs that lie half a head apart; `back`: the other way round, which is also the gradient's way.
torch::Tensor Rotated(const ModelShape& s, const torch::Tensor& heads, bool back) {
  if (s.model.learned_positions) return heads;
  const int64_t d = s.model.head_dim;
  const auto [cosine, sine] = Rotation(s);
  const torch::Tensor x = heads.view({-1, s.sequence, d});
  const torch::Tensor first = x.narrow(2, 0, d / 2), second = x.narrow(2, d / 2, d / 2);
  const torch::Tensor turned = back ? torch::cat({second, -first}, 2) : torch::cat({-second, first}, 2);
  return (x * cosine + turned * sine).view(heads.sizes());
}

double Scale(const ModelShape& s) { return 1 / std::sqrt(static_cast<double>(s.model.head_dim)); }

}  // namespace

torch::Tensor AttentionForward(const ModelShape& s, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               PartState* state) {
  const int64_t per_key = s.model.heads / s.model.kv_heads;
  const torch::Tensor queries = Rotated(s, ByKeyHead(s, q, per_key), false), keys = Rotated(s, ByKeyHead(s, k, 1), false);
  const torch::Tensor values = ByKeyHead(s, v, 1);
  const torch::Tensor mask = torch::full({s.sequence, s.sequence}, -std::numeric_limits<double>::infinity(), q.options()).triu(1);
  torch::Tensor scores = torch::bmm(queries, keys.transpose(1, 2)).mul_(Scale(s));
  scores.view({-1, per_key, s.sequence, s.sequence}).add_(mask);
  const torch::Tensor shares = torch::softmax(scores, -1);
  if (state != nullptr) state->kept = {queries, keys, values, shares};
  return ByToken(s, torch::bmm(shares, values), per_key);
}

Tensors AttentionBackward(const ModelShape& s, const torch::Tensor& gradient, PartState& state) {
  const int64_t per_key = s.model.heads / s.model.kv_heads;
  const torch::Tensor &queries = state.kept[0], &keys = state.kept[1], &values = state.kept[2], &shares = state.kept[3];
  const torch::Tensor of_out = ByKeyHead(s, gradient, per_key);
  const torch::Tensor of_values = torch::bmm(shares.transpose(1, 2), of_out);
  const torch::Tensor of_shares = torch::bmm(of_out, values.transpose(1, 2));
  const torch::Tensor of_scores = at::_softmax_backward_data(of_shares, shares, -1, shares.scalar_type()).mul_(Scale(s));
  const torch::Tensor of_queries = Rotated(s, torch::bmm(of_scores, keys), true);
  const torch::Tensor of_keys = Rotated(s, torch::bmm(of_scores.transpose(1, 2), queries), true);
  Tensors out = {ByToken(s, of_queries, per_key), ByToken(s, of_keys, 1), ByToken(s, of_values, 1)};
  state = {};
  return out;
}

}  // namespace weft::runtime

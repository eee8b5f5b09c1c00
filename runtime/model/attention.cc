#include "runtime/model/attention.h"

#include <torch/utils.h>

#include <cmath>
#include <limits>

namespace weft::runtime {
namespace {

using planner::ModelPart;

/// Heads of one key/value head lie together: [rows × heads · width] → [batch · key heads × queries per key · positions × width].
torch::Tensor ByKeyHead(const ModelShape& s, const torch::Tensor& rows, int64_t per_key, int64_t width) {
  const int64_t positions = rows.size(0) / s.own_batch(), keys = rows.size(1) / (per_key * width);
  return rows.view({positions, s.own_batch(), keys, per_key, width})
      .permute({1, 2, 3, 0, 4})
      .reshape({s.own_batch() * keys, per_key * positions, width});
}

torch::Tensor ByToken(const ModelShape& s, const torch::Tensor& heads, int64_t per_key) {
  const int64_t keys = heads.size(0) / s.own_batch(), positions = heads.size(1) / per_key, width = heads.size(2);
  return heads.view({s.own_batch(), keys, per_key, positions, width})
      .permute({3, 0, 1, 2, 4})
      .reshape({positions * s.own_batch(), keys * per_key * width});
}

/// Keys, or values, of rows that have both for each head.
torch::Tensor OneOf(const ModelShape& s, const torch::Tensor& kv, int64_t which) {
  const int64_t d = s.model.head_dim;
  return kv.view({kv.size(0), -1, 2, d}).select(2, which).reshape({kv.size(0), kv.size(1) / 2});
}

torch::Tensor Both(const ModelShape& s, const torch::Tensor& k, const torch::Tensor& v) {
  const int64_t d = s.model.head_dim;
  return torch::stack({k.view({k.size(0), -1, d}), v.view({v.size(0), -1, d})}, 2).view({k.size(0), 2 * k.size(1)});
}

/// Cosines and sines of positions, [positions × half a head].
std::pair<torch::Tensor, torch::Tensor> Rotation(const ModelShape& s, const torch::Tensor& positions) {
  const int64_t d = s.model.head_dim;
  const torch::Tensor frequency = torch::pow(s.model.numerics.rope.theta,
                                             -torch::arange(0, d, 2, torch::kFloat64) / static_cast<double>(d));
  const torch::Tensor angle = torch::outer(positions.to(torch::kFloat64), frequency);
  return {torch::cos(angle).to(s.type), torch::sin(angle).to(s.type)};
}

/// Turns pairs that lie half a head apart; `back`: the other way round, which is also the gradient's way.
torch::Tensor Rotated(const ModelShape& s, const torch::Tensor& heads, const torch::Tensor& positions, bool back) {
  if (s.model.learned_positions) return heads;
  const int64_t d = s.model.head_dim;
  const auto [cosine, sine] = Rotation(s, positions);
  const torch::Tensor x = heads.view({-1, positions.size(0), d});
  const torch::Tensor first = x.narrow(2, 0, d / 2), second = x.narrow(2, d / 2, d / 2);
  torch::Tensor turned = torch::empty_like(x);
  const double sign = back ? 1 : -1;
  torch::Tensor to_first = turned.narrow(2, 0, d / 2), to_second = turned.narrow(2, d / 2, d / 2);
  torch::mul_out(to_first, first, cosine).addcmul_(second, sine, sign);
  torch::mul_out(to_second, second, cosine).addcmul_(first, sine, -sign);
  return turned.view(heads.sizes());
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Scale(const ModelShape& s) { return 1 / std::sqrt(static_cast<double>(s.model.head_dim)); }
int64_t QueriesPerKey(const ModelShape& s) { return s.model.heads / s.model.kv_heads; }

/// What scores are made of; rows and columns are at these positions.
struct Operands {
  torch::Tensor queries, keys, values;  ///< by key head, rotated
  torch::Tensor rows, columns;

  torch::Tensor Scores(const ModelShape& s) const {
    const torch::Tensor later = columns.unsqueeze(0).gt(rows.unsqueeze(1));
    torch::Tensor scores = torch::bmm(queries, keys.transpose(1, 2)).mul_(Scale(s));
    scores.view({-1, QueriesPerKey(s), rows.size(0), columns.size(0)}).masked_fill_(later, -kInfinity);
    return scores;
  }
};

Operands OperandsOf(const ModelShape& s, const torch::Tensor& q, const torch::Tensor& kv, torch::Tensor rows,
                    torch::Tensor columns) {
  const int64_t d = s.model.head_dim;
  Operands o{.rows = std::move(rows), .columns = std::move(columns)};
  o.queries = Rotated(s, ByKeyHead(s, q, QueriesPerKey(s), d), o.rows, false);
  o.keys = Rotated(s, ByKeyHead(s, OneOf(s, kv, 0), 1, d), o.columns, false);
  o.values = ByKeyHead(s, OneOf(s, kv, 1), 1, d);
  return o;
}

Tensors GradientsOf(const ModelShape& s, const Operands& o, const torch::Tensor& of_scores, const torch::Tensor& of_values) {
  const torch::Tensor of_queries = Rotated(s, torch::bmm(of_scores, o.keys), o.rows, true);
  const torch::Tensor of_keys = Rotated(s, torch::bmm(of_scores.transpose(1, 2), o.queries), o.columns, true);
  return {ByToken(s, of_queries, QueriesPerKey(s)), Both(s, ByToken(s, of_keys, 1), ByToken(s, of_values, 1))};
}

torch::Tensor PositionsOf(const ModelShape& s, int64_t context) {
  return torch::tensor(planner::PositionsOf(s.sequence * s.contexts, s.contexts, context), torch::kInt64);
}

torch::Tensor AllPositions(const ModelShape& s) {
  Tensors all;
  for (int64_t context = 0; context < s.contexts; ++context) all.push_back(PositionsOf(s, context));
  return torch::cat(all);
}

/// Of the part, whose q and kv these are.
Operands OperandsOf(const PartCall& c, const torch::Tensor& q, const torch::Tensor& kv) {
  const ModelShape& s = c.shape;
  if (c.part == ModelPart::kAttentionBlock)
    return OperandsOf(s, q, kv, PositionsOf(s, s.context), PositionsOf(s, (s.context - c.step + s.contexts) % s.contexts));
  const torch::Tensor all = AllPositions(s);
  return OperandsOf(s, q, kv, c.part == ModelPart::kAttentionHeads ? all : PositionsOf(s, s.context), all);
}

}  // namespace

torch::Tensor AttentionForward(const ModelShape& s, const torch::Tensor& q, const torch::Tensor& kv, PartState* state) {
  const torch::Tensor positions = torch::arange(s.sequence);
  const Operands o = OperandsOf(s, q, kv, positions, positions);
  const torch::Tensor shares = torch::softmax(o.Scores(s), -1);
  if (state != nullptr) state->kept = {o.queries, o.keys, o.values, shares};
  return ByToken(s, torch::bmm(shares, o.values), QueriesPerKey(s));
}

Tensors AttentionBackward(const ModelShape& s, const torch::Tensor& gradient, PartState& state) {
  const torch::Tensor positions = torch::arange(s.sequence);
  const Tensors& kept = state.kept;
  const Operands o{.queries = kept[0], .keys = kept[1], .values = kept[2], .rows = positions, .columns = positions};
  const torch::Tensor shares = state.kept[3];
  state = {};
  const torch::Tensor of_out = ByKeyHead(s, gradient, QueriesPerKey(s), s.model.head_dim);
  const torch::Tensor of_shares = torch::bmm(of_out, o.values.transpose(1, 2));
  const torch::Tensor of_scores = at::_softmax_backward_data(of_shares, shares, -1, shares.scalar_type()).mul_(Scale(s));
  return GradientsOf(s, o, of_scores, torch::bmm(shares.transpose(1, 2), of_out));
}

Tensors ContextAttentionForward(const PartCall& c) {
  const ModelShape& s = c.shape;
  const int64_t per_key = QueriesPerKey(s);
  const Operands o = OperandsOf(c, c.inputs[0], c.inputs[1]);
  const torch::Tensor scores = o.Scores(s);
  // A block may have no key that a row sees; the rank's own block, which comes first, has one for each.
  torch::Tensor sums = torch::logsumexp(scores, -1, /*keepdim=*/true), before;
  if (c.inputs.size() > 2) {
    before = ByKeyHead(s, c.inputs[3], per_key, 1);
    sums = torch::logaddexp(before, sums);
  }
  torch::Tensor out = torch::bmm((scores - sums).exp_(), o.values);
  if (before.defined()) out.addcmul_(ByKeyHead(s, c.inputs[2], per_key, s.model.head_dim), (before - sums).exp_());
  return {ByToken(s, out, per_key), ByToken(s, sums, per_key)};
}

Tensors ContextAttentionBackward(const PartCall& c) {
  const ModelShape& s = c.shape;
  const int64_t per_key = QueriesPerKey(s), d = s.model.head_dim;
  const Operands o = OperandsOf(c, c.inputs[1], c.inputs[2]);
  const torch::Tensor of_out = ByKeyHead(s, c.inputs[0], per_key, d), out = ByKeyHead(s, c.inputs[3], per_key, d);
  const torch::Tensor shares = (o.Scores(s) - ByKeyHead(s, c.inputs[4], per_key, 1)).exp_();
  const torch::Tensor of_shares = torch::bmm(of_out, o.values.transpose(1, 2));
  const torch::Tensor of_scores = (of_shares - (of_out * out).sum(-1, true)).mul_(shares).mul_(Scale(s));
  Tensors gradients = GradientsOf(s, o, of_scores, torch::bmm(shares.transpose(1, 2), of_out));
  for (size_t i = 5; i < c.inputs.size(); ++i) gradients[i - 5] = gradients[i - 5] + c.inputs[i];
  return gradients;
}

torch::Tensor SpreadHeads(const ModelShape& s, const torch::Tensor& x) {
  return x.view({x.size(0), s.contexts, -1}).transpose(0, 1).reshape({x.size(0) * s.contexts, -1});
}

torch::Tensor CollectHeads(const ModelShape& s, const torch::Tensor& x) {
  return x.view({s.contexts, -1, x.size(1)}).transpose(0, 1).reshape({-1, s.contexts * x.size(1)});
}

}  // namespace weft::runtime

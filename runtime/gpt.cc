#include "runtime/gpt.h"

#include <cmath>
#include <limits>

#include "runtime/model/shape.h"

namespace weft::runtime {
namespace {

namespace nn = torch::nn;
using planner::ModelPart;

nn::Linear Matrix(int64_t in, int64_t out, bool bias) { return nn::Linear(nn::LinearOptions(in, out).bias(bias)); }

/// Pairs lie half a head apart. x: [batch × heads × sequence × head width].
torch::Tensor Rotate(const torch::Tensor& x, const std::vector<torch::Tensor>& rotation) {
  if (rotation.empty()) return x;
  const std::vector<torch::Tensor> halves = x.chunk(2, -1);
  return x * rotation[0] + torch::cat({-halves[1], halves[0]}, -1) * rotation[1];
}

std::vector<torch::Tensor> RotationOf(const planner::ModelSpec& model, int64_t sequence, torch::ScalarType type) {
  if (model.learned_positions) return {};
  const auto exact = torch::TensorOptions().dtype(torch::kFloat64);
  const torch::Tensor inverse =
      1.0 / torch::pow(model.numerics.rope.theta, torch::arange(0, model.head_dim, 2, exact) / model.head_dim);
  const torch::Tensor angle = torch::outer(torch::arange(sequence, exact), inverse).repeat({1, 2});
  return {torch::cos(angle).to(type), torch::sin(angle).to(type)};
}

}  // namespace

NormImpl::NormImpl(const planner::ModelSpec& model) : epsilon_(model.numerics.norm_epsilon) {
  weight = register_parameter("weight", torch::ones({model.hidden}));
  if (!model.rms_norm) bias = register_parameter("bias", torch::zeros({model.hidden}));
}

torch::Tensor NormImpl::forward(const torch::Tensor& x) {
  if (bias.defined()) return torch::layer_norm(x, {x.size(-1)}, weight, bias, epsilon_);
  return x * torch::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + epsilon_) * weight;
}

ExpertsImpl::ExpertsImpl(const planner::ModelSpec& model) : model_(model) {
  router = register_parameter("router", torch::zeros({model.experts, model.hidden}));
  up = register_parameter("up", torch::zeros({model.experts, 2 * model.expert_ffn_hidden, model.hidden}));
  down = register_parameter("down", torch::zeros({model.experts, model.hidden, model.expert_ffn_hidden}));
}

torch::Tensor ExpertsImpl::forward(const torch::Tensor& x, const CapacityGroups& groups, torch::Tensor* balance) {
  torch::Tensor out = torch::zeros_like(x);
  for (const std::vector<int64_t>& group : groups) {
    const torch::Tensor rows = torch::tensor(group, torch::kInt64);
    torch::Tensor own = torch::zeros({}, x.options());
    out = out.index_copy(0, rows, One(x.index_select(0, rows), &own));
    *balance = *balance + own * (static_cast<double>(group.size()) / static_cast<double>(x.size(0)));
  }
  return out;
}

torch::Tensor ExpertsImpl::One(const torch::Tensor& x, torch::Tensor* balance) {
  const int64_t experts = model_.experts, choices = model_.experts_per_token;
  const int64_t capacity = x.size(0) * choices / experts;
  const torch::Tensor shares = torch::softmax(torch::linear(x, router), -1);
  const auto [best, chosen] = torch::topk(shares, choices, -1);
  const torch::Tensor weights = best / best.sum(-1, /*keepdim=*/true);
  // [choices × tokens × experts], and how many came before each, all first choices first.
  const torch::Tensor asked = torch::one_hot(chosen, experts).transpose(0, 1);
  const torch::Tensor before = asked.reshape({-1, experts}).cumsum(0).view_as(asked) - asked;
  const torch::Tensor taken = (asked * before.lt(capacity)).to(x.scalar_type());
  const torch::Tensor share_of = (taken * weights.t().unsqueeze(-1)).sum(0);  // [tokens × experts]
  torch::Tensor out = torch::zeros_like(x);
  for (int64_t e = 0; e < experts; ++e) {
    const torch::Tensor tokens = taken.sum(0).select(1, e).nonzero().squeeze(1);
    const std::vector<torch::Tensor> halves = torch::linear(x.index_select(0, tokens), up[e]).chunk(2, -1);
    const torch::Tensor made = torch::linear(torch::silu(halves[0]) * halves[1], down[e]);
    out = out.index_add(0, tokens, made * share_of.select(1, e).index_select(0, tokens).unsqueeze(-1));
  }
  const torch::Tensor asked_for = asked.sum(0).to(x.scalar_type()).mean(0);
  *balance = (asked_for * shares.mean(0)).sum() * static_cast<double>(experts) * model_.numerics.router.aux_loss;
  return out;
}

BlockImpl::BlockImpl(const planner::ModelSpec& model, bool moe)
    : model_(model),
      ln_1_(register_module("ln_1", Norm(model))),
      ln_2_(nullptr),
      qkv_(register_module("qkv", Matrix(model.hidden, (model.heads + 2 * model.kv_heads) * model.head_dim, model.attention_bias))),
      attention_proj_(register_module("attention_proj", Matrix(model.heads * model.head_dim, model.hidden,
                                                               model.attention_bias && model.attention_output_bias))),
      up_(nullptr),
      mlp_proj_(nullptr),
      experts_(nullptr) {
  // Registered in the order of the forward pass, so that gradients become ready in the reverse of it.
  ln_2_ = register_module("ln_2", Norm(model));
  if (moe) {
    experts_ = register_module("experts", Experts(model));
    return;
  }
  up_ = register_module("up", Matrix(model.hidden, (model.gated_mlp ? 2 : 1) * model.ffn_hidden, model.mlp_bias));
  mlp_proj_ = register_module("mlp_proj", Matrix(model.ffn_hidden, model.hidden, model.mlp_bias));
}

torch::Tensor BlockImpl::Attention(const torch::Tensor& x, const torch::Tensor& mask, const std::vector<torch::Tensor>& rotation) {
  const int64_t batch = x.size(0), sequence = x.size(1), head = model_.head_dim, heads = model_.heads, keys = model_.kv_heads;
  const std::vector<torch::Tensor> qkv = qkv_(x).split_with_sizes({heads * head, keys * head, keys * head}, -1);
  const auto by_head = [&](const torch::Tensor& rows, int64_t count) {
    return rows.view({batch, sequence, count, head}).transpose(1, 2);
  };
  const torch::Tensor q = Rotate(by_head(qkv[0], heads), rotation);
  torch::Tensor k = Rotate(by_head(qkv[1], keys), rotation), v = by_head(qkv[2], keys);
  if (keys < heads) {
    k = k.repeat_interleave(heads / keys, 1);
    v = v.repeat_interleave(heads / keys, 1);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(head));
  const torch::Tensor scores = torch::matmul(q, k.transpose(-2, -1)) * scale + mask;
  const torch::Tensor mixed = torch::matmul(torch::softmax(scores, -1), v);
  return attention_proj_(mixed.transpose(1, 2).reshape({batch, sequence, heads * head}));
}

torch::Tensor BlockImpl::Mlp(const torch::Tensor& x) {
  const torch::Tensor up = up_(x);
  if (!model_.gated_mlp)
    return mlp_proj_(torch::gelu(up, model_.numerics.activation == planner::Activation::kGelu ? "none" : "tanh"));
  const std::vector<torch::Tensor> halves = up.chunk(2, -1);
  return mlp_proj_(torch::silu(halves[0]) * halves[1]);
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x, const torch::Tensor& mask, const std::vector<torch::Tensor>& rotation,
                                 const CapacityGroups& groups, torch::Tensor* balance) {
  const torch::Tensor attended = x + Attention(ln_1_(x), mask, rotation);
  const torch::Tensor n = ln_2_(attended);
  if (!experts_) return attended + Mlp(n);
  return attended + experts_(n.view({-1, n.size(-1)}), groups, balance).view_as(n);
}

GptImpl::GptImpl(const planner::ModelSpec& model, CapacityGroups groups)
    : model_(model),
      groups_(std::move(groups)),
      wte_(register_module("wte", nn::Embedding(model.vocab, model.hidden))),
      wpe_(nullptr),
      ln_f_(nullptr),
      head_(nullptr) {
  if (model.learned_positions) wpe_ = register_module("wpe", nn::Embedding(model.max_positions, model.hidden));
  for (int64_t i = 0; i < model.layers; ++i) {
    std::string name = std::to_string(i);  // not "h" + ...: GCC 12 warns wrongly about it (bug 105651)
    blocks_.push_back(register_module(name.insert(0, 1, 'h'), Block(model, model.IsMoeLayer(i))));
  }
  ln_f_ = register_module("ln_f", Norm(model));
  if (!model.tied_embeddings) head_ = register_module("head", Matrix(model.hidden, model.vocab, false));
}

torch::Tensor GptImpl::Loss(const torch::Tensor& inputs, const torch::Tensor& targets) {
  const int64_t sequence = inputs.size(1);
  const torch::ScalarType type = wte_->weight.scalar_type();
  const torch::Tensor mask =
      torch::full({sequence, sequence}, -std::numeric_limits<double>::infinity(), wte_->weight.options()).triu(1).detach();
  const std::vector<torch::Tensor> rotation = RotationOf(model_, sequence, type);
  torch::Tensor x = wte_(inputs);
  if (wpe_) x = x + wpe_(torch::arange(sequence));
  balance_ = torch::zeros({}, x.options());
  for (Block& block : blocks_) x = block(x, mask, rotation, groups_, &balance_);
  const torch::Tensor logits = torch::linear(ln_f_(x), head_ ? head_->weight : wte_->weight);
  return torch::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape(-1));
}

void InitialiseGpt(GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const auto set = [&](ModelPart part, int64_t layer, const std::vector<torch::Tensor>& tensors) {
    const std::vector<TensorLayout> layouts = LayoutOf(part, model, layer);
    for (size_t i = 0; i < layouts.size(); ++i)
      tensors[i].copy_(InitialValue(layouts[i], model, layer, seed, tensors[i].scalar_type()));
  };
  set(ModelPart::kEmbedding, -1, {gpt.wte_->weight});
  if (gpt.wpe_) set(ModelPart::kPositions, -1, {gpt.wpe_->weight});
  for (size_t i = 0; i < gpt.blocks_.size(); ++i) {
    BlockImpl& b = *gpt.blocks_[i];
    const auto layer = static_cast<int64_t>(i);
    set(ModelPart::kAttentionNorm, layer, {b.ln_1_->weight, b.ln_1_->bias});
    set(ModelPart::kQkv, layer, {b.qkv_->weight, b.qkv_->bias});
    set(ModelPart::kAttentionOut, layer, {b.attention_proj_->weight, b.attention_proj_->bias});
    set(ModelPart::kMlpNorm, layer, {b.ln_2_->weight, b.ln_2_->bias});
    if (b.experts_) {
      set(ModelPart::kRouter, layer, {b.experts_->router});
      set(ModelPart::kExperts, layer, {b.experts_->up, b.experts_->down});
    } else if (model.mlp_bias) {
      set(ModelPart::kMlp, layer, {b.up_->weight, b.up_->bias, b.mlp_proj_->weight, b.mlp_proj_->bias});
    } else {
      set(ModelPart::kMlp, layer, {b.up_->weight, b.mlp_proj_->weight});
    }
  }
  set(ModelPart::kFinalNorm, -1, {gpt.ln_f_->weight, gpt.ln_f_->bias});
  if (gpt.head_) set(ModelPart::kHead, -1, {gpt.head_->weight});
}

}  // namespace weft::runtime

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

BlockImpl::BlockImpl(const planner::ModelSpec& model)
    : model_(model),
      ln_1_(register_module("ln_1", Norm(model))),
      ln_2_(nullptr),
      qkv_(register_module("qkv", Matrix(model.hidden, (model.heads + 2 * model.kv_heads) * model.head_dim, model.attention_bias))),
      attention_proj_(register_module("attention_proj", Matrix(model.heads * model.head_dim, model.hidden,
                                                               model.attention_bias && model.attention_output_bias))),
      up_(nullptr),
      mlp_proj_(nullptr) {
  // Registered in the order of the forward pass, so that gradients become ready in the reverse of it.
  ln_2_ = register_module("ln_2", Norm(model));
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

torch::Tensor BlockImpl::forward(const torch::Tensor& x, const torch::Tensor& mask, const std::vector<torch::Tensor>& rotation) {
  const torch::Tensor attended = x + Attention(ln_1_(x), mask, rotation);
  return attended + Mlp(ln_2_(attended));
}

GptImpl::GptImpl(const planner::ModelSpec& model)
    : model_(model),
      wte_(register_module("wte", nn::Embedding(model.vocab, model.hidden))),
      wpe_(nullptr),
      ln_f_(nullptr),
      head_(nullptr) {
  if (model.learned_positions) wpe_ = register_module("wpe", nn::Embedding(model.max_positions, model.hidden));
  for (int64_t i = 0; i < model.layers; ++i) {
    std::string name = std::to_string(i);  // not "h" + ...: GCC 12 warns wrongly about it (bug 105651)
    blocks_.push_back(register_module(name.insert(0, 1, 'h'), Block(model)));
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
  for (Block& block : blocks_) x = block(x, mask, rotation);
  const torch::Tensor logits = torch::linear(ln_f_(x), head_ ? head_->weight : wte_->weight);
  return torch::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape(-1));
}

void InitialiseGpt(GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const auto set = [&](ModelPart part, int64_t layer, const std::vector<torch::Tensor>& tensors) {
    const std::vector<TensorLayout> layouts = LayoutOf(part, model);
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
    if (model.mlp_bias) {
      set(ModelPart::kMlp, layer, {b.up_->weight, b.up_->bias, b.mlp_proj_->weight, b.mlp_proj_->bias});
    } else {
      set(ModelPart::kMlp, layer, {b.up_->weight, b.mlp_proj_->weight});
    }
  }
  set(ModelPart::kFinalNorm, -1, {gpt.ln_f_->weight, gpt.ln_f_->bias});
  if (gpt.head_) set(ModelPart::kHead, -1, {gpt.head_->weight});
}

}  // namespace weft::runtime

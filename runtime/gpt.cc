#include "runtime/gpt.h"

#include <cmath>
#include <limits>

namespace weft::runtime {
namespace {

namespace nn = torch::nn;

nn::LayerNorm Norm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

nn::Linear Matrix(int64_t in, int64_t out, bool bias) { return nn::Linear(nn::LinearOptions(in, out).bias(bias)); }

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

BlockImpl::BlockImpl(const planner::ModelSpec& model)
    : heads_(model.heads),
      ln_1_(register_module("ln_1", Norm(model.hidden))),
      ln_2_(nullptr),
      qkv_(register_module("qkv", Matrix(model.hidden, 3 * model.hidden, model.attention_bias))),
      attention_proj_(register_module("attention_proj", Matrix(model.hidden, model.hidden, model.attention_bias))),
      up_(nullptr),
      mlp_proj_(nullptr) {
  // Registered in the order of the forward pass, so that gradients become ready in the reverse of it.
  ln_2_ = register_module("ln_2", Norm(model.hidden));
  up_ = register_module("up", Matrix(model.hidden, model.ffn_hidden, model.mlp_bias));
  mlp_proj_ = register_module("mlp_proj", Matrix(model.ffn_hidden, model.hidden, model.mlp_bias));
}

torch::Tensor BlockImpl::Attention(const torch::Tensor& x, const torch::Tensor& mask) {
  const int64_t batch = x.size(0), sequence = x.size(1), hidden = x.size(2), head = hidden / heads_;
  const torch::Tensor qkv = qkv_(x).view({batch, sequence, 3, heads_, head}).permute({2, 0, 3, 1, 4});
  const double scale = 1 / std::sqrt(static_cast<double>(head));
  const torch::Tensor scores = torch::matmul(qkv[0], qkv[1].transpose(-2, -1)) * scale + mask;
  const torch::Tensor mixed = torch::matmul(torch::softmax(scores, -1), qkv[2]);
  return attention_proj_(mixed.transpose(1, 2).reshape({batch, sequence, hidden}));
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const torch::Tensor attended = x + Attention(ln_1_(x), mask);
  return attended + mlp_proj_(torch::gelu(up_(ln_2_(attended)), "tanh"));
}

GptImpl::GptImpl(const planner::ModelSpec& model)
    : wte_(register_module("wte", nn::Embedding(model.vocab, model.hidden))),
      wpe_(register_module("wpe", nn::Embedding(model.max_positions, model.hidden))),
      ln_f_(nullptr) {
  for (int64_t i = 0; i < model.layers; ++i) {
    std::string name = std::to_string(i);  // not "h" + ...: GCC 12 warns wrongly about it (bug 105651)
    blocks_.push_back(register_module(name.insert(0, 1, 'h'), Block(model)));
  }
  ln_f_ = register_module("ln_f", Norm(model.hidden));
}

torch::Tensor GptImpl::Loss(const torch::Tensor& inputs, const torch::Tensor& targets) {
  const int64_t sequence = inputs.size(1);
  const torch::Tensor mask =
      torch::full({sequence, sequence}, -std::numeric_limits<float>::infinity()).triu(/*diagonal=*/1);
  torch::Tensor x = wte_(inputs) + wpe_(torch::arange(sequence));
  for (Block& block : blocks_) x = block(x, mask);
  const torch::Tensor logits = torch::linear(ln_f_(x), wte_->weight);
  return torch::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape(-1));
}

void InitialiseGpt(GptImpl& gpt, int64_t layers) {
  const torch::NoGradGuard no_grad;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
  for (auto& item : gpt.named_parameters()) {
    torch::Tensor& parameter = item.value();
    if (EndsWith(item.key(), "bias")) {
      parameter.zero_();
    } else if (parameter.dim() > 1) {  // norms keep their ones
      parameter.normal_(0, EndsWith(item.key(), "proj.weight") ? residual : 0.02);
    }
  }
}

}  // namespace weft::runtime

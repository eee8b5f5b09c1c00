// GPT-2 as LibTorch modules: learned positions, blocks with the norm in front, causal attention, tanh-GELU MLP, head tied
// to the token embedding. For trainer.cc only: this header reaches torch.
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3.
#pragma once

#include <torch/nn.h>

#include <vector>

#include "planner/workload/model_spec.h"

namespace weft::runtime {

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const planner::ModelSpec& model);
  /// x: [batch × sequence × hidden]; mask: [sequence × sequence], -inf where a token must not look.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask);

 private:
  torch::Tensor Attention(const torch::Tensor& x, const torch::Tensor& mask);

  int64_t heads_;
  torch::nn::LayerNorm ln_1_, ln_2_;
  torch::nn::Linear qkv_, attention_proj_, up_, mlp_proj_;
};
TORCH_MODULE(Block);

class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const planner::ModelSpec& model);
  /// Mean cross entropy. inputs, targets: int64 [batch × sequence].
  torch::Tensor Loss(const torch::Tensor& inputs, const torch::Tensor& targets);

 private:
  torch::nn::Embedding wte_, wpe_;
  std::vector<Block> blocks_;
  torch::nn::LayerNorm ln_f_;
};
TORCH_MODULE(Gpt);

/// Weights drawn from torch's seeded generator as GPT-2 draws them: normal(0, 0.02), residual projections smaller by
/// sqrt(2 × layers), biases zero.
void InitialiseGpt(GptImpl& gpt, int64_t layers);

}  // namespace weft::runtime

// The GPT-2 and Llama families as LibTorch modules under autograd: blocks with the norm in front, causal attention with grouped
// queries, learned or rotary positions, tanh-GELU or SwiGLU MLP. For trainer.cc only: this header reaches torch.
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3; arXiv 2302.13971.
#pragma once

#include <torch/nn.h>

#include <vector>

#include "planner/workload/model_spec.h"

namespace weft::runtime {

/// LayerNorm or RMSNorm, as the model says.
class NormImpl : public torch::nn::Module {
 public:
  explicit NormImpl(const planner::ModelSpec& model);
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor weight, bias;  ///< bias is undefined for RMSNorm

 private:
  double epsilon_;
};
TORCH_MODULE(Norm);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const planner::ModelSpec& model);
  /// x: [batch × sequence × hidden]; mask: [sequence × sequence], -inf where a token must not look; rotation: cosines and sines
  /// [sequence × head width], empty without.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask, const std::vector<torch::Tensor>& rotation);

 private:
  friend void InitialiseGpt(class GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed);
  torch::Tensor Attention(const torch::Tensor& x, const torch::Tensor& mask, const std::vector<torch::Tensor>& rotation);
  torch::Tensor Mlp(const torch::Tensor& x);

  planner::ModelSpec model_;
  Norm ln_1_, ln_2_;
  torch::nn::Linear qkv_, attention_proj_, up_, mlp_proj_;
};
TORCH_MODULE(Block);

class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const planner::ModelSpec& model);
  /// Mean cross entropy. inputs, targets: int64 [batch × sequence].
  torch::Tensor Loss(const torch::Tensor& inputs, const torch::Tensor& targets);

 private:
  friend void InitialiseGpt(GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed);

  planner::ModelSpec model_;
  torch::nn::Embedding wte_, wpe_;   ///< wpe_ is null with rotary positions
  std::vector<Block> blocks_;
  Norm ln_f_;
  torch::nn::Linear head_;           ///< null where it is the embedding's
};
TORCH_MODULE(Gpt);

/// The values of runtime/model/shape.h's InitialValue(), which follow from the seed.
void InitialiseGpt(GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed);

}  // namespace weft::runtime

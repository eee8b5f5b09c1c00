// The GPT-2, Llama and Mixtral families as LibTorch modules under autograd: blocks with the norm in front, causal attention with
// grouped queries, learned or rotary positions, tanh-GELU or SwiGLU MLP, or experts of a capacity. For trainer.cc only: this header
// reaches torch.
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3; arXiv 2302.13971; 2401.04088
// with the capacity and the balance loss of 2006.16668, section 2.2.
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

/// Tokens that share the experts' capacity: rows of [batch · sequence].
using CapacityGroups = std::vector<std::vector<int64_t>>;

/// Routed experts. A group's tokens choose K experts each; an expert takes K·G/E choices, first ones first.
class ExpertsImpl : public torch::nn::Module {
 public:
  explicit ExpertsImpl(const planner::ModelSpec& model);
  /// x: [tokens × hidden]. `balance`: the balance loss of all groups is added to it.
  torch::Tensor forward(const torch::Tensor& x, const CapacityGroups& groups, torch::Tensor* balance);

  torch::Tensor router, up, down;  ///< [experts × hidden], [experts × 2·inner × hidden], [experts × hidden × inner]

 private:
  torch::Tensor One(const torch::Tensor& x, torch::Tensor* balance);
  planner::ModelSpec model_;
};
TORCH_MODULE(Experts);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const planner::ModelSpec& model, bool moe);
  /// x: [batch × sequence × hidden]; mask: [sequence × sequence], -inf where a token must not look; rotation: cosines and sines
  /// [sequence × head width], empty without.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask, const std::vector<torch::Tensor>& rotation,
                        const CapacityGroups& groups, torch::Tensor* balance);

 private:
  friend void InitialiseGpt(class GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed);
  torch::Tensor Attention(const torch::Tensor& x, const torch::Tensor& mask, const std::vector<torch::Tensor>& rotation);
  torch::Tensor Mlp(const torch::Tensor& x);

  planner::ModelSpec model_;
  Norm ln_1_, ln_2_;
  torch::nn::Linear qkv_, attention_proj_, up_, mlp_proj_;  ///< the last two null with experts
  Experts experts_;
};
TORCH_MODULE(Block);

class GptImpl : public torch::nn::Module {
 public:
  GptImpl(const planner::ModelSpec& model, CapacityGroups groups);
  /// Mean cross entropy. inputs, targets: int64 [batch × sequence].
  torch::Tensor Loss(const torch::Tensor& inputs, const torch::Tensor& targets);
  /// The experts' balance loss of the last Loss(), which is trained with it: as runtime/model/moe.h has it.
  torch::Tensor BalanceLoss() const { return balance_; }

 private:
  friend void InitialiseGpt(GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed);

  planner::ModelSpec model_;
  CapacityGroups groups_;
  torch::Tensor balance_;
  torch::nn::Embedding wte_, wpe_;   ///< wpe_ is null with rotary positions
  std::vector<Block> blocks_;
  Norm ln_f_;
  torch::nn::Linear head_;           ///< null where it is the embedding's
};
TORCH_MODULE(Gpt);

/// The values of runtime/model/shape.h's InitialValue(), which follow from the seed.
void InitialiseGpt(GptImpl& gpt, const planner::ModelSpec& model, uint64_t seed);

}  // namespace weft::runtime

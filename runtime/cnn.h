// A 3D CNN as a LibTorch module under autograd: convolutions with rectifiers behind them, max poolings, the mean over the volume, a
// dense layer. For trainer.cc only: this header reaches torch.
#pragma once

#include <torch/nn.h>

#include <vector>

#include "planner/workload/model_spec.h"

namespace weft::runtime {

class CnnImpl : public torch::nn::Module {
 public:
  /// Requires: a CNN that planner::WhyNoProgram() accepts. Parameters begin as runtime/model/shape.h's InitialValue(), which
  /// follows from the seed.
  CnnImpl(const planner::ModelSpec& model, uint64_t seed, torch::ScalarType type);
  /// Mean cross entropy. samples: uint8 [batch × (numbers of a volume + 1)], the class behind each volume.
  torch::Tensor Loss(const torch::Tensor& samples);

 private:
  planner::ModelSpec model_;
  std::vector<torch::Tensor> matrices_, biases_;  ///< by layer; undefined where it has none
};
TORCH_MODULE(Cnn);

}  // namespace weft::runtime

#include "runtime/cnn.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include "runtime/model/shape.h"
#include "runtime/model/volume.h"

namespace weft::runtime {

using planner::Cnn3dKind;
using planner::Cnn3dLayer;

CnnImpl::CnnImpl(const planner::ModelSpec& model, uint64_t seed, torch::ScalarType type) : model_(model) {
  for (int64_t index = 0; index < model.layers; ++index) {
    const Cnn3dLayer& l = model.cnn_layers[static_cast<size_t>(index)];
    std::vector<torch::Tensor> tensors(2);
    const bool pools = l.kind == Cnn3dKind::kPooling || l.kind == Cnn3dKind::kGlobalPooling, dense = l.kind == Cnn3dKind::kDense;
    const auto layouts = pools ? std::vector<TensorLayout>()
                               : LayoutOf(dense ? planner::ModelPart::kClassifier : planner::ModelPart::kConvolution, model, index);
    for (size_t i = 0; i < layouts.size(); ++i) {
      torch::Tensor value = InitialValue(layouts[i], model, index, seed, type);
      if (i == 0 && !dense) value = value.view({l.out_channels, l.in_channels, l.kernel[0], l.kernel[1], l.kernel[2]});
      tensors[i] = register_parameter(fmt::format("{}{}", i == 0 ? "matrix" : "bias", index), value);
    }
    matrices_.push_back(tensors[0]), biases_.push_back(tensors[1]);
  }
}

torch::Tensor CnnImpl::Loss(const torch::Tensor& samples) {
  const Cnn3dLayer& first = model_.cnn_layers.front();
  const int64_t numbers = first.InputElements();
  torch::Tensor x = NumbersOf(samples.narrow(1, 0, numbers), matrices_.front().scalar_type())
                        .view({-1, first.in_channels, first.extent[0], first.extent[1], first.extent[2]});
  for (size_t i = 0; i < model_.cnn_layers.size(); ++i) {
    const Cnn3dLayer& l = model_.cnn_layers[i];
    const std::vector<int64_t> around = {(l.kernel[0] - 1) / 2, (l.kernel[1] - 1) / 2, (l.kernel[2] - 1) / 2};
    switch (l.kind) {
      case Cnn3dKind::kConvolution: x = torch::conv3d(x, matrices_[i], biases_[i], l.stride, around).relu(); break;
      case Cnn3dKind::kPooling: x = torch::max_pool3d(x, l.kernel, l.stride); break;
      case Cnn3dKind::kGlobalPooling: x = x.mean(torch::IntArrayRef{2, 3, 4}); break;
      default: x = torch::linear(x, matrices_[i], biases_[i]);
    }
  }
  return torch::cross_entropy_loss(x, samples.select(1, numbers).to(torch::kInt64).remainder(x.size(1)));
}

}  // namespace weft::runtime

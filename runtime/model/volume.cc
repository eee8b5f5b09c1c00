#include "runtime/model/volume.h"

#include <torch/utils.h>

#include <array>

#include "common/check.h"

namespace weft::runtime {
namespace {

using planner::Cnn3dLayer;
using planner::ModelPart;

const Cnn3dLayer& LayerOf(const PartCall& c) { return c.shape.model.cnn_layers[static_cast<size_t>(c.layer)]; }

/// A slab of all samples, [b × C × depth × height × width].
torch::Tensor AsSlabs(const torch::Tensor& x, int64_t samples, int64_t channels, const std::array<int64_t, 3>& extent) {
  return x.view({samples, channels, -1, extent[1], extent[2]});
}
torch::Tensor InputSlabs(const PartCall& c, const torch::Tensor& x) {
  return AsSlabs(x, c.shape.batch, LayerOf(c).in_channels, LayerOf(c).extent);
}

/// Planes of a neighbour that lie on this rank's side of a cut.
int64_t PlanesOf(const Cnn3dLayer& l) { return (l.kernel[0] - 1) / 2; }
torch::Tensor HaloSlabs(const PartCall& c, const torch::Tensor& planes) {
  return planes.view({2 * c.shape.batch, LayerOf(c).in_channels, PlanesOf(LayerOf(c)), LayerOf(c).extent[1], LayerOf(c).extent[2]});
}

/// One convolution on a rank.
class Convolving {
 public:
  explicit Convolving(const PartCall& c) : c_(c), l_(LayerOf(c)), samples_(c.shape.batch), type_(c.shape.type) {
    out_ = l_.OutputExtent();
    out_[0] /= c.shape.tensors;
    depth_ = l_.extent[0] / c.shape.tensors;
  }

  int64_t places() const { return l_.kernel[0] * l_.kernel[1] * l_.kernel[2]; }
  int64_t area() const { return out_[1] * out_[2]; }
  int64_t positions() const { return out_[0] * area(); }

  /// The input with (κ - 1)/2 planes around it; `inputs`: x and, where the volume is cut, the neighbours' planes.
  torch::Tensor Padded(std::span<const torch::Tensor> inputs) const {
    torch::Tensor all = NoInput();
    Inside(all, PlanesOf(l_), depth_).copy_(InputSlabs(c_, inputs[0]));
    if (inputs.size() < 2) return all;
    const torch::Tensor halo = HaloSlabs(c_, inputs[1]);
    Inside(all, 0, PlanesOf(l_)).copy_(halo.narrow(0, 0, samples_));
    Inside(all, PlanesOf(l_) + depth_, PlanesOf(l_)).copy_(halo.narrow(0, samples_, samples_));
    return all;
  }
  torch::Tensor NoInput() const {
    const int64_t height = l_.extent[1] + l_.kernel[1] - 1, width = l_.extent[2] + l_.kernel[2] - 1;
    return torch::zeros({samples_, l_.in_channels, depth_ + l_.kernel[0] - 1, height, width}, type_);
  }
  /// Planes of a padded input, without what is around them.
  torch::Tensor Inside(const torch::Tensor& padded, int64_t first, int64_t planes) const {
    const torch::Tensor rows = padded.narrow(2, first, planes).narrow(3, (l_.kernel[1] - 1) / 2, l_.extent[1]);
    return rows.narrow(4, (l_.kernel[2] - 1) / 2, l_.extent[2]);
  }
  /// What the place of the kernel sees of a sample: [C × depth × height × width], the output's, a view.
  torch::Tensor Seen(const torch::Tensor& padded, int64_t sample, int64_t place) const {
    torch::Tensor seen = padded.select(0, sample);
    const int64_t row = place / l_.kernel[2];
    const std::array<int64_t, 3> at = {row / l_.kernel[1], row % l_.kernel[1], place % l_.kernel[2]};
    for (size_t i = 0; i < 3; ++i)
      seen = seen.slice(static_cast<int64_t>(i) + 1, at[i], at[i] + (out_[i] - 1) * l_.stride[i] + 1, l_.stride[i]);
    return seen;
  }
  /// What all places see of it for one plane of the output: [C · places × area].
  torch::Tensor Columns(const torch::Tensor& padded, int64_t sample, int64_t plane) const {
    const torch::Tensor planes = padded.select(0, sample).narrow(1, plane * l_.stride[0], l_.kernel[0]);
    const torch::Tensor seen = planes.unfold(2, l_.kernel[1], l_.stride[1]).unfold(3, l_.kernel[2], l_.stride[2]);
    return seen.permute({0, 1, 4, 5, 2, 3}).contiguous().view({-1, area()});
  }
  /// [places × O × C].
  torch::Tensor Matrices() const {
    return c_.parameters.values[0].view({l_.out_channels, l_.in_channels, places()}).permute({2, 0, 1}).contiguous();
  }
  /// A value of outputs, [b × O × positions].
  torch::Tensor Outputs(const torch::Tensor& y) const { return y.view({samples_, l_.out_channels, positions()}); }
  /// Of these one plane of a sample, [O × area].
  torch::Tensor Plane(const torch::Tensor& outputs, int64_t sample, int64_t plane) const {
    return outputs.select(0, sample).narrow(1, plane * area(), area());
  }
  /// Calls body(sample, index) for each below `count`.
  template <typename Body>
  void ForAll(int64_t count, Body body) const {
    for (int64_t sample = 0; sample < samples_; ++sample) {
      for (int64_t index = 0; index < count; ++index) body(sample, index);
    }
  }

  torch::Tensor Forward() const {
    const torch::Tensor padded = Padded(c_.inputs);
    torch::Tensor y = torch::zeros({samples_, l_.out_channels, positions()}, type_);
    if (l_.bias) y.add_(c_.parameters.values[1].view({1, -1, 1}));
    ForAll(out_[0], [&](int64_t sample, int64_t plane) {
      Plane(y, sample, plane).addmm_(c_.parameters.values[0], Columns(padded, sample, plane));
    });
    return y.relu_().view({samples_, -1});
  }

  /// Of the padded input.
  torch::Tensor InputGradient(const torch::Tensor& gradient) const {
    const torch::Tensor matrices = Matrices(), of_outputs = Outputs(gradient);
    torch::Tensor padded = NoInput();
    ForAll(places(), [&](int64_t sample, int64_t place) {
      torch::Tensor seen = Seen(padded, sample, place);
      seen.add_(torch::mm(matrices.select(0, place).t(), of_outputs.select(0, sample)).view(seen.sizes()));
    });
    return padded;
  }

  Tensors Data(PartState& state) const {
    const torch::Tensor gradient = at::threshold_backward(c_.inputs[0], state.kept[0], 0);
    state = {.kept = {}, .gradients = {gradient}};
    if (c_.layer == 0) return {};
    const torch::Tensor padded = InputGradient(gradient);
    const int64_t planes = PlanesOf(l_);
    Tensors made = {Inside(padded, planes, depth_).contiguous().view({samples_, -1})};
    if (c_.shape.tensors == 1 || planes == 0) return made;
    made.push_back(torch::cat({Inside(padded, 0, planes), Inside(padded, planes + depth_, planes)}, 0).view({2 * samples_, -1}));
    return made;
  }

  void Weight(const PartState& state) const {
    const torch::Tensor padded = Padded(c_.inputs), of_outputs = Outputs(state.gradients[0]);
    ForAll(out_[0], [&](int64_t sample, int64_t plane) {
      c_.parameters.gradients[0].addmm_(Plane(of_outputs, sample, plane), Columns(padded, sample, plane).t());
    });
    if (l_.bias) c_.parameters.gradients[1].add_(of_outputs.sum(torch::IntArrayRef{0, 2}));
  }

 private:
  const PartCall& c_;
  const Cnn3dLayer& l_;
  const int64_t samples_;
  const torch::ScalarType type_;
  std::array<int64_t, 3> out_{};  // of this rank
  int64_t depth_ = 0;             // of its slab
};

/// This rank's planes at both ends.
torch::Tensor HaloForward(const PartCall& c) {
  const torch::Tensor x = InputSlabs(c, c.inputs[0]);
  const int64_t planes = PlanesOf(LayerOf(c));
  return torch::cat({x.narrow(2, 0, planes), x.narrow(2, x.size(2) - planes, planes)}, 0).view({2 * c.shape.batch, -1});
}

/// The gradient of x with what the neighbours have of its ends.
torch::Tensor HaloData(const PartCall& c) {
  torch::Tensor sum = c.inputs[0].clone();
  const torch::Tensor x = InputSlabs(c, sum), halo = HaloSlabs(c, c.inputs[1]);
  const int64_t planes = PlanesOf(LayerOf(c)), b = c.shape.batch;
  x.narrow(2, 0, planes).add_(halo.narrow(0, 0, b));
  x.narrow(2, x.size(2) - planes, planes).add_(halo.narrow(0, b, b));
  return sum;
}

torch::Tensor PoolingForward(const PartCall& c, PartState* state) {
  const Cnn3dLayer& l = LayerOf(c);
  auto [y, places] = at::max_pool3d_with_indices(InputSlabs(c, c.inputs[0]), l.kernel, l.stride);
  if (state != nullptr) state->kept = {places};
  return y.view({c.shape.batch, -1});
}

torch::Tensor PoolingData(const PartCall& c, PartState& state) {
  const Cnn3dLayer& l = LayerOf(c);
  const torch::Tensor places = state.kept[0];
  state = {};
  const int64_t maps = c.shape.batch * l.in_channels;
  torch::Tensor x = torch::zeros({maps, l.InputElements() / l.in_channels / c.shape.tensors}, c.shape.type);
  return x.scatter_(1, places.view({maps, -1}), c.inputs[0].view({maps, -1})).view({c.shape.batch, -1});
}

/// Numbers of which the mean is, on all ranks together.
double MeanOver(const PartCall& c) { return static_cast<double>(LayerOf(c).InputElements() / LayerOf(c).in_channels); }

torch::Tensor GlobalPoolingData(const PartCall& c) {
  const Cnn3dLayer& l = LayerOf(c);
  const torch::Tensor share = c.inputs[0] / MeanOver(c);
  const int64_t numbers = l.InputElements() / l.in_channels / c.shape.tensors;
  return share.unsqueeze(2).expand({c.shape.batch, l.in_channels, numbers}).reshape({c.shape.batch, -1});
}

torch::Tensor ClassifierForward(const PartCall& c) {
  const torch::Tensor logits = torch::mm(c.inputs[0], c.parameters.values[0].t());
  return LayerOf(c).bias ? logits.add_(c.parameters.values[1]) : logits;
}

/// Of this rank's share of the outputs.
void ClassifierWeight(const PartCall& c, const PartState& state) {
  const int64_t classes = LayerOf(c).out_channels, begin = c.shape.tensor * classes / c.shape.tensors;
  const int64_t count = (c.shape.tensor + 1) * classes / c.shape.tensors - begin;
  if (count == 0) return;
  const torch::Tensor gradient = state.gradients[0].narrow(1, begin, count);
  c.parameters.gradients[0].narrow(0, begin, count).addmm_(gradient.t(), c.inputs[0]);
  if (LayerOf(c).bias) c.parameters.gradients[1].narrow(0, begin, count).add_(gradient.sum(0));
}

torch::Tensor ClassLoss(const PartCall& c) {
  const torch::Tensor picked = at::log_softmax(c.inputs[0], 1).gather(1, c.tokens->targets.unsqueeze(1));
  return (picked.to(torch::kFloat64).sum() / -static_cast<double>(c.shape.loss_tokens)).view({1, 1});
}

torch::Tensor ClassLossData(const PartCall& c) {
  torch::Tensor gradient = at::softmax(c.inputs[0], 1);
  gradient.scatter_add_(1, c.tokens->targets.unsqueeze(1), torch::full({c.shape.batch, 1}, -1.0, c.shape.type));
  return gradient.div_(static_cast<double>(c.shape.loss_tokens));
}

}  // namespace

torch::Tensor NumbersOf(const torch::Tensor& bytes, torch::ScalarType type) { return bytes.to(type).div_(127.5).sub_(1); }

Tensors VolumesForward(const PartCall& c, PartState* state) {
  switch (c.part) {
    case ModelPart::kVolume: return {NumbersOf(c.tokens->inputs, c.shape.type)};
    case ModelPart::kHalo: return {HaloForward(c)};
    case ModelPart::kConvolution: {
      Tensors made = {Convolving(c).Forward()};
      if (state != nullptr) state->kept = made;
      return made;
    }
    case ModelPart::kPooling: return {PoolingForward(c, state)};
    case ModelPart::kGlobalPooling: return {InputSlabs(c, c.inputs[0]).sum(torch::IntArrayRef{2, 3, 4}).div_(MeanOver(c))};
    case ModelPart::kClassifier: return {ClassifierForward(c)};
    case ModelPart::kClassLoss: return {ClassLoss(c)};
    default: break;
  }
  WEFT_CHECK(false, "a part without a forward pass");
}

Tensors VolumesData(const PartCall& c, PartState& state) {
  switch (c.part) {
    case ModelPart::kHalo: return {HaloData(c)};
    case ModelPart::kConvolution: return Convolving(c).Data(state);
    case ModelPart::kPooling: return {PoolingData(c, state)};
    case ModelPart::kGlobalPooling: return {GlobalPoolingData(c)};
    case ModelPart::kClassifier:
      state = {.kept = {}, .gradients = {c.inputs[0]}};
      return {torch::mm(c.inputs[0], c.parameters.values[0])};
    case ModelPart::kClassLoss: return {ClassLossData(c)};
    default: break;
  }
  WEFT_CHECK(false, "a part without a data gradient");
}

void AddVolumesGradient(const PartCall& c, PartState& state) {
  c.part == ModelPart::kConvolution ? Convolving(c).Weight(state) : ClassifierWeight(c, state);
  state = {};
}

}  // namespace weft::runtime

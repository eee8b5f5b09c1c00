// Models without attention: convolutions, poolings and dense layers one after another.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "runtime/profile/recognise.h"

namespace weft::runtime {
namespace {

using planner::Cnn3dKind;
using planner::Cnn3dLayer;

using Extent = std::array<int64_t, 3>;

/// Of [batch × channels × …]: up to three dimensions, from the right.
Extent ExtentOf(const Shape& shape) {
  Extent extent{1, 1, 1};
  const size_t dimensions = shape.size() - 2;
  for (size_t i = 0; i < dimensions; ++i) extent[3 - dimensions + i] = shape[2 + i];
  return extent;
}

/// From and to [batch × channels × up to three dimensions]. Requires: an input.
bool IsMap(const TracedOperator& o) {
  const size_t dimensions = o.inputs[0].size();
  return dimensions >= 3 && dimensions <= 5 && o.output.size() == dimensions && HasElements(o.inputs[0]) && HasElements(o.output);
}

bool Has(const TracedOperator& o, std::string_view word) { return o.kind.find(word) != o.kind.npos; }

/// The mean of each channel over a whole map: AdaptiveAvgPool to one place, or `mean` over all dimensions behind the channels.
bool IsGlobalMean(const TracedOperator& o) {
  if (o.inputs.empty() || o.inputs[0].size() < 3 || o.inputs[0].size() > 5 || !HasElements(o.inputs[0]) || o.output.size() < 2) return false;
  const bool one_place = std::all_of(o.output.begin() + 2, o.output.end(), [](int64_t size) { return size == 1; });
  const bool same_channels = o.output[0] == o.inputs[0][0] && o.output[1] == o.inputs[0][1];
  return one_place && same_channels && (Has(o, "adaptive_avg_pool") || o.kind == "mean");
}

Extent ListedKernel(const TracedOperator& o, size_t dimensions) {
  Extent kernel{1, 1, 1};
  for (size_t i = 0; i < dimensions; ++i) {
    const int64_t size = o.numbers.empty() ? 1 : o.numbers[o.numbers.size() == 1 ? 0 : std::min(i, o.numbers.size() - 1)];
    kernel[3 - dimensions + i] = size;
  }
  return kernel;
}

/// The stride that leads from one extent to the other, and the output where 'same' padding gives another.
void SetStride(const Extent& out, Cnn3dLayer* layer) {
  const bool grows = layer->kind == Cnn3dKind::kTransposedConvolution;
  for (size_t i = 0; i < 3; ++i) {
    const double ratio = grows ? static_cast<double>(out[i]) / static_cast<double>(layer->extent[i])
                               : static_cast<double>(layer->extent[i]) / static_cast<double>(out[i]);
    layer->stride[i] = std::max<int64_t>(1, std::llround(ratio));
  }
  if (layer->OutputExtent() != out) layer->output = out;
}

class Builder {
 public:
  explicit Builder(const TracedModel& traced) : traced_(traced) {}

  Status Add(const TracedOperator& o) {
    if (Has(o, "conv")) return AddConvolution(o);
    if (IsGlobalMean(o)) return AddGlobalPooling(o);
    if (Has(o, "pool")) return AddPooling(o);
    if (o.flops > 0) return AddDense(o);
    if (o.parameters.empty()) return Ok();  // activations, sums, shapes
    return AddNorm(o);
  }

  std::vector<Cnn3dLayer> layers;

 private:
  Status Refuse(const TracedOperator& o, std::string_view why) const {
    const std::string name = o.parameters.empty() ? o.kind : traced_.parameters[o.parameters.front()].name;
    return Fail(Code::kFailedPrecondition,
                fmt::format("{}: {} ({}): {}; expected a decoder, or convolutions, poolings, norms and dense layers in a row",
                            traced_.name, o.kind, name, why));
  }

  Status AddConvolution(const TracedOperator& o) {
    if (o.inputs.size() < 2 || !IsMap(o) || o.inputs[0].size() != o.inputs[1].size() || !HasElements(o.inputs[1])) {
      return Refuse(o, "a convolution without a batch, or of more than three dimensions");
    }
    Cnn3dLayer layer;
    const Shape& weight = o.inputs[1];
    const bool transposed = Has(o, "transpose") || o.flag;
    layer.kind = transposed ? Cnn3dKind::kTransposedConvolution : Cnn3dKind::kConvolution;
    layer.in_channels = o.inputs[0][1];
    layer.out_channels = o.output[1];
    layer.groups = transposed ? layer.out_channels / weight[1] : layer.in_channels / weight[1];
    layer.kernel = ExtentOf(weight);
    layer.extent = ExtentOf(o.inputs[0]);
    layer.bias = o.parameters.size() > 1;
    SetStride(ExtentOf(o.output), &layer);
    layers.push_back(layer);
    return Ok();
  }

  Status AddPooling(const TracedOperator& o) {
    if (o.inputs.empty() || !IsMap(o)) return Refuse(o, "a pooling of other dimensions than one to three behind the channels");
    Cnn3dLayer layer{.kind = Cnn3dKind::kPooling, .in_channels = o.inputs[0][1], .out_channels = o.output[1]};
    layer.bias = false;
    layer.extent = ExtentOf(o.inputs[0]);
    SetStride(ExtentOf(o.output), &layer);
    layer.kernel = Has(o, "adaptive") ? layer.stride : ListedKernel(o, o.inputs[0].size() - 2);
    layers.push_back(layer);
    return Ok();
  }

  Status AddGlobalPooling(const TracedOperator& o) {
    const int64_t channels = o.inputs[0][1];
    Cnn3dLayer layer{.kind = Cnn3dKind::kGlobalPooling, .in_channels = channels, .out_channels = channels};
    layer.bias = false;
    layer.extent = ExtentOf(o.inputs[0]);
    layers.push_back(layer);
    return Ok();
  }

  Status AddDense(const TracedOperator& o) {
    if (o.inputs.empty() || !HasElements(o.inputs[0]) || !HasElements(o.output)) {
      return Refuse(o, "a product of or to something without elements or dimensions");
    }
    const int64_t in = o.inputs[0].back();
    int64_t elements = 1;
    for (const int64_t size : o.inputs[0]) elements *= size;
    if (elements != traced_.input.front() * in) return Refuse(o, "a product at several places of a sample, without attention");
    Cnn3dLayer layer{.kind = Cnn3dKind::kDense, .in_channels = in, .out_channels = o.output.back()};
    layer.bias = o.parameters.size() > 1;
    if (!layers.empty()) {
      const Extent before = layers.back().OutputExtent();
      if (layers.back().out_channels * before[0] * before[1] * before[2] == in)
        layer.in_channels = layers.back().out_channels, layer.extent = before;
    }
    layers.push_back(layer);
    return Ok();
  }

  Status AddNorm(const TracedOperator& o) {
    int64_t parameters = 0;
    for (const size_t p : o.parameters) parameters += traced_.parameters[p].Count();
    const bool pools = !layers.empty() && (layers.back().kind == Cnn3dKind::kPooling || layers.back().kind == Cnn3dKind::kGlobalPooling);
    if (layers.empty() || pools || layers.back().normalised || !Has(o, "norm") || parameters != 2 * layers.back().out_channels) {
      return Refuse(o, "its parameters are no norm of the layer before it");
    }
    layers.back().normalised = true;
    return Ok();
  }

  const TracedModel& traced_;
};

}  // namespace

Result<Recognised> RecogniseSequence(const TracedModel& traced) {
  Builder builder(traced);
  for (const TracedOperator& o : traced.operators) WEFT_RETURN_IF_ERROR(builder.Add(o));
  if (builder.layers.empty())
    return Fail(Code::kFailedPrecondition, fmt::format("{}: no product in it, expected a model", traced.name));
  Recognised found;
  found.model.architecture = planner::Architecture::kCnn3d;
  found.model.max_positions = 1;
  found.model.cnn_layers = std::move(builder.layers);
  found.model.layers = static_cast<int64_t>(found.model.cnn_layers.size());
  found.assumptions.emplace_back("no attention: layers in a row, a sample is a sequence of one (plan it with --seq 1)");
  found.assumptions.emplace_back(
      "branches run one after another; sums and activations cost what their layer's norms and outputs do");
  return found;
}

}  // namespace weft::runtime

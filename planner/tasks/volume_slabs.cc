#include "planner/tasks/volume_slabs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace weft::planner::inline tasks {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 31;  // of one sample
constexpr int64_t kMostClasses = 256;               // they are bytes
constexpr std::array<int64_t, 3> kNone = {0, 0, 0};

std::string Text(const std::array<int64_t, 3>& sizes) { return fmt::format("{} x {} x {}", sizes[0], sizes[1], sizes[2]); }

bool Positive(const Cnn3dLayer& l) {
  const auto positive = [](const std::array<int64_t, 3>& sizes) {
    return std::ranges::all_of(sizes, [](int64_t size) { return size > 0; });
  };
  return l.in_channels > 0 && l.out_channels > 0 && positive(l.kernel) && positive(l.stride) && positive(l.extent);
}

/// Of a convolution or pooling by itself.
std::string WhyNoWindow(const Cnn3dLayer& l) {
  if (l.output != kNone || l.groups != 1 || l.normalised) return "other padding, groups or a norm: not executed, expected none";
  if (l.kind == Cnn3dKind::kPooling) {
    const bool whole = l.kernel == l.stride && l.extent[0] % l.stride[0] == 0 && l.extent[1] % l.stride[1] == 0 &&
                       l.extent[2] % l.stride[2] == 0;
    if (whole) return "";
    return fmt::format("windows of {} every {} of {}: not executed, expected them side by side, and whole", Text(l.kernel),
                       Text(l.stride), Text(l.extent));
  }
  if (l.kind != Cnn3dKind::kConvolution) return "expected a convolution or pooling here";
  const bool odd = std::ranges::all_of(l.kernel, [](int64_t size) { return size % 2 == 1; });
  return odd ? "" : fmt::format("a kernel of {}: not executed, expected odd sizes", Text(l.kernel));
}

/// Of the two at the end.
std::string WhyNoEnd(const Cnn3dLayer& l, bool last) {
  if (l.kind != (last ? Cnn3dKind::kDense : Cnn3dKind::kGlobalPooling))
    return last ? "expected a dense layer at the end" : "expected a global pooling before the last layer";
  if (l.normalised) return "a norm: not executed, expected none";
  if (!last || (l.out_channels >= 2 && l.out_channels <= kMostClasses)) return "";
  return fmt::format("{} classes, expected 2 to {}: they are bytes", l.out_channels, kMostClasses);
}

}  // namespace

std::optional<std::string> WhyNoVolumes(std::span<const Cnn3dLayer> layers) {
  if (layers.size() < 3 || layers.front().kind != Cnn3dKind::kConvolution)
    return "expected a convolution first, a global pooling and a dense layer at the end";
  for (size_t i = 0; i < layers.size(); ++i) {
    const Cnn3dLayer& l = layers[i];
    const auto why = [&](const std::string& text) { return fmt::format("layer {}: {}", i, text); };
    if (!Positive(l)) return why("a size below 1");
    if (i > 0 && (l.in_channels != layers[i - 1].out_channels || l.extent != layers[i - 1].OutputExtent()))
      return why("it does not take the layer before it, and nothing else");
    double numbers = static_cast<double>(l.in_channels);
    for (const int64_t size : l.extent) numbers *= static_cast<double>(size);
    if (numbers > static_cast<double>(kMostNumbers))
      return why(fmt::format("{:.0f} numbers of a sample, expected at most 2^31", numbers));
    const bool end = i + 2 >= layers.size();
    if (const std::string text = end ? WhyNoEnd(l, i + 1 == layers.size()) : WhyNoWindow(l); !text.empty()) return why(text);
  }
  return std::nullopt;
}

std::optional<std::string> WhyNoSlabs(std::span<const Cnn3dLayer> layers, int64_t ranks) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const Cnn3dLayer& l = layers[i];
    // One number would be one of the program's sums.
    const bool dense = l.kind == Cnn3dKind::kDense;
    if (SlabInput(l, 1, ranks).elements() < 2) return fmt::format("layer {}: one number of a sample on a rank, expected more", i);
    if (dense || ranks == 1) continue;
    const int64_t depth = l.extent[0], stride = l.kind == Cnn3dKind::kGlobalPooling ? 1 : l.stride[0];
    if (depth % (ranks * stride) != 0)
      return fmt::format("layer {}: {} planes in strides of {}: they do not make {} equal slabs", i, depth, stride, ranks);
    if (HaloPlanes(l, ranks) > depth / ranks)
      return fmt::format("layer {}: {} planes of a slab, expected the {} that its neighbour needs", i, depth / ranks,
                         HaloPlanes(l, ranks));
  }
  return std::nullopt;
}

int64_t HaloPlanes(const Cnn3dLayer& l, int64_t ranks) {
  return ranks > 1 && l.kind == Cnn3dKind::kConvolution ? (l.kernel[0] - 1) / 2 : 0;
}

ValueShape SlabInput(const Cnn3dLayer& l, int64_t samples, int64_t ranks) {
  return {samples, l.InputElements() / (l.kind == Cnn3dKind::kDense ? 1 : ranks)};
}

ValueShape SlabOutput(const Cnn3dLayer& l, int64_t samples, int64_t ranks) {
  const std::array<int64_t, 3> out = l.OutputExtent();
  const bool whole = l.kind == Cnn3dKind::kDense || l.kind == Cnn3dKind::kGlobalPooling;
  return {samples, l.out_channels * out[0] * out[1] * out[2] / (whole ? 1 : ranks)};
}

ValueShape SlabHalo(const Cnn3dLayer& l, int64_t samples, int64_t ranks) {
  return {2 * samples, l.in_channels * HaloPlanes(l, ranks) * l.extent[1] * l.extent[2]};
}

}  // namespace weft::planner::tasks

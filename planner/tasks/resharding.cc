#include "planner/tasks/resharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::planner::inline tasks {
namespace {

constexpr int64_t kMostSlices = 4096, kMostChunks = 256;

/// Parts of `dimension` that a layout cuts, and which of them a device has.
int64_t Cuts(const MeshLayout& layout, int32_t dimension) {
  return (layout.host_dimension == dimension ? layout.hosts : 1) *
         (layout.device_dimension == dimension ? layout.devices : 1);
}
int64_t PartOf(const MeshLayout& layout, int32_t dimension, int64_t host, int64_t device) {
  const int64_t outer = layout.host_dimension == dimension ? host : 0;
  return layout.device_dimension == dimension ? outer * layout.devices + device : outer;
}

Status CheckLayout(const ReshardProblem& problem, const MeshLayout& layout, std::string_view side) {
  const auto dimensions = static_cast<int32_t>(problem.shape.size());
  if (layout.hosts < 1 || layout.devices < 1 || layout.hosts > kMostSlices || layout.devices > kMostSlices) {
    return Fail(Code::kInvalidArgument, fmt::format("resharding {}: {} hosts of {} devices, expected 1 to {} each", side,
                                                    layout.hosts, layout.devices, kMostSlices));
  }
  for (const int32_t dimension : {layout.host_dimension, layout.device_dimension}) {
    if (dimension < -1 || dimension >= dimensions) {
      return Fail(Code::kInvalidArgument, fmt::format("resharding {}: dimension {}, expected -1 to {}", side, dimension,
                                                      dimensions - 1));
    }
    if (dimension >= 0 && problem.shape[static_cast<size_t>(dimension)] % Cuts(layout, dimension) != 0) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("resharding {}: dimension {} of {} elements, expected a multiple of {} parts", side, dimension,
                              problem.shape[static_cast<size_t>(dimension)], Cuts(layout, dimension)));
    }
  }
  return Ok();
}

/// Where [first, last) of a dimension begins and ends.
struct Span {
  int64_t first, last;
};

std::vector<Span> Spans(const ReshardProblem& problem, int32_t dimension) {
  const int64_t length = problem.shape[static_cast<size_t>(dimension)];
  std::vector<int64_t> points = {length};
  for (const MeshLayout* layout : {&problem.from, &problem.to}) {
    const int64_t cuts = Cuts(*layout, dimension);
    for (int64_t k = 0; k < cuts; ++k) points.push_back(k * (length / cuts));
  }
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  std::vector<Span> spans;
  for (size_t k = 0; k + 1 < points.size(); ++k) spans.push_back({points[k], points[k + 1]});
  return spans;
}

bool Has(const ReshardProblem& problem, const MeshLayout& layout, std::span<const Span> box, int64_t host, int64_t device) {
  for (size_t x = 0; x < box.size(); ++x) {
    const auto dimension = static_cast<int32_t>(x);
    const int64_t part = problem.shape[x] / Cuts(layout, dimension);
    if (box[x].first / part != PartOf(layout, dimension, host, device)) return false;
  }
  return true;
}

ReshardSlice Slice(const ReshardProblem& problem, std::span<const Span> box) {
  ReshardSlice slice{.bytes = Bytes(problem.element_bytes), .devices = 0};
  for (const Span& span : box) slice.bytes = slice.bytes * (span.last - span.first);
  const auto holders = [&](const MeshLayout& layout, int64_t host) {
    int64_t devices = 0;
    for (int64_t device = 0; device < layout.devices; ++device) devices += Has(problem, layout, box, host, device);
    return devices;
  };
  for (int64_t host = 0; host < problem.from.hosts; ++host) {
    if (holders(problem.from, host) > 0) slice.senders.push_back(static_cast<int32_t>(host));
  }
  for (int64_t host = 0; host < problem.to.hosts; ++host) {
    const int64_t devices = holders(problem.to, host);
    if (devices > 0) slice.receivers.push_back(static_cast<int32_t>(host));
    slice.devices = std::max(slice.devices, devices);
  }
  return slice;
}

Seconds ChainTime(Bytes bytes, int64_t receivers, int64_t devices, const ReshardNetwork& network, int64_t chunks) {
  const double k = static_cast<double>(chunks);
  const Seconds step = network.latency + bytes / network.nic / k;
  const Seconds local = devices > 1 ? bytes / network.local / k : Seconds(0);
  return static_cast<double>(chunks + receivers - 1) * step + local;
}

}  // namespace

Result<std::vector<ReshardSlice>> CutSlices(const ReshardProblem& problem) {
  if (problem.shape.empty() || problem.element_bytes < 1 ||
      std::any_of(problem.shape.begin(), problem.shape.end(), [](int64_t n) { return n < 1; })) {
    return Fail(Code::kInvalidArgument, fmt::format("resharding: {} dimensions of {}-byte elements, expected sizes of 1 or "
                                                    "more", problem.shape.size(), problem.element_bytes));
  }
  WEFT_RETURN_IF_ERROR(CheckLayout(problem, problem.from, "from"));
  WEFT_RETURN_IF_ERROR(CheckLayout(problem, problem.to, "to"));
  std::vector<std::vector<Span>> spans;
  int64_t count = 1;
  for (size_t x = 0; x < problem.shape.size(); ++x) {
    spans.push_back(Spans(problem, static_cast<int32_t>(x)));
    count *= static_cast<int64_t>(spans.back().size());
    if (count > kMostSlices) {
      return Fail(Code::kInvalidArgument, fmt::format("resharding: {} slices, expected at most {}", count, kMostSlices));
    }
  }
  std::vector<ReshardSlice> slices;
  std::vector<Span> box(spans.size());
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = k;
    for (size_t x = spans.size(); x-- > 0;) {
      const auto n = static_cast<int64_t>(spans[x].size());
      box[x] = spans[x][static_cast<size_t>(rest % n)];
      rest /= n;
    }
    slices.push_back(Slice(problem, box));
  }
  return slices;
}

Seconds SliceTime(ReshardMethod method, Bytes bytes, int64_t receivers, int64_t devices, const ReshardNetwork& network) {
  const double a = static_cast<double>(receivers), g = static_cast<double>(devices);
  const Seconds wire = bytes / network.nic, alpha = network.latency;
  const Seconds gather = devices > 1 ? bytes / network.local * ((g - 1) / g) : Seconds(0);
  switch (method) {
    case ReshardMethod::kSeparateSends: return a * g * (alpha + wire);
    case ReshardMethod::kLocalAllGather: return a * (alpha + wire) + gather;
    case ReshardMethod::kScatterAllGather: return a * alpha + wire + (a - 1) * (alpha + wire / a) + gather;
    case ReshardMethod::kBroadcastChain:
      return ChainTime(bytes, receivers, devices, network, BroadcastChunks(bytes, receivers, devices, network));
  }
  return Seconds(0);
}

int64_t BroadcastChunks(Bytes bytes, int64_t receivers, int64_t devices, const ReshardNetwork& network) {
  // (κ + A-1)(α + τ/κ) + ℓ/κ = κα + ((A-1)τ + ℓ)/κ + ...: convex, least where both parts are equal.
  const Seconds wire = bytes / network.nic, local = devices > 1 ? bytes / network.local : Seconds(0);
  const double spread = (static_cast<double>(receivers - 1) * wire + local).count();
  const double best = network.latency.count() > 0 ? std::sqrt(spread / network.latency.count())
                                                  : static_cast<double>(spread > 0 ? kMostChunks : 1);
  const auto below = static_cast<int64_t>(std::clamp(std::floor(best), 1.0, static_cast<double>(kMostChunks)));
  const int64_t above = std::min(below + 1, kMostChunks);
  return ChainTime(bytes, receivers, devices, network, above) < ChainTime(bytes, receivers, devices, network, below)
             ? above : below;
}

ReshardMethod BestReshardMethod(Bytes bytes, int64_t receivers, int64_t devices, const ReshardNetwork& network) {
  ReshardMethod best = ReshardMethod::kSeparateSends;
  for (const ReshardMethod method :
       {ReshardMethod::kLocalAllGather, ReshardMethod::kScatterAllGather, ReshardMethod::kBroadcastChain}) {
    if (SliceTime(method, bytes, receivers, devices, network) < SliceTime(best, bytes, receivers, devices, network)) {
      best = method;
    }
  }
  return best;
}

}  // namespace weft::planner::tasks

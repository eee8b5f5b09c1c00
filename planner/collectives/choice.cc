#include "planner/collectives/choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/collectives/packed_schedule.h"

namespace weft::planner::inline collectives {
namespace {

Status CheckShape(const CommunicatorShape& shape) {
  const bool inner = shape.group_size() <= 1 || shape.inner.rate.value() > 0;
  const bool outer = shape.ranks <= 1 || shape.groups() <= 1 || shape.outer.rate.value() > 0;
  if (shape.ranks >= 1 && inner && outer) return Ok();
  return Fail(Code::kInvalidArgument,
              fmt::format("choice of algorithm: {} ranks in groups of {}, {:g} bit/s inside and {:g} across, expected at least 1 "
                          "rank and positive rates", shape.ranks, shape.group, shape.inner.rate.value(),
                          shape.outer.rate.value()));
}

/// The candidate's parameter on this shape; nothing where it makes no sense there.
std::optional<AlgorithmSpec> OnShape(Algorithm algorithm, Collective collective, const CommunicatorShape& shape) {
  const int32_t group = shape.group_size();
  const bool equal = shape.ranks % group == 0;
  const bool levels = group > 1 && shape.groups() > 1;
  switch (algorithm) {
    case Algorithm::kHierarchical:
      if (!levels || (!equal && collective != Collective::kAllReduce && collective != Collective::kAllToAll)) return {};
      return AlgorithmSpec{algorithm, group};
    case Algorithm::kTorus:
      if (!levels || !equal) return {};
      return AlgorithmSpec{algorithm, group};
    case Algorithm::kForest: return {};  // priced by its packing
    case Algorithm::kParameterServer: return AlgorithmSpec{algorithm, shape.ranks};
    default: return AlgorithmSpec{algorithm, 0};
  }
}

/// Slices of the longest chunk that a pipelined algorithm moves.
int32_t SlicesOf(Algorithm algorithm, Bytes bytes, Bytes slice) {
  if (algorithm != Algorithm::kTree && algorithm != Algorithm::kPipelined) return 1;
  const Bytes chunk = algorithm == Algorithm::kTree ? bytes / 2 : bytes;
  return static_cast<int32_t>(std::clamp<int64_t>((chunk.count() + slice.count() - 1) / slice.count(), 1, 1 << 20));
}

}  // namespace

Result<std::vector<AlgorithmCost>> Choose(Collective collective, const CommunicatorShape& shape, Bytes bytes,
                                          const ChoiceOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckShape(shape));
  std::vector<AlgorithmCost> costs;
  for (const Algorithm algorithm : AlgorithmsFor(collective)) {
    const std::optional<AlgorithmSpec> spec = OnShape(algorithm, collective, shape);
    if (!spec) continue;
    const int32_t slices = SlicesOf(algorithm, bytes, options.slice);
    WEFT_ASSIGN_OR_RETURN(const Seconds time, AlgorithmTime(*spec, collective, shape, bytes, slices));
    costs.push_back({*spec, time, slices});
  }
  if (options.packing != nullptr && options.packing_unit.value() > 0 && collective != Collective::kAllToAll &&
      collective != Collective::kBroadcast && collective != Collective::kSendRecv) {
    // Trees are at most as deep as there are ranks; the latency of the deepest is paid once per direction.
    size_t deepest = 0;
    for (const PackedTree& tree : options.packing->trees) deepest = std::max(deepest, tree.edges.size());
    const double passes = collective == Collective::kAllReduce ? 2 : 1;
    const Seconds latency = passes * static_cast<double>(deepest) * std::max(shape.inner.latency, shape.outer.latency);
    costs.push_back({{Algorithm::kForest, 0},
                     PackedTime(collective, *options.packing, bytes, options.packing_unit) + latency, 1});
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const AlgorithmCost& a, const AlgorithmCost& b) { return a.time < b.time; });
  return costs;
}

std::vector<NcclEntry> NcclTableOn(const NcclGraph& graph, Collective collective, Bytes bytes, BitsPerSecond node_rate) {
  std::vector<NcclEntry> entries = NcclTable(graph, collective, bytes);
  if (graph.nodes <= 1) return entries;
  const double nodes = graph.nodes;
  for (NcclEntry& entry : entries) {
    const bool ring = entry.algorithm == NcclAlgorithm::kRing;
    double crossings = graph.nodes == 2 ? 1 : 2;  // of the data, through a node's way out, in each direction
    if (ring) crossings = collective == Collective::kAllReduce ? 2 * (nodes - 1) / nodes : (nodes - 1) / nodes;
    if (collective == Collective::kBroadcast) crossings = 1;
    const double wire_us = 1e6 * (bytes / node_rate).count() * crossings;
    const double own_us = 1e6 * entry.time.count() - entry.latency_us;
    entry.time = Seconds(1e-6 * (entry.latency_us + std::max(own_us, wire_us)));
    if (wire_us > own_us) entry.bandwidth_gbs = static_cast<double>(bytes.count()) / (1000 * wire_us);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const NcclEntry& a, const NcclEntry& b) { return a.time < b.time; });
  return entries;
}

}  // namespace weft::planner::collectives

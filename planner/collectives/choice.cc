#include "planner/collectives/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/collectives/packed_schedule.h"
#include "planner/collectives/schedule_cost.h"

namespace weft::planner::inline collectives {
namespace {

Status CheckNetwork(const GroupNetwork& network, int32_t ranks) {
  const bool inner = network.gpus_per_node <= 1 || network.intra_rate > 0;
  const bool outer = ranks <= network.gpus_per_node || network.nic_rate > 0;
  if (ranks >= 1 && inner && outer) return Ok();
  return Fail(Code::kInvalidArgument,
              fmt::format("choice of algorithm: {} ranks in nodes of {}, {:g} byte/s inside and {:g} across, expected at least 1 "
                          "rank and positive rates", ranks, network.gpus_per_node, network.intra_rate, network.nic_rate));
}

/// The candidate's parameter on these nodes; nothing where it makes no sense there.
std::optional<AlgorithmSpec> OnNodes(Algorithm algorithm, Collective collective, const GroupNetwork& network, int32_t ranks) {
  const auto group = static_cast<int32_t>(std::min<int64_t>(ranks, network.gpus_per_node));
  const bool equal = ranks % group == 0;
  const bool levels = group > 1 && ranks > group;
  switch (algorithm) {
    case Algorithm::kHierarchical:
      if (!levels || (!equal && collective != Collective::kAllReduce && collective != Collective::kAllToAll)) return {};
      return AlgorithmSpec{algorithm, group};
    case Algorithm::kTorus:
      if (!levels || !equal) return {};
      return AlgorithmSpec{algorithm, group};
    case Algorithm::kForest: return {};  // priced by its packing
    case Algorithm::kParameterServer: return AlgorithmSpec{algorithm, ranks};
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

Result<std::vector<AlgorithmCost>> Choose(Collective collective, const GroupNetwork& network, int32_t ranks, Bytes bytes,
                                          const ChoiceOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckNetwork(network, ranks));
  std::vector<AlgorithmCost> costs;
  for (const Algorithm algorithm : AlgorithmsFor(collective)) {
    const std::optional<AlgorithmSpec> spec = OnNodes(algorithm, collective, network, ranks);
    if (!spec) continue;
    const int32_t slices = SlicesOf(algorithm, bytes, options.slice);
    WEFT_ASSIGN_OR_RETURN(const Seconds time, AlgorithmTime(*spec, collective, network, ranks, bytes, slices));
    costs.push_back({*spec, time, slices});
  }
  if (options.packing != nullptr && options.packing_unit.value() > 0 && collective != Collective::kAllToAll &&
      collective != Collective::kBroadcast && collective != Collective::kSendRecv) {
    // Trees are at most as deep as there are ranks; the latency of the deepest is paid once per direction.
    size_t deepest = 0;
    for (const PackedTree& tree : options.packing->trees) deepest = std::max(deepest, tree.edges.size());
    const double passes = collective == Collective::kAllReduce ? 2 : 1;
    const Seconds latency(passes * static_cast<double>(deepest) * std::max(network.intra_latency, network.nic_latency));
    costs.push_back({{Algorithm::kForest, 0},
                     PackedTime(collective, *options.packing, bytes, options.packing_unit) + latency, 1});
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const AlgorithmCost& a, const AlgorithmCost& b) { return a.time < b.time; });
  return costs;
}

std::vector<NcclCost> CellsOn(const GroupNetwork& network, const Group& group, Collective collective, Bytes bytes,
                              std::span<const NcclEntry> believed) {
  std::vector<NcclCost> costs;
  for (const NcclEntry& cell : believed) {
    const std::optional<double> time = CollectiveTime(network, group, collective, cell.algorithm, cell.protocol,
                                                      static_cast<double>(bytes.count()));
    if (time) costs.push_back({cell.algorithm, cell.protocol, Seconds(*time)});
  }
  std::stable_sort(costs.begin(), costs.end(), [](const NcclCost& a, const NcclCost& b) { return a.time < b.time; });
  return costs;
}

}  // namespace weft::planner::collectives

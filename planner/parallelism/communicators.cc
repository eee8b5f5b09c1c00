// CostModel::Communicators: the operations of all stages, kind by kind, with what they cost and what they cross.
#include <algorithm>
#include <array>
#include <map>

#include "planner/parallelism/cost_tables.h"

namespace weft::planner::inline parallelism {
namespace {

/// Where the estimate has what is exposed of this kind; null: not priced, being small beside the others.
Seconds Estimate::* PartOf(CommunicatorKind kind) {
  switch (kind) {
    case CommunicatorKind::kTensor: return &Estimate::tensor;
    case CommunicatorKind::kContext: return &Estimate::context;
    case CommunicatorKind::kExpert:
    case CommunicatorKind::kExpertTensor: return &Estimate::expert;
    case CommunicatorKind::kData:
    case CommunicatorKind::kExpertData: return &Estimate::data;
    case CommunicatorKind::kPipeline: return &Estimate::pipeline;
    case CommunicatorKind::kEmbedding:
    case CommunicatorKind::kWorld: return nullptr;
  }
  return nullptr;
}

/// The name of the smallest unit that holds the group.
std::string Crossed(const ClusterSpec& cluster, const GroupNetwork& network, const Group& group) {
  std::vector<int64_t> units;
  for (const FabricTier& tier : cluster.tiers) units.push_back(tier.nodes * cluster.gpus_per_node);
  const size_t tier = OutermostTier(network, group, units);
  if (tier == 0) return "node";
  return cluster.tiers.empty() ? "network" : cluster.tiers[std::min(tier, units.size()) - 1].name;
}

struct Sum {
  Seconds seconds{0}, largest{0};
  FractionalBytes sent;
  Group group;
  std::string_view algorithm;
};

}  // namespace

std::vector<CommunicatorUse> CostModel::Communicators(const Strategy& s, const Estimate& estimate, const OperationList& list) const {
  const Impl& impl = *impl_;
  const auto m = static_cast<double>(list.micro_batches);
  std::map<CommunicatorKind, Sum> busiest;
  for (const StageOperations& stages : list.classes) {
    std::map<CommunicatorKind, Sum> own;
    for (const Operation& o : stages.operations) {
      if (o.kind == OperationKind::kCompute || o.bytes <= 0) continue;
      const double times = o.pass == OperationPass::kOnce ? 1 : m;
      Sum& sum = own[o.communicator];
      const Seconds seconds(times * o.seconds);
      sum.seconds += seconds;
      sum.sent += FractionalBytes(times * BytesSent(o));
      if (seconds < sum.largest) continue;
      sum.largest = seconds;
      sum.algorithm = o.algorithm;
      sum.group = o.communicator == CommunicatorKind::kPipeline ? Group{s.pp, o.group.stride} : o.group;
    }
    for (const auto& [kind, sum] : own) {
      Sum& most = busiest[kind];
      if (sum.seconds > most.seconds) most = sum;
    }
  }
  std::vector<CommunicatorUse> uses;
  for (const auto& [kind, sum] : busiest) {
    Seconds sharing{0};  // of all kinds that the estimate has as one
    for (const auto& [other, theirs] : busiest) sharing += PartOf(other) == PartOf(kind) ? theirs.seconds : Seconds(0);
    const Seconds exposed = PartOf(kind) == nullptr ? Seconds(0) : estimate.*PartOf(kind);
    uses.push_back({.kind = kind, .size = sum.group.size, .count = GpuCount(s) / (kind == CommunicatorKind::kEmbedding ? s.pp : sum.group.size),
                    .bytes = sum.sent.Truncated(), .algorithm = sum.algorithm,
                    .crosses = Crossed(impl.cluster, impl.hardware.network, sum.group), .seconds = sum.seconds,
                    .exposed = sharing > Seconds(0) ? exposed * (sum.seconds / sharing) : Seconds(0)});
  }
  return uses;
}

}  // namespace weft::planner::parallelism

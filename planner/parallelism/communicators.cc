// CostModel::Communicators: the volumes of all stages, kind by kind, with what they cost and what they cross.
#include <algorithm>
#include <array>
#include <map>

#include "planner/parallelism/cost_tables.h"

namespace weft::planner {
namespace {

using Type = CommunicationVolume::Type;

constexpr std::array<std::string_view, 9> kNames = {"tensor", "context",  "expert",    "expert-tensor", "data",
                                                    "expert-data", "pipeline", "embedding", "world"};

bool IsData(CommunicatorKind kind) { return kind == CommunicatorKind::kData || kind == CommunicatorKind::kExpertData; }

/// One operation of a line.
struct Priced {
  double seconds = 0;
  double sent = 0;  // bytes that one rank sends
  std::string_view algorithm;
};

Priced PriceAllReduce(const GroupNetwork& network, const Strategy& s, const CommunicationVolume& line, const Group& group) {
  const double bytes = static_cast<double>(line.bytes.count()), n = static_cast<double>(group.size);
  // Gradients go in buckets, and the strategy says how they are summed.
  const double calls = IsData(line.kind) ? std::max(1.0, bytes / static_cast<double>(s.bucket_bytes.count())) : 1;
  Priced priced{.seconds = calls * AllReduceTime(network, group, bytes / calls), .sent = 2 * (n - 1) / n * bytes,
                .algorithm = TreeIsFaster(network, group, bytes / calls) ? "tree" : "ring"};
  if (!IsData(line.kind) || s.data_sync == DataSync::kRing) return priced;
  if (s.data_sync == DataSync::kParameterServer) {
    return {calls * ParameterServerTime(network, group, bytes / calls), priced.sent, "parameter-server"};
  }
  const double levels = calls * HierarchicalAllReduceTime(network, group, bytes / calls);
  return levels < priced.seconds ? Priced{levels, priced.sent, "hierarchical"} : priced;
}

Priced Price(const GroupNetwork& network, const Strategy& s, const CommunicationVolume& line) {
  const Group group{line.group, line.stride};
  const double bytes = static_cast<double>(line.bytes.count()), n = static_cast<double>(group.size);
  switch (line.type) {
    case Type::kAllReduce: return PriceAllReduce(network, s, line, group);
    case Type::kAllGather:
    case Type::kReduceScatter: return {GatherTime(network, group, bytes), (n - 1) / n * bytes, "ring"};
    case Type::kAllToAll: return {AllToAllTime(network, group, bytes), (n - 1) / n * bytes, "direct"};
    case Type::kBroadcast:
    case Type::kReduce: return {GatherTime(network, group, bytes), bytes, "ring"};
    case Type::kSendReceive: {
      const bool pipeline = line.kind == CommunicatorKind::kPipeline;  // whose lines are pairs of stages
      return {pipeline ? SendTime(network, {s.pp, line.stride}, bytes) : RingStepTime(network, group, bytes), bytes, "send"};
    }
  }
  return {};
}

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
  double seconds = 0, sent = 0, largest = 0;
  Group group;
  std::string_view algorithm;
};

}  // namespace

std::string_view CommunicatorKindName(CommunicatorKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::vector<CommunicatorUse> CostModel::Communicators(const Strategy& s, const Estimate& estimate) const {
  const Impl& impl = *impl_;
  const double m = static_cast<double>(MicroBatches(s, impl.job.global_batch));
  std::map<CommunicatorKind, Sum> busiest;
  for (int64_t stage = 0; stage < s.pp; ++stage) {
    std::map<CommunicatorKind, Sum> own;
    for (const CommunicationVolume& line : CommunicationVolumes(s, stage)) {
      const Priced priced = Price(impl.hardware.network, s, line);
      const double times = line.count * (line.per_iteration ? 1 : m);
      Sum& sum = own[line.kind];
      sum.seconds += times * priced.seconds;
      sum.sent += times * priced.sent;
      if (times * priced.seconds < sum.largest) continue;
      sum.largest = times * priced.seconds;
      sum.algorithm = priced.algorithm;
      sum.group = line.kind == CommunicatorKind::kPipeline ? Group{s.pp, line.stride} : Group{line.group, line.stride};
    }
    for (const auto& [kind, sum] : own) {
      Sum& most = busiest[kind];
      if (sum.seconds > most.seconds) most = sum;
    }
  }
  std::vector<CommunicatorUse> uses;
  for (const auto& [kind, sum] : busiest) {
    double sharing = 0;  // seconds of all kinds that the estimate has as one
    for (const auto& [other, theirs] : busiest) sharing += PartOf(other) == PartOf(kind) ? theirs.seconds : 0;
    const Seconds exposed = PartOf(kind) == nullptr ? Seconds(0) : estimate.*PartOf(kind);
    uses.push_back({.kind = kind, .size = sum.group.size, .count = GpuCount(s) / (kind == CommunicatorKind::kEmbedding ? s.pp : sum.group.size),
                    .bytes = Bytes(static_cast<int64_t>(sum.sent)), .algorithm = sum.algorithm,
                    .crosses = Crossed(impl.cluster, impl.hardware.network, sum.group), .seconds = Seconds(sum.seconds),
                    .exposed = sharing > 0 ? exposed * (sum.seconds / sharing) : Seconds(0)});
  }
  return uses;
}

}  // namespace weft::planner

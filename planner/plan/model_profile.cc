#include "planner/plan/model_profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/parallelism/data_time.h"

namespace weft::planner {
namespace {

/// Bytes between nodes as they add up, rank by rank.
class NodeTraffic {
 public:
  explicit NodeTraffic(int64_t gpus_per_node) : gpus_per_node_(gpus_per_node) {}

  void Add(int64_t from_rank, int64_t to_rank, double bytes) {
    const int64_t from = from_rank / gpus_per_node_, to = to_rank / gpus_per_node_;
    if (from == to) return;
    sums_[{static_cast<int32_t>(from), static_cast<int32_t>(to)}] += bytes;
    total_ += bytes;
  }

  double total() const { return total_; }

  /// Those of at least so many bytes.
  std::vector<PairBytes> Pairs(double least) const {
    std::vector<PairBytes> pairs;
    for (const auto& [nodes, bytes] : sums_) {
      if (bytes >= least) pairs.push_back({nodes.first, nodes.second, Bytes(std::llround(bytes))});
    }
    return pairs;
  }

 private:
  int64_t gpus_per_node_;
  double total_ = 0;
  std::map<std::pair<int32_t, int32_t>, double> sums_;
};

/// The stage that a rank belongs to. Ranks: tp fastest, then cp, then dp and pp in the strategy's order.
int64_t StageOf(const Strategy& s, int64_t rank) {
  const int64_t block = s.tp * s.cp;
  return s.rank_order == RankOrder::kTpCpPpDp ? rank / block % s.pp : rank / (block * s.dp);
}

/// What one rank of `stage` sends for `line`, one operation.
class LineTraffic {
 public:
  LineTraffic(const Strategy& strategy, const CommunicationVolume& line, int64_t stage)
      : strategy_(strategy), line_(line), stage_(stage), ranks_(GpuCount(strategy)) {
    const Group replicas = ReplicaGroup(strategy);
    // Pipeline neighbours lie between replicas, but not between context neighbours: no single stride says so.
    two_strides_ = strategy.rank_order == RankOrder::kTpCpPpDp && strategy.dp > 1 && strategy.cp > 1 &&
                   line.group == replicas.size && line.stride == replicas.stride;
  }

  void Add(int64_t rank, double operations, NodeTraffic* traffic) const {
    const double n = static_cast<double>(line_.group), bytes = operations * static_cast<double>(line_.bytes.count());
    switch (line_.type) {
      case CommunicationVolume::Type::kCompute: return;
      case CommunicationVolume::Type::kAllReduce: return Send(rank, Next(rank), 2 * (n - 1) / n * bytes, traffic);
      case CommunicationVolume::Type::kAllGather:
      case CommunicationVolume::Type::kReduceScatter: return Send(rank, Next(rank), (n - 1) / n * bytes, traffic);
      // A pipelined chain: every rank but the last hands everything on.
      case CommunicationVolume::Type::kBroadcast:
        if (Place(rank) + 1 < line_.group) Send(rank, Next(rank), bytes, traffic);
        return;
      case CommunicationVolume::Type::kSendReceive: return Send(rank, Next(rank), bytes, traffic);
      case CommunicationVolume::Type::kAllToAll:
        for (int64_t k = 0; k < line_.group; ++k) {
          const int64_t peer = rank + (k - Place(rank)) * line_.stride;
          if (peer != rank) Send(rank, peer, bytes / n, traffic);
        }
    }
  }

 private:
  int64_t Place(int64_t rank) const { return rank / line_.stride % line_.group; }

  /// The rank that comes after `rank` in its group. Groups of two are pairs of stages, named from the sender's side
  /// where they hand on activations, from the first stage where both hold the embedding.
  int64_t Next(int64_t rank) const {
    if (line_.what == "activations") return Wrapped(rank, line_.stride, stage_ + 1 < strategy_.pp);
    if (line_.what == "activation gradients") return Wrapped(rank, -line_.stride, stage_ > 0);
    if (two_strides_) return NextReplica(rank);
    if (line_.what == "tied embedding") return stage_ == 0 ? rank + line_.stride : rank - line_.stride;
    const int64_t place = Place(rank);
    return place + 1 < line_.group ? rank + line_.stride : rank - place * line_.stride;
  }

  /// Along the context ranks of one replica, then on to the next replica.
  int64_t NextReplica(int64_t rank) const {
    const int64_t tp = strategy_.tp, cp = strategy_.cp, block = tp * cp * strategy_.pp;
    const int64_t context = rank / tp % cp, replica = rank / block;
    if (context + 1 < cp) return rank + tp;
    const int64_t first = rank - context * tp;
    return replica + 1 < strategy_.dp ? first + block : first - replica * block;
  }

  /// The neighbouring stage; past the end of the pipeline (chunks) the one at its other end.
  int64_t Wrapped(int64_t rank, int64_t step, bool inside) const {
    return inside ? rank + step : rank - step * (strategy_.pp - 1);
  }

  void Send(int64_t rank, int64_t peer, double bytes, NodeTraffic* traffic) const {
    if (peer >= 0 && peer < ranks_) traffic->Add(rank, peer, bytes);
  }

  const Strategy& strategy_;
  const CommunicationVolume& line_;
  int64_t stage_, ranks_;
  bool two_strides_ = false;
};

/// Communication between nodes of one kind: how long it takes alone, and what of that the prediction waits for.
struct Waiting {
  Seconds wire{0}, exposed{0};
  Seconds hidden() const { return wire - exposed; }
};

/// What of the prediction waits for communication of passes that leaves a node, gathers of parameters not counted.
Seconds PassesExposed(const Strategy& s, const Estimate& parts, int64_t gpus_per_node) {
  Seconds exposed{0};
  if (s.tp > gpus_per_node) exposed += parts.tensor;
  if (s.cp > 1 && s.tp * s.cp > gpus_per_node) exposed += parts.context;
  if (s.ep * s.etp > gpus_per_node) exposed += parts.expert;
  if (s.pp > 1 && GpuCount(s) > gpus_per_node) exposed += parts.pipeline;
  return exposed;
}

Seconds DataExposed(const Strategy& s, const Estimate& parts, int64_t gpus_per_node) {
  const Group replicas = ReplicaGroup(s);
  return replicas.size > 1 && replicas.size * replicas.stride > gpus_per_node ? parts.data : Seconds(0);
}

/// Time of the bytes over the nodes' own NICs: of the node that sends or receives most.
Seconds AloneOverNics(const std::vector<PairBytes>& pairs, int64_t nodes, BitsPerSecond nic_rate) {
  std::vector<Bytes> out(static_cast<size_t>(nodes)), in(out);
  for (const PairBytes& pair : pairs) {
    out[static_cast<size_t>(pair.from)] += pair.bytes;
    in[static_cast<size_t>(pair.to)] += pair.bytes;
  }
  return std::max(std::ranges::max(out), std::ranges::max(in)) / nic_rate;
}

std::vector<PairBytes> Divided(std::vector<PairBytes> pairs, double by) {
  for (PairBytes& pair : pairs) pair.bytes = Bytes(std::llround(static_cast<double>(pair.bytes.count()) / by));
  return pairs;
}

std::vector<PairBytes> Together(const std::vector<PairBytes>& a, const std::vector<PairBytes>& b) {
  std::map<std::pair<int32_t, int32_t>, Bytes> sums;
  for (const std::vector<PairBytes>* pairs : {&a, &b}) {
    for (const PairBytes& pair : *pairs) sums[{pair.from, pair.to}] += pair.bytes;
  }
  std::vector<PairBytes> all;
  for (const auto& [nodes, bytes] : sums) all.push_back({nodes.first, nodes.second, bytes});
  return all;
}

/// The bursts of an iteration: model_profile.h says where they lie.
std::vector<ProfileBurst> MakeBursts(const IterationTraffic& traffic, Seconds compute, const Waiting& passes, const Waiting& once,
                                   int64_t micro_batches, int64_t most) {
  std::vector<ProfileBurst> bursts;
  const Seconds room = compute - once.hidden();
  if (room < passes.hidden()) {
    return {{{std::max(Seconds(0), room - passes.hidden()), compute}, Together(traffic.passes, traffic.once)}};
  }
  const int64_t count = traffic.passes.empty() ? 0 : std::min(micro_batches, most);
  const auto n = static_cast<double>(count);
  Seconds before{0};
  for (int64_t b = 0; b < count; ++b) {
    const Seconds needed = std::min(compute, room * (static_cast<double>(b + 1) / n));
    bursts.push_back({{std::max(before, needed - passes.hidden() / n), needed}, Divided(traffic.passes, n)});
    before = needed;
  }
  if (!traffic.once.empty()) bursts.push_back({{std::max(before, room), compute}, traffic.once});
  return bursts;
}

}  // namespace

IterationTraffic ListTraffic(const OperationList& list, const Strategy& strategy, int64_t gpus_per_node) {
  NodeTraffic passes(gpus_per_node), once(gpus_per_node);
  const auto micro_batches = static_cast<double>(list.micro_batches);
  for (int64_t stage = 0; stage < strategy.pp; ++stage) {
    for (const CommunicationVolume& line : CostModel::CommunicationVolumes(list, stage)) {
      if (line.group < 2 || line.group > GpuCount(strategy) || line.stride < 1) continue;
      const double operations = line.count * (line.per_iteration ? 1 : micro_batches);
      const LineTraffic sent(strategy, line, stage);
      for (int64_t rank = 0; rank < GpuCount(strategy); ++rank) {
        if (StageOf(strategy, rank) == stage) sent.Add(rank, operations, line.per_iteration ? &once : &passes);
      }
    }
  }
  const double least = 1e-6 * (passes.total() + once.total());
  return {passes.Pairs(least), once.Pairs(least)};
}

IterationTraffic StrategyTraffic(const CostModel& model, const Strategy& strategy, int64_t gpus_per_node) {
  CostModel::Scratch scratch;
  return ListTraffic(model.Lower(strategy, scratch), strategy, gpus_per_node);
}

Result<ModelProfile> ProfileOf(const JobSpec& job, const ClusterSpec& cluster, JobPlan plan) {
  ModelProfile profile{.plan = std::move(plan)};
  const JobSpec whole = Resized(job, GpuCount(profile.plan.strategy), job.global_batch);
  WEFT_ASSIGN_OR_RETURN(const CostModel model,
                        CostModel::Make(whole, cluster, Calibration(), {.framework = profile.plan.framework}));
  const Strategy& strategy = profile.plan.strategy;
  IterationTraffic traffic = StrategyTraffic(model, strategy, cluster.gpus_per_node);
  traffic = {Divided(std::move(traffic.passes), cluster.network_efficiency), Divided(std::move(traffic.once), cluster.network_efficiency)};
  const Prediction& predicted = profile.plan.predicted;
  Waiting passes{.wire = AloneOverNics(traffic.passes, cluster.nodes, cluster.nic_rate)};
  Waiting once{.wire = AloneOverNics(traffic.once, cluster.nodes, cluster.nic_rate)};
  // From ZeRO-2 on passes gather parameters and scatter gradients: what data parallelism waits for is theirs by their share.
  const Seconds data = DataExposed(strategy, predicted.parts, cluster.gpus_per_node);
  const Seconds both = passes.wire + once.wire;
  const double share = strategy.zero_stage >= 2 && both.count() > 0 ? passes.wire / both : 0;
  passes.exposed = std::min(passes.wire, PassesExposed(strategy, predicted.parts, cluster.gpus_per_node) + data * share);
  once.exposed = std::min(once.wire, data * (1 - share));
  profile.compute = predicted.iteration - passes.exposed - once.exposed;
  const int64_t micro_batches = MicroBatches(strategy, whole.global_batch);
  profile.bursts = MakeBursts(traffic, profile.compute, passes, once, micro_batches, kMostPassBursts);
  profile.fine = MakeBursts(traffic, profile.compute, passes, once, micro_batches, kMostFineBursts);
  return profile;
}

}  // namespace weft::planner

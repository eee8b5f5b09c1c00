#include "planner/parallelism/data_time.h"

#include <algorithm>
#include <string_view>

#include "planner/parallelism/collective_time.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;

// Read and written per parameter by Adam: gradient 4, master and moments 12 each way, parameter 2.
constexpr Bytes kOptimizerTraffic = 30_B;

Seconds ReduceAll(const CalibratedHardware& m, const Strategy& s, const Group& group, FractionalBytes bytes) {
  switch (s.data_sync) {
    case DataSync::kRing: return AllReduceTime(m.network, group, bytes);
    case DataSync::kHierarchical: return std::min(AllReduceTime(m.network, group, bytes), HierarchicalAllReduceTime(m.network, group, bytes));
    case DataSync::kParameterServer: return ParameterServerTime(m.network, group, bytes);
    case DataSync::kSwitch: return SwitchSumTime(m.network, group, bytes);
    case DataSync::kGossip: return GossipTime(m.network, group, bytes);
  }
  return Seconds(0);
}

/// A gradient on the wire; fp8 has a scale of four bytes for every 128.
FractionalBytes WireBytes(const Strategy& s, const StateBytes& state) {
  switch (s.gradient_wire) {
    case GradientWire::kWhole: return state.gradient_sent;
    case GradientWire::kBf16: return std::min(FractionalBytes(2), state.gradient_sent);
    case GradientWire::kFp8: return std::min(FractionalBytes(1 + 4.0 / 128), state.gradient_sent);
  }
  return state.gradient_sent;
}

/// What making a narrow gradient and reading it back moves in memory; with error feedback the remainder as well, in bf16.
FractionalBytes ConversionTraffic(const Strategy& s, const StateBytes& state) {
  if (s.gradient_wire == GradientWire::kWhole) return {};
  const FractionalBytes both_ways = 2 * (state.gradient_sent + WireBytes(s, state));
  return s.gradient_wire == GradientWire::kFp8 ? both_ways + 2 * kRemainderBytes : both_ways;
}

/// Of ReduceAll's answer.
std::string_view ReductionOf(const CalibratedHardware& m, const Strategy& s, const Group& group, FractionalBytes bytes) {
  if (s.data_sync == DataSync::kParameterServer) return DataSyncName(s.data_sync);
  const bool elsewhere = s.data_sync == DataSync::kSwitch || s.data_sync == DataSync::kGossip;
  if (elsewhere && group.size * group.stride > m.network.gpus_per_node) return DataSyncName(s.data_sync);
  const bool levels = s.data_sync == DataSync::kHierarchical &&
                      HierarchicalAllReduceTime(m.network, group, bytes) < AllReduceTime(m.network, group, bytes);
  if (levels) return "hierarchical";
  return AlgorithmName(AllReduceAlgorithm(m.network, group, bytes));
}

/// `bytes` of one call; `sum`: an all-reduce, else a ring of the given kind.
void Write(std::vector<Operation>* operations, const CalibratedHardware& m, const Strategy& s, std::string_view what, OperationKind kind,
           OperationPass pass, CommunicatorKind communicator, const Group& group, double calls, FractionalBytes bytes,
           Seconds seconds, std::string_view behind) {
  if (operations == nullptr || group.size <= 1 || (calls * bytes).count() <= 0) return;
  // Replicas one by one send all to a neighbour.
  const bool sends = kind == OperationKind::kAllReduce && s.data_sync == DataSync::kGossip && GossipUnit(m.network, group) == 1;
  operations->push_back({.what = what,
                         .kind = sends ? OperationKind::kSendReceive : kind,
                         .pass = pass,
                         .calls = calls,
                         .seconds = seconds.count(),
                         .communicator = communicator,
                         .group = group,
                         .bytes = bytes.count(),
                         .algorithm = kind == OperationKind::kAllReduce ? ReductionOf(m, s, group, bytes) : "ring",
                         .hides_behind = behind});
}

/// Calls pay their latency each.
double Buckets(const Strategy& s, FractionalBytes bytes) { return std::max(1.0, bytes / s.bucket_bytes); }

/// Of all parameters after the step.
double Gathers(const CalibratedHardware& m, const Strategy& s, double parameters, FractionalBytes gathered, FractionalBytes gradient) {
  if (m.parameter_bucket > FractionalBytes()) return std::max(1.0, parameters * gathered / m.parameter_bucket);
  return Buckets(s, parameters * gradient);
}

}  // namespace

Group ReplicaGroup(const Strategy& s, bool spatial) {
  if (spatial) return {s.dp * s.tp, 1};
  const int64_t stride = s.rank_order == RankOrder::kTpCpPpDp && s.dp > 1 && s.cp == 1 ? s.tp * s.pp : s.tp;
  return {s.dp * s.cp, stride};
}

Group ExpertReplicaGroup(const Strategy& s) { return {std::max<int64_t>(1, ExpertDp(s)), s.ep * s.etp}; }

Seconds GradientSumTime(const CalibratedHardware& m, const Strategy& s, const StateBytes& state, const Group& group,
                        double parameters, std::vector<Operation>* operations) {
  if (group.size <= 1 || parameters <= 0) return Seconds(0);
  const FractionalBytes bytes = parameters * state.gradient_sent;
  const double calls = Buckets(s, bytes);
  const Seconds seconds = calls * ReduceAll(m, s, group, bytes / calls);
  Write(operations, m, s, "gradients", OperationKind::kAllReduce, OperationPass::kOnce, CommunicatorKind::kData, group, calls, bytes / calls,
        seconds, "last backward");
  return seconds;
}

Seconds ParameterGatherTime(const CalibratedHardware& m, const Strategy& s, const StateBytes& state, double parameters,
                            std::vector<Operation>* operations) {
  const Group all = ReplicaGroup(s);
  const Group within{s.shard_group > 0 ? std::min(s.shard_group, all.size) : all.size, all.stride};
  if (within.size <= 1 || parameters <= 0) return Seconds(0);
  const FractionalBytes bytes = parameters * state.gathered;
  const double gathers = Gathers(m, s, parameters, state.gathered, state.gradient_sent);
  const Seconds seconds = gathers * GatherTime(m.network, within, bytes / gathers);
  Write(operations, m, s, "parameters", OperationKind::kAllGather, OperationPass::kOnce, CommunicatorKind::kData, within, gathers,
        bytes / gathers, seconds, "first forward");
  return seconds;
}

Seconds OptimizerTime(const CalibratedHardware& m, double parameters) { return kOptimizerTraffic * parameters / m.memory_rate; }

DataTime ComputeDataTime(const CalibratedHardware& m, const SoftwareStack& stack, const Strategy& s, const StateBytes& state,
                         const StageShape& shape, bool spatial, std::vector<Operation>* operations) {
  DataTime time;
  const double plain = shape.dense_parameters + shape.edge_parameters, experts = shape.expert_parameters;
  // With local steps the exchange comes once in so many iterations: each has its share.
  const FractionalBytes wire = WireBytes(s, state);
  const double often = 1 / static_cast<double>(s.local_steps);
  const Group dense = ReplicaGroup(s, spatial);
  const Group expert = ExpertReplicaGroup(s);
  const int64_t shards = s.shard_group > 0 ? s.shard_group : dense.size;
  // Sharded gradients are reduced after every micro-batch, unit by unit: ComputeUnitTime has them.
  const bool per_unit = s.zero_stage >= 2 && !GradientsStayWhole(stack, s);
  const auto exchange = [&](const Group& group, double parameters, bool units, bool routed = false, double apart = 0) {
    if (group.size <= 1 || parameters == 0) return;
    const FractionalBytes bytes = parameters * wire;
    const double calls = Buckets(s, bytes);
    const bool scatter = s.zero_stage >= 1 && shards >= group.size && !SumsShards(stack, s);
    const auto cost = [&](FractionalBytes size) {
      return scatter ? GatherTime(m.network, group, size) : ReduceAll(m, s, group, size);
    };
    const CommunicatorKind kind = routed ? CommunicatorKind::kExpertData : CommunicatorKind::kData;
    if (!units) {
      const Seconds one = cost(bytes / calls);
      time.gradients += often * calls * one;
      time.tail = std::max(time.tail, often * one);
      Write(operations, m, s, routed ? "expert gradients" : "gradients", scatter ? OperationKind::kReduceScatter : OperationKind::kAllReduce,
            OperationPass::kOnce, kind, group, often * calls, bytes / calls, often * calls * one,
            s.local_steps > 1 ? "" : "last backward");
    }
    // Embedding and head under ZeRO-3 are no units of the passes, and are gathered once: in the list, though not yet in the price.
    const bool edges = s.zero_stage == 3 && !s.keep_after_forward && !stack.fsdp_units;
    const bool gathered = s.zero_stage == 1 || s.zero_stage == 2 || (s.keep_after_forward && !GathersEachPass(stack, s)) || edges;
    if (gathered && parameters > apart) {
      const Group within{std::min(shards, group.size), group.stride};
      const FractionalBytes parameter_bytes = (parameters - apart) * state.gathered;
      const double gathers = Gathers(m, s, parameters - apart, state.gathered, state.gradient_sent);
      const Seconds seconds = GatherTime(m.network, within, parameter_bytes / gathers) * gathers;
      if (!edges) time.parameters += seconds;
      Write(operations, m, s, routed ? "expert parameters" : "parameters", OperationKind::kAllGather, OperationPass::kOnce, kind, within,
            gathers, parameter_bytes / gathers, seconds, "first forward");
    }
  };
  if (s.zero_stage == 3 && !s.keep_after_forward && !GradientsStayWhole(stack, s)) {
    exchange(dense, shape.edge_parameters, false, false, shape.edge_slices);
  } else {
    exchange(dense, shape.dense_parameters, per_unit);
    exchange(dense, shape.edge_parameters, false);
    exchange(expert, experts, per_unit, true);
  }
  const double local = s.zero_stage >= 1 ? static_cast<double>(shards) : 1;
  const double local_experts = std::min(local, static_cast<double>(expert.size));
  // What is scattered unit by unit is converted there.
  const double converted = per_unit ? shape.edge_parameters : plain + experts;
  time.optimizer = (kOptimizerTraffic * (plain / local + experts / local_experts) + often * ConversionTraffic(s, state) * converted) /
                   m.memory_rate;
  return time;
}

UnitTime ComputeUnitTime(const CalibratedHardware& m, const SoftwareStack& stack, const Strategy& s, const StateBytes& state,
                         double unit_parameters, std::vector<Operation>* operations, bool experts) {
  const Group dense = ReplicaGroup(s), all = experts ? ExpertReplicaGroup(s) : dense;
  const int64_t shards = std::min(s.shard_group > 0 ? s.shard_group : dense.size, all.size);
  const Group within{shards, all.stride};
  const bool sums = SumsShards(stack, s);
  const FractionalBytes gathered = unit_parameters * state.gathered, sent = unit_parameters * WireBytes(s, state);
  UnitTime unit;
  unit.gather = GatherTime(m.network, within, gathered);
  const Seconds scatter = sums ? AllReduceTime(m.network, within, sent) : GatherTime(m.network, within, sent);
  unit.scatter = scatter + ConversionTraffic(s, state) * unit_parameters / m.memory_rate;
  const auto write = [&](std::string_view what, OperationKind kind, OperationPass pass, const Group& group, FractionalBytes bytes,
                         Seconds seconds, std::string_view behind) {
    const CommunicatorKind communicator = experts ? CommunicatorKind::kExpertData : CommunicatorKind::kData;
    Write(operations, m, s, what, kind, pass, communicator, group, 1, bytes, seconds, behind);
  };
  write(experts ? "expert unit parameters" : "unit parameters", OperationKind::kAllGather, OperationPass::kForward, within, gathered,
        unit.gather, "the unit before");
  write(experts ? "expert unit gradients" : "unit gradients", sums ? OperationKind::kAllReduce : OperationKind::kReduceScatter,
        OperationPass::kData, within, sent, scatter,
        "the unit behind");
  if (shards < all.size) {
    const Group across{all.size / shards, all.stride * shards};
    const FractionalBytes share = sent / static_cast<double>(shards);
    const Seconds seconds = AllReduceTime(m.network, across, share);
    unit.scatter += seconds;
    write(experts ? "expert sums over shard groups" : "sums over shard groups", OperationKind::kAllReduce, OperationPass::kData, across,
          share, seconds, "the unit behind");
  }
  return unit;
}

}  // namespace weft::planner::parallelism

#include "planner/parallelism/data_time.h"

#include <algorithm>

namespace weft::planner {
namespace {

// Read and written per parameter by Adam: gradient 4, master and moments 12 each way, parameter 2.
constexpr double kOptimizerTraffic = 30;

double ReduceAll(const CalibratedHardware& m, const Strategy& s, const Group& group, double bytes) {
  switch (s.data_sync) {
    case DataSync::kRing: return AllReduceTime(m.network, group, bytes);
    case DataSync::kHierarchical: return std::min(AllReduceTime(m.network, group, bytes), HierarchicalAllReduceTime(m.network, group, bytes));
    case DataSync::kParameterServer: return ParameterServerTime(m.network, group, bytes);
  }
  return 0;
}

/// Calls pay their latency each.
double Buckets(const Strategy& s, double bytes) {
  return std::max(1.0, bytes / static_cast<double>(s.bucket_bytes.count()));
}

}  // namespace

Group ReplicaGroup(const Strategy& s, bool spatial) {
  if (spatial) return {s.dp * s.tp, 1};
  const int64_t stride = s.rank_order == RankOrder::kTpCpPpDp && s.dp > 1 && s.cp == 1 ? s.tp * s.pp : s.tp;
  return {s.dp * s.cp, stride};
}

double GradientSumTime(const CalibratedHardware& m, const Strategy& s, const StateBytes& state, const Group& group, double parameters) {
  if (group.size <= 1 || parameters <= 0) return 0;
  const double bytes = parameters * state.gradient_sent, calls = Buckets(s, bytes);
  return calls * ReduceAll(m, s, group, bytes / calls);
}

double ParameterGatherTime(const CalibratedHardware& m, const Strategy& s, double parameters) {
  const Group all = ReplicaGroup(s);
  const Group within{s.shard_group > 0 ? std::min(s.shard_group, all.size) : all.size, all.stride};
  if (within.size <= 1 || parameters <= 0) return 0;
  const double bytes = parameters * 2, gathers = std::max(1.0, bytes / m.parameter_bucket);
  return gathers * GatherTime(m.network, within, bytes / gathers);
}

double OptimizerTime(const CalibratedHardware& m, double parameters) { return kOptimizerTraffic * parameters / m.memory_rate; }

DataTime ComputeDataTime(const CalibratedHardware& m, const SoftwareStack& stack, const Strategy& s, const StateBytes& state,
                         const StageShape& shape, bool spatial) {
  DataTime time;
  const double plain = shape.dense_parameters + shape.edge_parameters, experts = shape.expert_parameters;
  const Group dense = ReplicaGroup(s, spatial);
  const Group expert{std::max<int64_t>(1, ExpertDp(s)), s.ep * s.etp};
  const int64_t shards = s.shard_group > 0 ? s.shard_group : dense.size;
  // Sharded gradients are reduced after every micro-batch, unit by unit: ComputeUnitTime has them.
  const bool per_unit = s.zero_stage >= 2 && !GradientsStayWhole(stack, s);
  const auto exchange = [&](const Group& group, double parameters, bool units) {
    if (group.size <= 1 || parameters == 0) return;
    const double bytes = parameters * state.gradient_sent;
    const double calls = Buckets(s, bytes);
    const bool scatter = s.zero_stage >= 1 && shards >= group.size && !SumsShards(stack, s);
    const auto cost = [&](double size) { return scatter ? GatherTime(m.network, group, size) : ReduceAll(m, s, group, size); };
    if (!units) {
      time.gradients += calls * cost(bytes / calls);
      time.tail = std::max(time.tail, cost(bytes / calls));
    }
    if (s.zero_stage == 1 || s.zero_stage == 2 || (s.keep_after_forward && !GathersEachPass(stack, s))) {
      const Group within{std::min(shards, group.size), group.stride};
      const double parameter_bytes = parameters * 2;
      const double gathers = std::max(1.0, parameter_bytes / m.parameter_bucket);
      time.parameters += GatherTime(m.network, within, parameter_bytes / gathers) * gathers;
    }
  };
  if (s.zero_stage == 3 && !s.keep_after_forward && !GradientsStayWhole(stack, s)) {
    exchange(dense, shape.edge_parameters, false);
  } else {
    exchange(dense, shape.dense_parameters, per_unit);
    exchange(dense, shape.edge_parameters, false);
    exchange(expert, experts, per_unit);
  }
  const double local = s.zero_stage >= 1 ? static_cast<double>(shards) : 1;
  const double local_experts = std::min(local, static_cast<double>(expert.size));
  time.optimizer = kOptimizerTraffic * (plain / local + experts / local_experts) / m.memory_rate;
  return time;
}

UnitTime ComputeUnitTime(const CalibratedHardware& m, const SoftwareStack& stack, const Strategy& s, const StateBytes& state,
                         double unit_parameters) {
  const Group all = ReplicaGroup(s);
  const int64_t shards = s.shard_group > 0 ? s.shard_group : all.size;
  const Group within{shards, all.stride};
  UnitTime unit;
  unit.gather = GatherTime(m.network, within, unit_parameters * state.gathered);
  const double sent = unit_parameters * state.gradient_sent;
  unit.scatter = SumsShards(stack, s) ? AllReduceTime(m.network, within, sent) : GatherTime(m.network, within, sent);
  if (shards < all.size) {
    unit.scatter += AllReduceTime(m.network, {all.size / shards, all.stride * shards},
                                  unit_parameters * state.gradient_sent / static_cast<double>(shards));
  }
  return unit;
}

}  // namespace weft::planner

#include "planner/parallelism/operator_layer.h"

#include <algorithm>

namespace weft::planner::inline parallelism {
namespace {

constexpr int64_t kCut = kOperatorSlices;
constexpr OperatorDecision kDecisions[] = {{1, 1, false},    {1, 0, false},    {1, 0, true},    {kCut, 4, false}, {kCut, 3, false},
                                           {kCut, 3, true},  {kCut, 2, false}, {kCut, 2, true}, {kCut, 1, false}, {kCut, 1, true}};
constexpr size_t kUncut = 3;  // of them

double Share(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

/// Ranks that share a shard of an operator; routed experts have fewer replicas.
double ShardsOf(const Strategy& s, bool experts) {
  const double shards = static_cast<double>(s.shard_group > 0 ? s.shard_group : s.dp * s.cp);
  return experts ? std::min(shards, std::max(1.0, static_cast<double>(ExpertDp(s)))) : shards;
}

Group GradientGroup(const Strategy& s, bool experts) {
  return experts ? ExpertReplicaGroup(s) : ReplicaGroup(s);
}

/// The slices that are gathered one by one.
void AddSlices(const OperatorProblem& p, double parameters, const OperatorDecision& d, OperatorPart& part, std::vector<Operation>* operations) {
  part.slice = parameters / static_cast<double>(d.slices);
  std::vector<Operation> of_slice;
  const UnitTime unit =
      ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, part.slice, operations == nullptr ? nullptr : &of_slice);
  for (Operation o : of_slice) {
    o.calls = static_cast<double>(d.sharded);
    o.seconds *= o.calls;
    operations->push_back(o);
  }
  part.gather = static_cast<double>(d.sharded) * unit.gather;
  part.scatter = static_cast<double>(d.sharded) * unit.scatter;
}

uint8_t Quarters(const OperatorDecision& d) {
  if (d.slices == 1) return d.kept || d.sharded > 0 ? 4 : 0;
  return static_cast<uint8_t>(d.kept ? d.slices - d.sharded : 0);
}

}  // namespace

std::span<const OperatorDecision> OperatorDecisions(bool may_split) {
  return std::span(kDecisions).first(may_split ? std::size(kDecisions) : kUncut);
}

OperatorPart PartOf(const OperatorProblem& p, bool experts, double parameters, double norms, const OperatorDecision& d,
                    std::vector<Operation>* operations) {
  const Strategy& s = p.strategy;
  const StateBytes& state = *p.state;
  OperatorPart part;
  const double shards = ShardsOf(s, experts);
  const double cut = d.slices == 1 || d.sharded == d.slices ? parameters : parameters - norms;
  const double sharded = cut * Share(d.sharded, d.slices), rest = parameters - sharded;
  const double replicated = d.kept ? 0 : rest, kept = d.kept ? rest : 0;
  const double held = replicated + (sharded + kept) / shards;
  part.parameters = state.parameter * held + state.gathered * kept;
  part.gradients = state.gradient * held;
  part.optimizer_state = state.optimizer * held;
  part.optimizer = OptimizerTime(*p.hardware, held);
  if (replicated > 0) {
    part.reduce = GradientSumTime(*p.hardware, s, state, GradientGroup(s, experts), replicated, operations);
    if (operations != nullptr && experts && !operations->empty()) operations->back().communicator = CommunicatorKind::kExpertData;
  }
  if (kept > 0) part.fetch = ParameterGatherTime(*p.hardware, s, state, kept, operations);
  part.flat_scatter = kept;
  if (d.sharded == 0) return part;
  if (d.slices == 1) {
    part.flat_gather = sharded;
    part.flat_scatter += sharded;
  } else {
    AddSlices(p, cut, d, part, operations);
  }
  return part;
}

UnitTime UncutTime(const OperatorProblem& p, double parameters) {
  return parameters > 0 ? ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, parameters) : UnitTime{};
}

LayerSums SumsOf(const OperatorPart& a, const OperatorPart& b, Seconds flat_gather, Seconds flat_scatter) {
  return {.gather = a.gather + b.gather + flat_gather,
          .scatter = a.scatter + b.scatter + flat_scatter,
          .reduce = a.reduce + b.reduce,
          .fetch = a.fetch + b.fetch};
}

OperatorCost CostOfParts(const OperatorProblem& p, const OperatorPart& a, const OperatorPart& b, const LayerSums& sums) {
  const CalibratedHardware& m = *p.hardware;
  OperatorCost cost;
  cost.parameters = a.parameters + b.parameters;
  cost.gradients = a.gradients + b.gradients;
  cost.optimizer_state = a.optimizer_state + b.optimizer_state;
  cost.optimizer = a.optimizer + b.optimizer;
  const double slice = std::max(a.slice, b.slice);
  cost.peak = m.fragmentation * UnitPeak(*p.stack, *p.state, std::max(slice, a.flat_gather + b.flat_gather),
                                         std::max(slice, a.flat_scatter + b.flat_scatter));
  const Seconds hidden = p.stack->overlaps_gradients ? sums.scatter : Seconds(0);
  const Seconds behind = ExposedBehind(m, sums.gather + hidden, p.backward);
  cost.forward = ExposedBehind(m, sums.gather, p.forward);
  cost.backward = behind + sums.scatter - hidden;
  // In the first forward and the last backward pass there is more to hide behind the same computation.
  cost.once = p.stack->overlaps_parameters ? ExposedBehind(m, sums.gather + sums.fetch, p.forward) - cost.forward : sums.fetch;
  cost.once += p.stack->overlaps_gradients ? ExposedBehind(m, sums.gather + hidden + sums.reduce, p.backward) - behind : sums.reduce;
  return cost;
}

LayerWays::LayerWays(const OperatorProblem& p, bool moe)
    : decisions_{OperatorDecisions(p.splits.attention), OperatorDecisions(p.splits.mlp)} {
  const OperatorProblem::Kind& kind = moe ? p.moe : p.dense;
  std::array<std::array<double, kQuarters>, 2> flat = {};
  for (size_t o = 0; o < 2; ++o) {
    for (size_t i = 0; i < decisions_[o].size(); ++i) {
      parts_[o][i] = PartOf(p, o == 1 && moe, kind.parts[o], o == 0 ? kind.norms : 0, decisions_[o][i]);
      quarters_[o][i] = Quarters(decisions_[o][i]);
      flat[o][quarters_[o][i]] = parts_[o][i].flat_scatter;
    }
  }
  const std::array<double, 4> gathered = {0, kind.parts[1], kind.parts[0], kind.parts[0] + kind.parts[1]};
  for (size_t i = 1; i < gathered.size(); ++i) gather_[i] = UncutTime(p, gathered[i]).gather;
  for (size_t i = 0; i < kQuarters; ++i) {
    if (i > 0 && flat[0][i] == 0) continue;
    for (size_t k = 0; k < kQuarters; ++k) scatter_[i * kQuarters + k] = UncutTime(p, flat[0][i] + flat[1][k]).scatter;
  }
}

OperatorCost LayerWays::Cost(const OperatorProblem& p, size_t way) const {
  const size_t i = way / decisions_[1].size(), k = way % decisions_[1].size();
  const OperatorPart &a = parts_[0][i], &b = parts_[1][k];
  const Seconds gather = gather_[(a.flat_gather > 0 ? 2 : 0) + (b.flat_gather > 0 ? 1 : 0)];
  return CostOfParts(p, a, b, SumsOf(a, b, gather, scatter_[quarters_[0][i] * kQuarters + quarters_[1][k]]));
}

}  // namespace weft::planner::parallelism

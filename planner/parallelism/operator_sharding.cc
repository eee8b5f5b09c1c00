#include "planner/parallelism/operator_sharding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/parallelism/data_time.h"

namespace weft::planner::inline parallelism {
namespace {

// Layers share few choices between stages and schedules; older ones are made again.
constexpr size_t kKeptKinds = 32;

double Share(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

/// Ranks that share a shard of an operator; routed experts have fewer replicas.
double ShardsOf(const Strategy& s, bool experts) {
  const double shards = static_cast<double>(s.shard_group > 0 ? s.shard_group : s.dp * s.cp);
  return experts ? std::min(shards, std::max(1.0, static_cast<double>(ExpertDp(s)))) : shards;
}

Group GradientGroup(const Strategy& s, bool experts) {
  return experts ? Group{std::max<int64_t>(1, ExpertDp(s)), s.ep * s.etp} : ReplicaGroup(s);
}

/// Bytes of a layer by what is done with them, and the seconds of its collectives.
struct Sums {
  double gather = 0, scatter = 0;  // per pass
  double reduce = 0, fetch = 0;    // per iteration
  double unit = 0;                 // parameters gathered together
};

void AddOperator(const OperatorProblem& p, bool experts, double parameters, const OperatorDecision& d, Sums& sums,
                 double& flat_gather, double& flat_scatter, OperatorCost& cost, std::vector<Operation>* operations) {
  const Strategy& s = p.strategy;
  const StateBytes& state = *p.state;
  const double shards = ShardsOf(s, experts);
  const double sharded = parameters * Share(d.sharded, d.slices), rest = parameters - sharded;
  const double replicated = d.kept ? 0 : rest, kept = d.kept ? rest : 0;
  const double held = replicated + (sharded + kept) / shards;
  cost.parameters += state.parameter * held + state.gathered * kept;
  cost.gradients += state.gradient * held;
  cost.optimizer_state += state.optimizer * held;
  cost.optimizer += OptimizerTime(*p.hardware, held);
  if (replicated > 0) {
    sums.reduce += GradientSumTime(*p.hardware, s, state, GradientGroup(s, experts), replicated, operations);
    if (operations != nullptr && experts && !operations->empty()) operations->back().communicator = CommunicatorKind::kExpertData;
  }
  if (kept > 0) sums.fetch += ParameterGatherTime(*p.hardware, s, kept, operations);
  flat_scatter += kept;
  if (d.sharded == 0) return;
  if (d.slices == 1) {
    flat_gather += sharded;
    flat_scatter += sharded;
    return;
  }
  const double slice = parameters / static_cast<double>(d.slices);
  std::vector<Operation> of_slice;
  const UnitTime unit = ComputeUnitTime(*p.hardware, *p.stack, s, state, slice, operations == nullptr ? nullptr : &of_slice);
  for (Operation o : of_slice) {
    o.calls = static_cast<double>(d.sharded);
    o.seconds *= o.calls;
    operations->push_back(o);
  }
  sums.gather += static_cast<double>(d.sharded) * unit.gather;
  sums.scatter += static_cast<double>(d.sharded) * unit.scatter;
  sums.unit = std::max(sums.unit, slice);
}

/// Writes exchanges down with what passes wait for, shared by those of a pass by their time; what is gathered for the forward pass is
/// gathered for the backward pass too.
void Spread(std::span<const Operation> exchanges, const Sums& sums, const OperatorCost& cost, std::vector<Operation>& operations) {
  const double backward = sums.gather + sums.scatter;
  for (Operation o : exchanges) {
    if (o.pass == OperationPass::kForward) {
      o.exposed = sums.gather > 0 ? cost.forward * o.seconds / sums.gather : 0;
      operations.push_back(o);
      o.pass = OperationPass::kData;
    }
    if (o.pass == OperationPass::kData) o.exposed = backward > 0 ? cost.backward * o.seconds / backward : 0;
    operations.push_back(o);
  }
}

/// The exchanges of an uncut unit: of its gather, or of all but that.
void AddUnit(const OperatorProblem& p, double parameters, bool gather, UnitTime& unit, std::vector<Operation>* operations) {
  std::vector<Operation> all;
  unit = ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, parameters, operations == nullptr ? nullptr : &all);
  for (const Operation& o : all) {
    if ((o.pass == OperationPass::kForward) == gather) operations->push_back(o);
  }
}

double UnitPeak(const StateBytes& state, double parameters) {
  // The unit in use, the one prefetched, and the gradient of one before it is reduced.
  return parameters * (2 * state.gathered + state.gradient_sent);
}

std::vector<OperatorDecision> Decisions(bool may_split) {
  std::vector<OperatorDecision> all;
  for (const int64_t slices : {1, 4}) {
    if (slices > 1 && !may_split) break;
    for (int64_t sharded = slices; sharded >= 0; --sharded) {
      if (sharded == 0 && slices > 1) break;  // nothing is gathered in slices
      all.push_back({.slices = slices, .sharded = sharded, .kept = false});
      if (sharded < slices) all.push_back({.slices = slices, .sharded = sharded, .kept = true});
    }
  }
  return all;
}

std::vector<int64_t> HeadSlices(const OperatorProblem& p) {
  return p.may_split ? std::vector<int64_t>{1, 2, 4, 8} : std::vector<int64_t>{1};
}

Choice AsChoice(const OperatorCost& cost, int64_t micro_batches) {
  return {.time = cost.time(micro_batches),
          .memory = static_cast<int64_t>(std::ceil(cost.memory())),
          .peak = static_cast<int64_t>(std::ceil(cost.peak))};
}

void AddCost(const OperatorCost& one, int64_t count, OperatorCost& sum) {
  const double n = static_cast<double>(count);
  sum.forward += n * one.forward;
  sum.backward += n * one.backward;
  sum.once += n * one.once;
  sum.optimizer += n * one.optimizer;
  sum.parameters += n * one.parameters;
  sum.gradients += n * one.gradients;
  sum.optimizer_state += n * one.optimizer_state;
  sum.peak = std::max(sum.peak, one.peak);
}

/// Whether two stages' layers have the same choices.
bool SameLayer(const OperatorProblem& a, const OperatorProblem& b, bool moe) {
  const auto& parts = moe ? a.moe.parts : a.dense.parts;
  return parts == (moe ? b.moe.parts : b.dense.parts) && a.forward == b.forward && a.backward == b.backward &&
         a.micro_batches == b.micro_batches && a.may_split == b.may_split && a.strategy.dp == b.strategy.dp &&
         a.strategy.cp == b.strategy.cp && a.strategy.tp == b.strategy.tp && a.strategy.pp == b.strategy.pp &&
         a.strategy.ep == b.strategy.ep && a.strategy.etp == b.strategy.etp &&
         a.strategy.shard_group == b.strategy.shard_group && a.strategy.data_sync == b.strategy.data_sync &&
         a.strategy.rank_order == b.strategy.rank_order && a.strategy.bucket_bytes == b.strategy.bucket_bytes;
}

}  // namespace

OperatorCost CostOfLayer(const OperatorProblem& p, bool moe, const OperatorDecision& attention,
                         const OperatorDecision& mlp, std::vector<Operation>* operations) {
  std::vector<Operation> exchanges;
  std::vector<Operation>* written = operations == nullptr ? nullptr : &exchanges;
  const OperatorProblem::Kind& kind = moe ? p.moe : p.dense;
  const CalibratedHardware& m = *p.hardware;
  OperatorCost cost;
  Sums sums;
  double flat_gather = 0, flat_scatter = 0;
  AddOperator(p, false, kind.parts[0], attention, sums, flat_gather, flat_scatter, cost, written);
  AddOperator(p, moe, kind.parts[1], mlp, sums, flat_gather, flat_scatter, cost, written);
  // What is not cut travels as one unit.
  UnitTime unit;
  if (flat_gather > 0) {
    AddUnit(p, flat_gather, true, unit, written);
    sums.gather += unit.gather;
  }
  if (flat_scatter > 0) {
    AddUnit(p, flat_scatter, false, unit, written);
    sums.scatter += unit.scatter;
  }
  sums.unit = std::max(sums.unit, flat_gather);
  cost.peak = m.fragmentation * UnitPeak(*p.state, sums.unit);
  const double hidden = p.stack->overlaps_gradients ? sums.scatter : 0;
  cost.forward = ExposedBehind(m, sums.gather, p.forward);
  cost.backward = ExposedBehind(m, sums.gather + hidden, p.backward) + sums.scatter - hidden;
  // In the first forward and the last backward pass there is more to hide behind the same computation.
  cost.once = p.stack->overlaps_parameters ? ExposedBehind(m, sums.gather + sums.fetch, p.forward) - cost.forward : sums.fetch;
  cost.once += p.stack->overlaps_gradients ? ExposedBehind(m, sums.gather + hidden + sums.reduce, p.backward) -
                                                 ExposedBehind(m, sums.gather + hidden, p.backward)
                                           : sums.reduce;
  if (operations != nullptr) Spread(exchanges, sums, cost, *operations);
  return cost;
}

OperatorCost CostOfHead(const OperatorProblem& p, int64_t slices) {
  OperatorCost cost;
  const double slice = p.head / static_cast<double>(slices);
  cost.peak = p.hardware->fragmentation * UnitPeak(*p.state, slice);
  const UnitTime whole = ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, p.head);
  const UnitTime one = ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, slice);
  const double n = static_cast<double>(slices);
  cost.forward = std::max(0.0, n * one.gather - whole.gather);
  cost.backward = std::max(0.0, n * one.gather - whole.gather);
  return cost;
}

OperatorCost LeanestOperators(const OperatorProblem& p) {
  const OperatorDecision finest{.slices = p.may_split ? 4 : 1, .sharded = p.may_split ? 4 : 1, .kept = false};
  OperatorCost sum;
  for (const bool moe : {false, true}) {
    const int64_t layers = moe ? p.moe.layers : p.dense.layers;
    // Experts without replicas are whole in any case.
    const OperatorDecision mlp = moe && ExpertDp(p.strategy) <= 1 ? OperatorDecision() : finest;
    if (layers > 0) AddCost(CostOfLayer(p, moe, finest, mlp), layers, sum);
  }
  if (p.head > 0) AddCost(CostOfHead(p, HeadSlices(p).back()), 1, sum);
  return sum;
}

const OperatorSolver::Kept& OperatorSolver::ChoicesOf(const OperatorProblem& p, bool moe) {
  for (const Kept& kept : kept_) {
    if (kept.moe == moe && SameLayer(kept.key, p, moe)) return kept;
  }
  Kept made{.key = p, .moe = moe, .choices = {}, .ways = {}};
  const std::vector<OperatorDecision> decisions = Decisions(p.may_split);
  struct Candidate {
    Choice choice;
    Way way;
  };
  std::vector<Candidate> all;
  for (const OperatorDecision& attention : decisions) {
    for (const OperatorDecision& mlp : decisions) {
      all.push_back({AsChoice(CostOfLayer(p, moe, attention, mlp), p.micro_batches), {attention, mlp}});
    }
  }
  // Ascending time: what an earlier one needs no more memory and peak than is of no use. Uncut ways come first.
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.choice.time < b.choice.time; });
  for (const Candidate& candidate : all) {
    const bool dominated = std::any_of(made.choices.begin(), made.choices.end(), [&](const Choice& other) {
      return other.memory <= candidate.choice.memory && other.peak <= candidate.choice.peak;
    });
    if (dominated) continue;
    made.choices.push_back(candidate.choice);
    made.ways.push_back(candidate.way);
  }
  if (kept_.size() < kKeptKinds) {
    kept_.push_back(std::move(made));
    return kept_.back();
  }
  next_ = (next_ + 1) % kKeptKinds;
  kept_[next_] = std::move(made);
  return kept_[next_];
}

std::vector<ChoiceGroup> OperatorSolver::Groups(const OperatorProblem& p, std::array<Kept, 2>& kinds) {
  std::vector<ChoiceGroup> groups(3);
  for (const bool moe : {false, true}) {
    ChoiceGroup& group = groups[moe ? 1 : 0];
    group.count = moe ? p.moe.layers : p.dense.layers;
    if (group.count == 0) continue;
    kinds[moe ? 1 : 0] = ChoicesOf(p, moe);
    group.choices = kinds[moe ? 1 : 0].choices;
  }
  groups[2].count = p.head > 0 ? 1 : 0;
  for (const int64_t slices : HeadSlices(p)) groups[2].choices.push_back(AsChoice(CostOfHead(p, slices), p.micro_batches));
  for (ChoiceGroup& group : groups) {
    if (group.choices.empty()) group.choices.push_back({});
  }
  return groups;
}

bool OperatorSolver::FastestFit(std::span<const ChoiceGroup> groups, int64_t budget, double* time) {
  int64_t memory = 0, peak = 0;
  *time = 0;
  for (const ChoiceGroup& group : groups) {
    if (group.count == 0) continue;
    const Choice& fastest = group.choices.front();  // ascending time
    memory += group.count * fastest.memory;
    peak = std::max(peak, fastest.peak);
    *time += static_cast<double>(group.count) * fastest.time;
  }
  return memory + peak <= budget;
}

double OperatorSolver::Relaxed(const OperatorProblem& p) {
  std::array<Kept, 2> kinds;
  const std::vector<ChoiceGroup> groups = Groups(p, kinds);
  double time = 0;
  return FastestFit(groups, p.budget, &time) ? time : RelaxedKnapsack(groups, p.budget);
}

OperatorStage OperatorSolver::Solve(const OperatorProblem& p) {
  std::array<Kept, 2> kinds;
  const std::vector<ChoiceGroup> groups = Groups(p, kinds);
  OperatorStage stage;
  stage.operators.head = p.head > 0;
  KnapsackAnswer answer;
  double time = 0;
  if (FastestFit(groups, p.budget, &time)) {
    answer.feasible = true;
    for (const ChoiceGroup& group : groups) {
      answer.taken.emplace_back(group.choices.size(), 0);
      answer.taken.back().front() = group.count;
    }
  } else {
    answer = SolveChoiceKnapsack(groups, p.budget, {.tolerance = tolerance_});
  }
  stage.feasible = answer.feasible;
  if (!answer.feasible) {
    stage.cost = LeanestOperators(p);
    return stage;
  }
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t i = 0; i < kinds[kind].ways.size(); ++i) {
      const int64_t layers = answer.taken[kind][i];
      if (layers == 0) continue;
      const Way& way = kinds[kind].ways[i];
      stage.operators.runs.push_back({layers, kind == 1, way.attention, way.mlp});
      AddCost(CostOfLayer(p, kind == 1, way.attention, way.mlp), layers, stage.cost);
    }
  }
  const std::vector<int64_t> slices = HeadSlices(p);
  for (size_t i = 0; p.head > 0 && i < slices.size(); ++i) {
    if (answer.taken[2][i] == 0) continue;
    stage.operators.head_slices = slices[i];
    AddCost(CostOfHead(p, slices[i]), 1, stage.cost);
  }
  return stage;
}

OperatorCount CountOperators(std::span<const StageOperators> stages) {
  OperatorCount count;
  const auto add = [&](const OperatorDecision& d, int64_t operators) {
    int64_t& place = d.slices > 1     ? count.split
                     : d.sharded == 1 ? count.sharded
                     : d.kept         ? count.kept
                                      : count.replicated;
    place += operators;
  };
  for (const StageOperators& stage : stages) {
    for (const OperatorRun& run : stage.runs) {
      add(run.attention, run.layers);
      add(run.mlp, run.layers);
    }
    if (stage.embedding) ++count.sharded;
    if (stage.head) add({.slices = stage.head_slices, .sharded = stage.head_slices}, 1);
  }
  return count;
}

}  // namespace weft::planner::parallelism

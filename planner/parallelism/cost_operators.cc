// Sharding per operator in the cost model: what each stage asks operator_sharding.h, and what its answer costs.
#include <algorithm>
#include <limits>
#include <optional>

#include "planner/parallelism/cost_tables.h"
#include "planner/parallelism/program/program_limits.h"

namespace weft::planner::inline parallelism {
namespace {

// The solver's bytes are whole, layer by layer; so much is left between its sum and the stage's own account.
constexpr Bytes kRounding(64);

/// The same degrees with an exchange that adds nothing to the passes.
Strategy HiddenExchange(Strategy s) {
  s.sharding = Sharding::kUniform;
  s.zero_stage = 1;
  return s;
}

/// The uniform strategy that does the same as all decisions, if they are all alike and whole.
std::optional<Strategy> UniformOf(const Strategy& s, const AlikeDecisions& alike) {
  const std::optional<OperatorDecision> common = alike.common();
  if (!common) return std::nullopt;
  Strategy uniform = s;
  uniform.sharding = Sharding::kUniform;
  uniform.zero_stage = common->sharded > 0 || common->kept ? 3 : 0;
  uniform.keep_after_forward = common->kept;
  if (uniform.zero_stage == 0) uniform.shard_group = 0;
  return uniform;
}

}  // namespace

OperatorSplits CostModel::Impl::SplitsOf(const Strategy& s) const {
  switch (cuts) {
    case OperatorCuts::kAny: return {};
    case OperatorCuts::kPrograms: return ProgramSplits(job, s);
    case OperatorCuts::kNone: break;
  }
  return kNoSplits;
}

double CostModel::Impl::LeanestUnit(const Strategy& s, const LayerEntry& entry, const StageShape& shape) const {
  double unit = 0;
  const OperatorSplits splits = SplitsOf(s);
  const auto layer = [&](double count, double attention, double mlp) {
    if (count <= 0) return;
    // Of those that cannot be cut a replica may need less than what is gathered.
    unit = std::max({unit, splits.attention ? attention / kOperatorSlices : 0.0, splits.mlp ? mlp / kOperatorSlices : 0.0});
  };
  layer(shape.dense_layers, entry.attention_parameters, entry.dense_parameters - entry.attention_parameters);
  // Experts without replicas are whole in any case: nothing of them is gathered.
  layer(shape.moe_layers, entry.moe_dense_parameters, ExpertDp(s) > 1 ? entry.expert_parameters : 0);
  return std::max(unit, shape.last ? entry.head_parameters / static_cast<double>(splits.head) : 0.0);
}

OperatorProblem CostModel::Impl::Operators(const Strategy& s, const LayerEntry& entry, int64_t stage,
                                           int64_t micro_batches, MemoryUse* rest, std::vector<Holding>* pieces) const {
  StageShape shape = Shape(s, entry, stage);
  const StagePasses passes = LayerPasses(s, entry, shape);
  const double layers = std::max(1.0, shape.dense_layers + shape.moe_layers);
  OperatorProblem problem{.hardware = &hardware, .state = &state, .stack = &stack, .strategy = s,
                          .micro_batches = micro_batches};
  problem.forward = passes.forward.total() / layers;
  problem.backward = passes.backward.total() / layers;
  problem.dense = {static_cast<int64_t>(shape.dense_layers),
                   {entry.attention_parameters, entry.dense_parameters - entry.attention_parameters},
                   entry.norm_parameters};
  problem.moe = {
      static_cast<int64_t>(shape.moe_layers), {entry.moe_dense_parameters, entry.expert_parameters}, entry.moe_norm_parameters};
  problem.head = shape.last ? entry.head_parameters : 0;
  problem.splits = SplitsOf(s);
  // All but the layers' state and gathered units.
  const FractionalBytes copies = state.exchange_copy * (shape.dense_parameters + shape.expert_parameters);
  shape.dense_parameters = shape.expert_parameters = shape.unit_parameters = 0;
  *rest = StageMemory(job, stack, s, state, entry.dense_bytes, entry.moe_bytes, shape, stage, micro_batches, pieces);
  Hold({.what = "exchange copy", .part = HoldingPart::kTransient, .bytes = Whole(copies)}, 1, *rest, pieces);
  problem.budget = OperatorBudget(*rest);
  return problem;
}

Bytes CostModel::Impl::OperatorBudget(const MemoryUse& rest) const {
  MemoryUse whole = rest;
  AddOwn(whole);
  return (usable - kRounding).Truncated() - whole.total();
}

StageCost CostModel::Impl::OperatorCosts(const Strategy& s, const LayerEntry& entry, int64_t stage,
                                         int64_t micro_batches, OperatorSolver& solver,
                                         std::vector<StageOperators>* operators, std::vector<Holding>* pieces) const {
  MemoryUse rest;
  const OperatorProblem problem = Operators(s, entry, stage, micro_batches, &rest, pieces);
  const OperatorStage& solved = solver.Solve(problem);
  const StageShape shape = Shape(s, entry, stage);
  StagePasses passes = LayerPasses(s, entry, shape);
  AddEdges(entry, shape, passes);
  if (operators != nullptr) {
    operators->push_back(solved.operators);
    operators->back().embedding = shape.first;
  }
  return DecidedCost(shape, passes, rest, solved, pieces);
}

StageCost CostModel::Impl::DecidedCost(const StageShape& shape, const StagePasses& passes, const MemoryUse& rest, const OperatorStage& decided,
                                       std::vector<Holding>* pieces) const {
  StageCost out;
  out.passes = passes;
  out.passes.forward_data = decided.cost.forward;
  out.passes.backward_data = decided.cost.backward;
  out.memory = rest;
  const auto hold = [&](std::string_view what, HoldingPart part, FractionalBytes bytes,
                        HoldingSpan span = HoldingSpan::kIteration) {
    Hold({.what = what, .part = part, .span = span, .bytes = Whole(bytes)}, 1, out.memory, pieces);
  };
  hold("parameters", HoldingPart::kParameters, decided.cost.parameters);
  hold("gradients", HoldingPart::kGradients, decided.cost.gradients);
  hold("optimizer", HoldingPart::kOptimizer, decided.cost.optimizer_state);
  hold("units in use", HoldingPart::kTransient, decided.cost.peak / hardware.fragmentation, HoldingSpan::kPass);
  AddOwn(out.memory, pieces);
  out.exchanged = shape;
  out.exchanged.dense_parameters = out.exchanged.expert_parameters = 0;
  out.once = decided.cost.once;
  out.optimizer = decided.cost.optimizer;
  out.feasible = decided.feasible;
  return out;
}

std::vector<StageOperators> CostModel::Operators(const Strategy& s, Scratch& scratch) const {
  std::vector<StageOperators> stages;
  if (s.sharding == Sharding::kOperator) impl_->Close(s, scratch, &stages);
  return stages;
}

Estimate CostModel::Evaluate(const Strategy& s, Scratch& scratch) const {
  if (s.sharding == Sharding::kUniform) return impl_->Close(s, scratch).estimate;
  const Impl::ClosedForm closed = impl_->Close(s, scratch);
  const Estimate& estimate = closed.estimate;
  if (!estimate.fits) return estimate;
  // Decisions that are all alike are a ZeRO stage, whose own account pools what hides over the whole stage: they tie
  // with it and never come out ahead of it.
  const std::optional<Strategy> uniform = UniformOf(s, closed.alike);
  if (!uniform || !IsLegal(*uniform)) return estimate;
  const Estimate same = impl_->Close(*uniform, scratch).estimate;
  return same.iteration >= estimate.iteration && same.fits ? same : estimate;
}

Estimate CostModel::EvaluateSimulated(const Strategy& s, Scratch& scratch) const {
  const Impl::ClosedForm closed = impl_->Close(s, scratch);
  const Estimate estimate = impl_->PredictionOf(s, closed, scratch);
  if (s.sharding == Sharding::kUniform || !estimate.fits) return estimate;
  const std::optional<Strategy> uniform = UniformOf(s, closed.alike);  // as above
  if (!uniform || !IsLegal(*uniform)) return estimate;
  const Estimate same = impl_->PredictionOf(*uniform, impl_->Close(*uniform, scratch), scratch);
  return same.iteration >= estimate.iteration && same.fits ? same : estimate;
}

Seconds CostModel::OperatorBound(const Strategy& s, bool relaxed, Scratch& scratch) const {
  const Impl& impl = *impl_;
  const Impl::ClosedForm closed = impl.Close(HiddenExchange(s), scratch);
  const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  MemoryUse rest;
  const OperatorProblem problem = impl.Operators(s, entry, closed.last_stage, micro_batches, &rest);
  const Seconds more = relaxed ? scratch.tables_->operators.Relaxed(problem) : QuickOperatorBound(problem);
  // A pass of that stage that takes x longer makes its end at least m·x later, and its exchange and optimizer follow.
  return closed.last_end + more + closed.estimate.overhead;
}

}  // namespace weft::planner::parallelism

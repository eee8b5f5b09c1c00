#include "planner/parallelism/operator_sharding.h"

#include <algorithm>

#include "planner/parallelism/data_time.h"
#include "planner/parallelism/operator_layer.h"

namespace weft::planner::inline parallelism {
namespace {

/// Writes exchanges down with what passes wait for, shared by those of a pass by their time; what is gathered for the forward pass is
/// gathered for the backward pass too.
void Spread(std::span<const Operation> exchanges, const LayerSums& sums, const OperatorCost& cost, std::vector<Operation>& operations) {
  const Seconds backward = sums.gather + sums.scatter;
  for (Operation o : exchanges) {
    if (o.pass == OperationPass::kForward) {
      o.exposed = sums.gather > Seconds(0) ? cost.forward * o.seconds / sums.gather : 0;
      operations.push_back(o);
      o.pass = OperationPass::kData;
    }
    if (o.pass == OperationPass::kData) o.exposed = backward > Seconds(0) ? cost.backward * o.seconds / backward : 0;
    operations.push_back(o);
  }
}

/// Writes the exchanges of an uncut unit down: those of its gather, or all but those.
void WriteUnit(const OperatorProblem& p, double parameters, bool gather, std::vector<Operation>* operations) {
  if (operations == nullptr || parameters <= 0) return;
  std::vector<Operation> all;
  ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, parameters, &all);
  for (const Operation& o : all) {
    if ((o.pass == OperationPass::kForward) == gather) operations->push_back(o);
  }
}

}  // namespace

std::span<const int64_t> HeadSlices(int64_t most) {
  static constexpr int64_t kSlices[] = {1, 2, 4, kMostHeadSlices};
  return std::span(kSlices).first(static_cast<size_t>(std::upper_bound(std::begin(kSlices), std::end(kSlices), most) - kSlices));
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

OperatorCost CostOfLayer(const OperatorProblem& p, bool moe, const OperatorDecision& attention,
                         const OperatorDecision& mlp, std::vector<Operation>* operations) {
  std::vector<Operation> exchanges;
  std::vector<Operation>* written = operations == nullptr ? nullptr : &exchanges;
  const OperatorProblem::Kind& kind = moe ? p.moe : p.dense;
  const OperatorPart a = PartOf(p, false, kind.parts[0], kind.norms, attention, written);
  const OperatorPart b = PartOf(p, moe, kind.parts[1], 0, mlp, written);
  const double gathered = a.flat_gather + b.flat_gather, scattered = a.flat_scatter + b.flat_scatter;
  WriteUnit(p, gathered, true, written);
  WriteUnit(p, scattered, false, written);
  const LayerSums sums = SumsOf(a, b, UncutTime(p, gathered).gather, UncutTime(p, scattered).scatter);
  const OperatorCost cost = CostOfParts(p, a, b, sums);
  if (operations != nullptr) Spread(exchanges, sums, cost, *operations);
  return cost;
}

OperatorCost CostOfHead(const OperatorProblem& p, int64_t slices) {
  OperatorCost cost;
  const double slice = p.head / static_cast<double>(slices);
  cost.peak = p.hardware->fragmentation * UnitPeak(*p.stack, *p.state, slice, slice);
  const UnitTime whole = ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, p.head);
  const UnitTime one = ComputeUnitTime(*p.hardware, *p.stack, p.strategy, *p.state, slice);
  const double n = static_cast<double>(slices);
  cost.forward = std::max(Seconds(0), n * one.gather - whole.gather);
  cost.backward = std::max(Seconds(0), n * one.gather - whole.gather);
  return cost;
}

OperatorCost LeanestOperators(const OperatorProblem& p) {
  const auto finest = [](bool may_split) {
    const int64_t slices = may_split ? kOperatorSlices : 1;
    return OperatorDecision{.slices = slices, .sharded = slices, .kept = false};
  };
  OperatorCost sum;
  for (const bool moe : {false, true}) {
    const int64_t layers = moe ? p.moe.layers : p.dense.layers;
    // Experts without replicas are whole in any case.
    const OperatorDecision mlp = moe && ExpertDp(p.strategy) <= 1 ? OperatorDecision() : finest(p.splits.mlp);
    if (layers > 0) AddCost(CostOfLayer(p, moe, finest(p.splits.attention), mlp), layers, sum);
  }
  if (p.head > 0) AddCost(CostOfHead(p, HeadSlices(p.splits.head).back()), 1, sum);
  return sum;
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

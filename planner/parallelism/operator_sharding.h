// OSDP inside a strategy: what every operator of a pipeline stage does with its parameters. Three ways, and mixtures of
// them by slices of an operator:
//   replicated  whole on every rank; gradients are summed once per iteration        (ZeRO-0)
//   kept        a shard, gathered once per iteration and kept until its end         (FSDP without resharding)
//   sharded     a shard, gathered for every forward and every backward pass         (ZeRO-3)
// Communication is priced as the cost model prices it for ZeRO stages: behind the computation of the layer as far as
// that reaches, slowed by interference. A layer's operators are its attention (norms and router with it) and its MLP or
// routed experts; embedding and head are sharded as under ZeRO-3, the head in slices where the gathered head is the
// largest thing that exists.
//
// The least time that the stage's memory allows is a multiple-choice knapsack (choice_knapsack.h) over the ways of one
// layer, with the number of equal layers as count. Norms are used whole: they stay with what of a cut operator is not gathered
// slice by slice, and where all of it is they travel beside the slices.
//
//   OperatorSolver solver;
//   const OperatorStage stage = solver.Solve({.hardware = &hardware, ...});
//
// Leaves out: slices' smaller matrix products, and other ZeRO stages per operator, which no framework offers.
// Source: arXiv 2209.13258, sections 3 and 4; overlap as in cost_tables.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/fractional_bytes.h"
#include "common/units.h"
#include "planner/parallelism/calibrated_hardware.h"
#include "planner/parallelism/choice_knapsack.h"
#include "planner/parallelism/memory_model.h"
#include "planner/parallelism/software_stack.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/operations.h"

namespace weft::planner::inline parallelism {

/// What one operator does: of `slices` equal slices `sharded` are gathered for every use; the others are kept, or
/// replicated.
struct OperatorDecision {
  int64_t slices = 1;
  int64_t sharded = 0;
  bool kept = false;
  friend bool operator==(const OperatorDecision&, const OperatorDecision&) = default;
};

inline constexpr int64_t kOperatorSlices = 4, kMostHeadSlices = 8;

/// Which operators may be cut: attention and MLP in kOperatorSlices, the head in so many at most.
struct OperatorSplits {
  bool attention = true, mlp = true;
  int64_t head = kMostHeadSlices;
  friend bool operator==(const OperatorSplits&, const OperatorSplits&) = default;
};
inline constexpr OperatorSplits kNoSplits{.attention = false, .mlp = false, .head = 1};

/// Layers of a stage that decide alike.
struct OperatorRun {
  int64_t layers = 0;
  bool moe = false;
  OperatorDecision attention, mlp;   ///< mlp: of an MoE layer, the routed experts
  friend bool operator==(const OperatorRun&, const OperatorRun&) = default;
};

/// The decisions of one pipeline stage.
struct StageOperators {
  std::vector<OperatorRun> runs;
  bool embedding = false, head = false;  ///< whether the stage has them: both are sharded
  int64_t head_slices = 1;
  friend bool operator==(const StageOperators&, const StageOperators&) = default;
};

/// How many operators of a plan do what. A split operator is one whose slices differ, or are gathered one by one.
struct OperatorCount {
  int64_t replicated = 0, kept = 0, sharded = 0, split = 0;
  int64_t total() const { return replicated + kept + sharded + split; }
};
OperatorCount CountOperators(std::span<const StageOperators> stages);

/// One stage's question. Pointers are not owned.
struct OperatorProblem {
  const CalibratedHardware* hardware = nullptr;
  const StateBytes* state = nullptr;
  const SoftwareStack* stack = nullptr;
  Strategy strategy;
  int64_t micro_batches = 1;
  Seconds forward{0}, backward{0};    ///< of one layer and micro-batch: what communication hides behind
  struct Kind {
    int64_t layers = 0;
    std::array<double, 2> parts = {};   ///< parameters on one rank: attention, MLP (routed experts)
    double norms = 0;                   ///< of attention's: never cut
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  Kind dense = {}, moe = {};
  double head = 0;                    ///< parameters of the head on one rank; 0: not on this stage
  Bytes budget;                       ///< for the layers' state and the gathered slices
  OperatorSplits splits = {};
};

/// What a layer, or all layers of a stage, cost for their decisions.
struct OperatorCost {
  Seconds forward{0}, backward{0};    ///< exposed per micro-batch
  Seconds once{0};                    ///< exposed per iteration
  Seconds optimizer{0};
  FractionalBytes parameters, gradients, optimizer_state;
  FractionalBytes peak;               ///< of units in use (UnitPeak()), with what they fragment

  Seconds time(int64_t micro_batches) const {
    return static_cast<double>(micro_batches) * (forward + backward) + once + optimizer;
  }
  FractionalBytes memory() const { return parameters + gradients + optimizer_state; }
};

/// The ways of an operator, and the numbers of slices, at most `most`, that the head may be cut in; uncut ones first.
std::span<const OperatorDecision> OperatorDecisions(bool may_split);
std::span<const int64_t> HeadSlices(int64_t most);

/// `count` times `one` on top of `sum`; of peaks the larger one.
void AddCost(const OperatorCost& one, int64_t count, OperatorCost& sum);

/// One layer. `operations`: where its exchanges are written, if not null. Requires: slices that divide the operator, 0 ≤ sharded
/// ≤ slices.
OperatorCost CostOfLayer(const OperatorProblem& problem, bool moe, const OperatorDecision& attention,
                         const OperatorDecision& mlp, std::vector<Operation>* operations = nullptr);
/// The head in `slices`: its peak, and what gathering slices adds to gathering it whole.
OperatorCost CostOfHead(const OperatorProblem& problem, int64_t slices);

struct OperatorStage {
  bool feasible = false;
  OperatorCost cost;                  ///< of all layers; memory without the peak
  StageOperators operators;
};

/// Solves stages; keeps what stages with the same layers share, whatever their budget. One thread's.
class OperatorSolver {
 public:
  /// `tolerance`: relative to the time of the decisions, which is a small part of an iteration.
  explicit OperatorSolver(double tolerance = 1e-4);
  ~OperatorSolver();
  OperatorSolver(OperatorSolver&&) noexcept;
  OperatorSolver& operator=(OperatorSolver&&) noexcept;

  /// The decisions of least time within the budget, to the tolerance; where nothing fits the leanest ones. A function of the
  /// problem alone. The answer stays until the next call. Complexity: a comparison where the fastest decisions fit, nothing does,
  /// or the question was asked shortly before; else ChoiceKnapsack's.
  const OperatorStage& Solve(const OperatorProblem& problem);
  /// No decisions within the budget take less: the linear relaxation. +infinity where nothing fits.
  Seconds Relaxed(const OperatorProblem& problem);
  /// Forgets what it keeps.
  void Clear();

 private:
  class Layers;
  Layers& LayersOf(const OperatorProblem& problem);

  double tolerance_;
  std::vector<std::unique_ptr<Layers>> kept_;  // what was asked last is first
};

/// The same bound from bandwidths and totals alone, without looking at decisions. Complexity: O(1).
/// Source: derived in operator_bound.cc.
Seconds QuickOperatorBound(const OperatorProblem& problem);

/// Every operator sharded in as many slices as allowed: the least memory.
OperatorCost LeanestOperators(const OperatorProblem& problem);

}  // namespace weft::planner::parallelism

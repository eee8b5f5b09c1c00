// A strategy's stages one after the other: CostModel::Impl::StageWalk.
#include "planner/parallelism/cost_tables.h"

namespace weft::planner::inline parallelism {

void AlikeDecisions::Add(const StageOperators& stage) {
  alike_ = alike_ && stage.head_slices == 1;
  for (const OperatorRun& run : stage.runs) {
    for (const OperatorDecision& decision : {run.attention, run.mlp}) {
      alike_ = alike_ && decision.slices == 1 && (!first_ || *first_ == decision);
      first_ = decision;
    }
  }
}

CostModel::Impl::StageWalk::StageWalk(const Impl& impl, const Strategy& s, const LayerEntry& entry, int64_t micro_batches, OperatorSolver& solver)
    : impl_(impl), s_(s), entry_(entry), solver_(solver), micro_batches_(micro_batches), uniform_(s.sharding == Sharding::kUniform) {}

const StageCost& CostModel::Impl::StageWalk::Next() {
  const int64_t stage = next_++, end = impl_.LayersBefore(s_, next_), layers = end - begin_;
  const int64_t moe_before = impl_.moe_layers_before[static_cast<size_t>(end)], moe = moe_before - moe_begin_;
  const int64_t held = ChunksHeld(s_.schedule, stage, s_.pp, s_.vpp, micro_batches_);
  // The ends have embedding and head besides.
  const bool same = stage > 1 && next_ < s_.pp && layers == layers_ && moe == moe_layers_;
  begin_ = end;
  moe_begin_ = moe_before;
  layers_ = layers;
  moe_layers_ = moe;
  repeats_ = same;
  if (!same) {
    Start(stage);
  } else if (held != held_) {
    // What a micro-batch leaves is a whole number of bytes, times the chunks held.
    rest_.activations = Bytes(rest_.activations.count() / held_ * held);
    Finish();
  }
  held_ = held;
  return cost_;
}

void CostModel::Impl::StageWalk::Start(int64_t stage) {
  if (uniform_) {
    cost_.passes = impl_.Passes(s_, entry_, stage);
    rest_ = StageMemory(impl_.job, impl_.stack, s_, impl_.state, entry_.dense_bytes, entry_.moe_bytes, impl_.Shape(s_, entry_, stage), stage,
                        micro_batches_);
  } else {
    shape_ = impl_.Shape(s_, entry_, stage);
    problem_ = impl_.Operators(s_, entry_, stage, micro_batches_, &rest_);
    passes_ = impl_.LayerPasses(s_, entry_, shape_);
    impl_.AddEdges(entry_, shape_, passes_);
    decided_ = nullptr;
  }
  Finish();
}

void CostModel::Impl::StageWalk::Finish() {
  if (uniform_) {
    cost_.memory = rest_;
    impl_.AddOwn(cost_.memory);
    return;
  }
  problem_.budget = impl_.OperatorBudget(rest_);
  const StageCost before = cost_;
  decided_ = &solver_.Solve(problem_);
  cost_ = impl_.DecidedCost(shape_, passes_, rest_, *decided_);
  repeats_ = repeats_ && cost_.passes.F() == before.passes.F() && cost_.passes.B() == before.passes.B() && cost_.once == before.once &&
             cost_.optimizer == before.optimizer;
}

}  // namespace weft::planner::parallelism

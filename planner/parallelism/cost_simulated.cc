// CostModel::EvaluateSimulated.
#include <algorithm>

#include "planner/parallelism/cost_tables.h"

namespace weft::planner {

Estimate CostModel::EvaluateSimulated(const Strategy& s, Scratch& scratch) const {
  const Impl& impl = *impl_;
  Estimate estimate = Evaluate(s, scratch);
  if (s.pp == 1) return estimate;
  const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
  std::vector<StageTime>& stages = scratch.tables_->stages;
  stages.clear();
  double most = 0;
  const double chunks = static_cast<double>(s.vpp);
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  for (int64_t i = 0; i < s.pp; ++i) {
    const StagePasses passes = impl.Cost(s, entry, i, micro_batches, scratch.tables_->operators).passes;
    most = std::max(most, passes.F() + passes.B());
    const StageTime chunk{Seconds(passes.F() / chunks), Seconds((passes.B() - passes.weight) / chunks),
                          Seconds(passes.weight / chunks)};
    stages.insert(stages.end(), static_cast<size_t>(s.vpp), chunk);
  }
  const Seconds hop(impl.HopTime(s));
  const auto simulated = SimulatePipeline({.schedule = s.schedule, .stages = stages, .micro_batches = micro_batches,
                                           .chunks = s.vpp, .hops = std::span(&hop, 1),
                                           .blocking_sends = BlockingSends(impl.stack, s.schedule)},
                                          scratch.tables_->pipeline);
  // Shapes that the simulator has no order for (interleaving with p not dividing m) keep the closed form.
  if (!simulated) return estimate;
  const Seconds before = Seconds(static_cast<double>(micro_batches) * most) + estimate.bubble + estimate.pipeline;
  estimate.bubble = simulated->iteration - Seconds(static_cast<double>(micro_batches) * most);
  estimate.pipeline = Seconds(0);  // part of the bubble: the simulation does not tell them apart
  estimate.iteration += simulated->iteration - before;
  return estimate;
}

}  // namespace weft::planner

// CostModel::EvaluateSimulated, and the pipeline problem that it and the timeline are about.
#include <algorithm>

#include "planner/parallelism/cost_tables.h"

namespace weft::planner {

PipelineProblem PipelineOf(const Strategy& s, const SoftwareStack& stack, int64_t micro_batches, const Seconds& hop,
                           std::span<const StagePasses> passes, std::vector<StageTime>& stages) {
  stages.clear();
  const double chunks = static_cast<double>(s.vpp);
  for (const StagePasses& stage : passes) {
    const StageTime chunk{Seconds(stage.F() / chunks), Seconds((stage.B() - stage.weight) / chunks), Seconds(stage.weight / chunks)};
    stages.insert(stages.end(), static_cast<size_t>(s.vpp), chunk);
  }
  return {.schedule = s.schedule, .stages = stages, .micro_batches = micro_batches, .chunks = s.vpp, .hops = std::span(&hop, 1),
          .blocking_sends = BlockingSends(stack, s.schedule)};
}

Estimate CostModel::EvaluateSimulated(const Strategy& s, Scratch& scratch) const {
  const Impl& impl = *impl_;
  Estimate estimate = Evaluate(s, scratch);
  if (s.pp == 1) return estimate;
  const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
  std::vector<StagePasses> passes;
  double most = 0;
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  for (int64_t i = 0; i < s.pp; ++i) {
    passes.push_back(impl.Cost(s, entry, i, micro_batches, scratch.tables_->operators).passes);
    most = std::max(most, passes.back().F() + passes.back().B());
  }
  const Seconds hop(impl.HopTime(s));
  const auto simulated = SimulatePipeline(PipelineOf(s, impl.stack, micro_batches, hop, passes, scratch.tables_->stages),
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

// CostModel::Timeline: one iteration pass by pass.
#include <fmt/format.h>

#include <algorithm>

#include "planner/parallelism/cost_tables.h"
#include "planner/tasks/task_graph.h"

namespace weft::planner {
namespace {

/// What one pass of one chunk is made of.
TimelineParts PartsOf(const StagePasses& stage, PassKind kind, bool split, double chunks) {
  const PassTime& time = kind == PassKind::kForward ? stage.forward : stage.backward;
  // Weight gradients are kernels alone; where the schedule splits them off they are no part of the data pass.
  if (kind == PassKind::kWeight) return {.compute = Seconds(stage.weight / chunks)};
  const double weight = kind == PassKind::kData && split ? stage.weight : 0;
  const double data = kind == PassKind::kForward ? stage.forward_data : stage.backward_data;
  return {.compute = Seconds((time.compute - weight) / chunks), .tensor = Seconds(time.tensor / chunks),
          .context = Seconds(time.context / chunks), .expert = Seconds(time.expert / chunks), .data = Seconds(data / chunks)};
}

}  // namespace

Result<IterationTimeline> CostModel::Timeline(const Strategy& s, Scratch& scratch) const {
  const Impl& impl = *impl_;
  const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  if (micro_batches > kMostTimelinePasses / ((SplitsBackward(s.schedule) ? 3 : 2) * s.pp * s.vpp)) {
    return Fail(Code::kInvalidArgument, fmt::format("timeline: {} micro-batches through {} stages of {} chunks, expected at most {} passes",
                                                    micro_batches, s.pp, s.vpp, kMostTimelinePasses));
  }
  std::vector<StagePasses> passes;
  std::vector<Bytes> gradients;
  std::vector<Seconds> exposed;  // of each chunk: its share of what the stage exchanges once per iteration
  double optimizer = 0;
  for (int64_t i = 0; i < s.pp; ++i) {
    const StageCost cost = impl.Cost(s, entry, i, micro_batches, scratch.tables_->operators);
    const Impl::Once once = impl.OnceOf(s, entry, i, cost);
    passes.push_back(cost.passes);
    gradients.insert(gradients.end(), static_cast<size_t>(s.vpp), Bytes(0));
    exposed.insert(exposed.end(), static_cast<size_t>(s.vpp), Seconds(once.exposed / static_cast<double>(s.vpp)));
    optimizer = std::max(optimizer, once.optimizer);
  }
  const Seconds hop(impl.HopTime(s));
  std::vector<StageTime> stages;
  const PipelineProblem problem = PipelineOf(s, impl.stack, micro_batches, hop, passes, stages);
  const PipelineTraffic traffic{.message = Bytes(0), .gradients = gradients, .gradient_times = exposed, .optimizer = Seconds(optimizer)};
  WEFT_ASSIGN_OR_RETURN(PipelineDemands demands, DemandsOf(problem, traffic));
  IterationTimeline timeline;
  timeline.optimizer = Seconds(optimizer);
  timeline.overhead = Seconds(impl.hardware.step_host + static_cast<double>(micro_batches) * impl.hardware.micro_batch_host);
  timeline.iteration = demands.iteration + timeline.overhead;
  const bool split = SplitsBackward(s.schedule);
  for (const PassWindow& pass : demands.passes) {
    timeline.passes.push_back({.stage = pass.stage, .pass = pass.pass, .begin = pass.window.earliest_start, .end = pass.window.earliest_end,
                               .parts = PartsOf(passes[static_cast<size_t>(pass.stage)], pass.pass.kind, split,
                                                static_cast<double>(s.vpp))});
  }
  timeline.transfers = std::move(demands.transfers);
  return timeline;
}

}  // namespace weft::planner

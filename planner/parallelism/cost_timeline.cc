// CostModel::Timeline: one iteration pass by pass.
#include <fmt/format.h>

#include <algorithm>

#include "planner/parallelism/cost_tables.h"
#include "planner/tasks/task_graph.h"

namespace weft::planner::inline parallelism {
namespace {

/// What one pass of one chunk is made of.
TimelineParts PartsOfPass(const StagePasses& stage, PassKind kind, bool split, double chunks) {
  const PassTime& time = kind == PassKind::kForward ? stage.forward : stage.backward;
  // Weight gradients are kernels alone; where the schedule splits them off they are no part of the data pass.
  if (kind == PassKind::kWeight) return {.compute = stage.weight / chunks};
  const Seconds weight = kind == PassKind::kData && split ? stage.weight : Seconds(0);
  const Seconds data = kind == PassKind::kForward ? stage.forward_data : stage.backward_data;
  return {.compute = (time.compute - weight) / chunks, .tensor = time.tensor / chunks, .context = time.context / chunks,
          .expert = time.expert / chunks, .data = data / chunks};
}

/// What every stage exchanges between its last pass and its optimizer, and when the last one is done.
void AddExchanges(const SimulatedIteration& found, IterationTimeline& timeline) {
  const size_t chunks = found.exchanges.size() / found.passes.size();
  for (size_t i = 0; i < found.passes.size(); ++i) {
    const Seconds last_pass = found.pipeline.stages[i].end;
    const Seconds hidden = LastExchangeEnd(found.pipeline.chunks.subspan(i * chunks, chunks), found.exchanges.subspan(i * chunks, chunks));
    const Seconds over = found.fill + std::max(last_pass, hidden) + found.after[i];
    TransferDemand exchange{.kind = TransferDemand::Kind::kGradientExchange, .from = static_cast<int64_t>(i), .to = static_cast<int64_t>(i)};
    exchange.window.earliest_start = found.fill + last_pass;
    exchange.window.earliest_end = over - found.optimizer[i];
    timeline.transfers.push_back(exchange);
    timeline.optimizer.push_back(found.optimizer[i]);
    timeline.iteration = std::max(timeline.iteration, over);
  }
}

}  // namespace

Result<IterationTimeline> CostModel::Timeline(const Strategy& s, Scratch& scratch) const {
  const Impl& impl = *impl_;
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  if (micro_batches > kMostTimelinePasses / ((SplitsBackward(s.schedule) ? 3 : 2) * s.pp * s.vpp)) {
    return Fail(Code::kInvalidArgument, fmt::format("timeline: {} micro-batches through {} stages of {} chunks, expected at most {} passes",
                                                    micro_batches, s.pp, s.vpp, kMostTimelinePasses));
  }
  const Result<SimulatedIteration> found = impl.Simulate(s, scratch);
  if (!found) return Fail(found.error().WithContext("timeline"));
  WEFT_ASSIGN_OR_RETURN(PipelineDemands demands, DemandsOf(found->problem, {}));
  IterationTimeline timeline;
  timeline.fill = found->fill;
  timeline.overhead = impl.hardware.step_host;
  const bool split = SplitsBackward(s.schedule);
  for (const PassWindow& pass : demands.passes) {
    timeline.passes.push_back({.stage = pass.stage, .pass = pass.pass, .begin = found->fill + pass.window.earliest_start,
                               .end = found->fill + pass.window.earliest_end,
                               .parts = PartsOfPass(found->passes[static_cast<size_t>(pass.stage)], pass.pass.kind, split,
                                                    static_cast<double>(s.vpp))});
  }
  timeline.transfers = std::move(demands.transfers);
  for (TransferDemand& message : timeline.transfers) {
    message.window.earliest_start += found->fill;
    message.window.earliest_end += found->fill;
  }
  AddExchanges(*found, timeline);
  timeline.iteration += timeline.overhead;
  return timeline;
}

}  // namespace weft::planner::parallelism

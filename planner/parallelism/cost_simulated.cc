// CostModel::EvaluateSimulated: one iteration from its first gather to its last optimizer step.
#include <algorithm>
#include <cmath>

#include "planner/parallelism/cost_tables.h"
#include "planner/parallelism/pipeline_hops.h"

namespace weft::planner::inline parallelism {
namespace {

/// [p × v]: the stages' passes cut into equal chunks.
void CutIntoChunks(std::span<const StagePasses> passes, int64_t chunks, std::vector<StageTime>& stages) {
  stages.clear();
  const double v = static_cast<double>(chunks);
  for (const StagePasses& stage : passes) {
    const StageTime chunk{stage.F() / v, (stage.B() - stage.weight) / v, stage.weight / v};
    stages.insert(stages.end(), static_cast<size_t>(chunks), chunk);
  }
}

}  // namespace

Result<SimulatedIteration> CostModel::Impl::Simulate(const Strategy& s, Scratch& scratch) const {
  Scratch::Tables& tables = *scratch.tables_;
  const LayerEntry& entry = tables.Find(*this, KeyOf(s));
  const int64_t micro_batches = MicroBatches(s, job.global_batch);
  const double v = static_cast<double>(s.vpp);
  tables.passes.clear();
  tables.exchanges.clear();
  tables.after.clear();
  tables.optimizer.clear();
  tables.hops.clear();
  for (int64_t i = 0; i < s.pp; ++i) tables.hops.push_back(HopTime(s, HopLeaves(hardware.network, s, i)));
  std::vector<Seconds>& waits = tables.waits;
  waits.clear();
  for (int64_t i = 0; i < s.pp; ++i) {
    const StageCost cost = Cost(s, entry, i, micro_batches, tables.operators);
    const Once once = OnceOf(s, entry, i, cost);
    tables.passes.push_back(cost.passes);
    ChunkExchange chunk;
    if (once.hides && once.tail > Seconds(0)) {
      chunk.time = once.gradients / v;
      chunk.buckets = static_cast<int64_t>(once.Buckets(s.vpp));
    }
    tables.exchanges.insert(tables.exchanges.end(), static_cast<size_t>(s.vpp), chunk);
    tables.optimizer.push_back(once.optimizer);
    tables.after.push_back(once.slowed + once.optimizer + (once.hides ? Seconds(0) : once.gradients));
    waits.push_back(once.parameters);
  }
  CutIntoChunks(tables.passes, s.vpp, tables.stages);
  SimulatedIteration found{.passes = tables.passes,
                           .problem = {.schedule = s.schedule, .stages = tables.stages, .micro_batches = micro_batches,
                                       .chunks = s.vpp, .hops = tables.hops,
                                       .blocking_sends = BlockingSends(stack, s.schedule)},
                           .exchanges = tables.exchanges, .after = tables.after, .optimizer = tables.optimizer};
  WEFT_ASSIGN_OR_RETURN(found.pipeline, SimulatePipeline(found.problem, tables.pipeline));
  for (size_t i = 0; i < waits.size(); ++i) found.fill = std::max(found.fill, waits[i] - found.pipeline.stages[i].start);
  WEFT_ASSIGN_OR_RETURN(found.end, EndOfIteration(s.schedule, found.pipeline, found.exchanges, found.after));
  return found;
}

Estimate CostModel::Impl::PredictionOf(const Strategy& s, const ClosedForm& closed, Scratch& scratch) const {
  const Result<SimulatedIteration> found = Simulate(s, scratch);
  if (!found) return closed.estimate;
  const Seconds span = found->pipeline.iteration;
  const Seconds closing = found->end.iteration - span;
  const Seconds optimizer = std::min(closing, found->optimizer[static_cast<size_t>(found->end.stage)]);
  const StagePasses& slowest = found->passes[static_cast<size_t>(closed.estimate.slowest_stage)];
  Estimate estimate = PartsOf(slowest, static_cast<double>(found->problem.micro_batches), span, found->fill,
                              closing - optimizer, optimizer, closed.estimate.overhead);
  estimate.memory = closed.estimate.memory;
  estimate.worst_stage = closed.estimate.worst_stage;
  estimate.slowest_stage = closed.estimate.slowest_stage;
  estimate.fits = closed.estimate.fits;
  if (s.pp == 1) return estimate;
  // What messages add: the same passes with neighbours that are no way apart.
  PipelineProblem near = found->problem;
  near.hops = {};
  if (const Result<PipelineTime> without = SimulatePipeline(near, scratch.tables_->pipeline)) {
    estimate.pipeline = std::clamp(span - without->iteration, Seconds(0), estimate.bubble);
    estimate.bubble -= estimate.pipeline;
  }
  return estimate;
}

}  // namespace weft::planner::parallelism

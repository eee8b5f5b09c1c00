// CostModel::Evaluate: closed forms of the pipeline and of data parallelism's exposed part, and the parts' account.
#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/parallelism/cost_tables.h"
#include "planner/tasks/pipeline_bound.h"

namespace weft::planner::inline parallelism {

Estimate PartsOf(const StagePasses& slowest, double m, Seconds span, Seconds first, Seconds closing, Seconds optimizer,
                 Seconds overhead) {
  Estimate e;
  e.compute = m * (slowest.forward.compute + slowest.backward.compute);
  e.tensor = m * (slowest.forward.tensor + slowest.backward.tensor);
  e.context = m * (slowest.forward.context + slowest.backward.context);
  e.expert = m * (slowest.forward.expert + slowest.backward.expert);
  e.data = m * (slowest.forward_data + slowest.backward_data) + first + closing;
  e.bubble = std::max(Seconds(0), span - m * (slowest.F() + slowest.B()));  // a simulation counts whole picoseconds
  e.optimizer = optimizer;
  e.overhead = overhead;
  e.iteration = first + span + closing + optimizer + overhead;
  return e;
}

double CostModel::Impl::Once::Buckets(int64_t chunks) const {
  if (!(tail > Seconds(0))) return 1;
  return std::max(1.0, std::floor(gradients / static_cast<double>(chunks) / tail * (1 + 1e-9)));
}

Seconds CostModel::Impl::Once::Exposed(Seconds window, int64_t chunks) const {
  if (!hides) return gradients + slowed;
  // All chunks but the last one's may be exchanged earlier.
  const double v = static_cast<double>(chunks), n = Buckets(chunks);
  return std::max(gradients / v / n, (gradients - window * (1 - 1 / n)) / v) + slowed;
}

Seconds CostModel::Impl::Once::ExchangesEnd(Seconds first_final, Seconds window, int64_t chunks) const {
  return first_final - window / static_cast<double>(chunks) * (1 - 1 / Buckets(chunks)) + gradients + slowed + optimizer;
}

CostModel::Impl::Once CostModel::Impl::OnceOf(const Strategy& s, const LayerEntry& entry, int64_t stage, const StageCost& cost) const {
  const bool uniform = s.sharding == Sharding::kUniform;
  const DataTime data =
      ComputeDataTime(hardware, stack, s, state, uniform ? Shape(s, entry, stage) : cost.exchanged, job.model.IsCnn());
  // A pipeline of FSDP2 units sums whole gradients after the last backward pass.
  // Parameters are averaged after a step, not behind one.
  const bool waits = s.local_steps > 1 || (stack.replicas_wait && s.zero_stage == 0) || (GradientsStayWhole(stack, s) && s.pp > 1 && s.vpp == 1);
  Once once{.gradients = data.gradients, .tail = data.tail, .hides = stack.overlaps_gradients && !waits, .slowed = cost.once,
            .optimizer = cost.optimizer + data.optimizer};
  once.parameters = stack.overlaps_parameters ? ExposedBehind(hardware, data.parameters, cost.passes.F()) : data.parameters;
  // With chunks the exchange has more passes to hide behind.
  const Seconds window = cost.passes.B() * static_cast<double>(s.vpp);
  if (once.hides) once.slowed += hardware.interference * std::min(data.gradients, window);
  return once;
}

CostModel::Impl::ClosedForm CostModel::Impl::Close(const Strategy& s, Scratch& scratch, std::vector<StageOperators>* operators) const {
  const LayerEntry& entry = scratch.tables_->Find(*this, KeyOf(s));
  const int64_t micro_batches = MicroBatches(s, job.global_batch);
  const double m = static_cast<double>(micro_batches);
  PipelineBound bound({.schedule = s.schedule, .stages = s.pp, .chunks = s.vpp, .micro_batches = micro_batches,
                       .hop = LeastHopTime(s), .blocking_sends = BlockingSends(stack, s.schedule)});
  ClosedForm closed;
  MemoryUse worst;
  StagePasses slowest;
  Seconds sum{0}, most{0}, ends{0};
  Seconds first{0}, first_closing{0}, first_backward{0}, optimizer(std::numeric_limits<double>::infinity());
  int64_t worst_stage = 0, slowest_stage = 0, once_of = -1;
  bool feasible = true;
  const bool uniform = s.sharding == Sharding::kUniform, split = SplitsBackward(s.schedule);
  StageWalk walk(*this, s, entry, micro_batches, scratch.tables_->operators);
  Once once, first_once;
  const auto queues = [&](const Once& of) { return of.hides && s.schedule == ScheduleKind::kInterleaved && s.vpp > 1; };
  const Seconds hop_sent = BlockingSends(stack, s.schedule) ? bound.shape().hop * static_cast<double>(s.vpp) : Seconds(0);
  for (int64_t i = 0; i < s.pp; ++i) {
    const StageCost& stage = walk.Next();
    if (walk.operators() != nullptr) {
      if (!walk.repeats()) closed.alike.Add(*walk.operators());
      if (operators != nullptr) operators->push_back(*walk.operators());
      if (operators != nullptr) operators->back().embedding = i == 0;
    }
    feasible = feasible && stage.feasible;
    if (i == 0 || stage.memory.total() > worst.total()) {
      worst = stage.memory;
      worst_stage = i;
    }
    const Seconds forward = stage.passes.F(), backward = stage.passes.B();
    bound.Add(forward, backward, stage.passes.weight);
    sum += forward + backward;
    if (forward + backward > most) {
      most = forward + backward;
      slowest_stage = i;
      slowest = stage.passes;
    }
    if (bound.StageEnd() > closed.last_end) {
      closed.last_end = bound.StageEnd();
      closed.last_stage = i;
    }
    // Gradients become final in the last backward pass, or in the last weight gradient where that is split off.
    const Seconds window = split ? stage.passes.weight : backward;
    // Stages between the ends exchange alike, unless each decides for itself.
    if (!split && uniform && i != 0 && i != s.pp - 1 && i != s.pp / 2) continue;
    if (!walk.repeats() || once_of != i - 1) once = OnceOf(s, entry, i, stage);
    once_of = i;
    if (i == 0) {
      first = once.parameters;
      first_closing = once.Exposed(window, s.vpp) + once.optimizer;
      first_once = once;
      first_backward = backward + hop_sent;
    }
    if (queues(once)) ends = std::max(ends, once.ExchangesEnd(bound.FirstChunkFinal(), backward + hop_sent, s.vpp));
    // Unsplit, the last pass of all is stage 0's.
    if (split || i == 0) optimizer = std::min(optimizer, once.optimizer);
    ends = std::max(ends, bound.StageEnd() + once.Exposed(window, s.vpp) + once.optimizer);
  }
  const Seconds span = bound.Makespan();
  ends = std::max(ends, bound.FirstStageEnd() + first_closing);
  if (split) ends = std::max(ends, span + optimizer);
  if (queues(first_once)) ends = std::max(ends, first_once.ExchangesEnd(bound.FirstChunkFinalOfStage0(), first_backward, s.vpp));
  closed.mean = sum / static_cast<double>(s.pp);
  const Seconds overhead = hardware.step_host;
  closed.estimate = PartsOf(slowest, m, span, first, ends - span - optimizer, optimizer, overhead);
  closed.estimate.memory = worst;
  closed.estimate.worst_stage = worst_stage;
  closed.estimate.slowest_stage = slowest_stage;
  closed.estimate.fits = worst.total() <= usable && feasible;
  return closed;
}

Seconds CostModel::AnyScheduleBound(const Strategy& s, Scratch& scratch) const {
  const Impl::ClosedForm closed = impl_->Close(s, scratch);
  return static_cast<double>(MicroBatches(s, impl_->job.global_batch)) * closed.mean + closed.estimate.overhead;
}

}  // namespace weft::planner::parallelism

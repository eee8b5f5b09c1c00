// CostModel::Evaluate and its bound: the pipeline's closed forms, data parallelism's exposed part, the parts' account.
#include <algorithm>

#include "planner/parallelism/cost_tables.h"

namespace weft::planner {
namespace {

struct PipelineSums {
  double forward = 0, backward = 0, all = 0;          // over stages
  double most_forward = 0, most_backward = 0, most = 0;
  double most_weight = 0;
  int64_t slowest = 0;
};

/// Closed forms of the schedules (sources at ScheduleKind): time from the first forward to the last backward, without messages.
double PipelineSpan(const Strategy& s, const PipelineSums& sums, double m) {
  const double p = static_cast<double>(s.pp), v = static_cast<double>(s.vpp);
  if (s.pp == 1) return m * sums.all;
  // The zero-bubble forms take the largest weight pass of all stages, not the slowest stage's: so that they rise with
  // every stage's time, as pipelines do, whichever stage is the slowest then.
  const double mean = sums.all / p, weight = sums.most_weight;
  switch (s.schedule) {
    case ScheduleKind::kGpipe:
      return sums.forward + sums.backward + (m - 1) * (sums.most_forward + sums.most_backward);
    case ScheduleKind::k1F1B:
    case ScheduleKind::kEager1F1B: return sums.all + (m - 1) * sums.most;
    case ScheduleKind::kInterleaved: return sums.all / v + (m - 1 / v) * sums.most;
    case ScheduleKind::kZbH1: return m * sums.most + (p - 1) * std::max(0.0, mean - 2 * weight);
    case ScheduleKind::kZbH2: return m * sums.most + (p - 1) * std::max(0.0, mean - 3 * weight);
    case ScheduleKind::kZbV: return m * sums.most;
  }
  return 0;
}

/// What messages add. Overlapped sends cost only the way through the pipeline.
double HopsExposed(const Strategy& s, const SoftwareStack& stack, double hop, double m) {
  if (s.pp == 1) return 0;
  const double p = static_cast<double>(s.pp), v = static_cast<double>(s.vpp);
  const double blocking = BlockingSends(stack, s.schedule) ? 2 * hop * m * v : 0;
  switch (s.schedule) {
    case ScheduleKind::kGpipe:
    case ScheduleKind::kEager1F1B:
    case ScheduleKind::kZbH2: return 2 * (p - 1) * hop + blocking;
    case ScheduleKind::kInterleaved: return 2 * hop * (p * v - 1) + blocking;
    case ScheduleKind::k1F1B:
    case ScheduleKind::kZbH1: return 2 * hop * (m * (p - 1) / p + p - 2) + blocking;
    case ScheduleKind::kZbV: return 2 * hop * (2 * p - 1) + blocking;
  }
  return 0;
}

/// Exposed gradients and parameters of one stage whose last backward and first forward take B and F.
double DataExposed(const Strategy& s, const SoftwareStack& stack, const CalibratedHardware& m, const DataTime& data, double forward,
                   double backward) {
  // With chunks all but the last one's gradients are final earlier.
  const double window = s.vpp > 1 ? backward * static_cast<double>(s.vpp) : backward;
  double exposed = data.gradients + data.parameters;
  // A pipeline of FSDP2 units sums whole gradients after the last backward pass.
  const bool waits = (stack.replicas_wait && s.zero_stage == 0) || (GradientsStayWhole(stack, s) && s.pp > 1 && s.vpp == 1);
  if (stack.overlaps_gradients && !waits) {
    exposed += std::max(data.tail, data.gradients - window) + m.interference * std::min(data.gradients, window) - data.gradients;
  }
  if (stack.overlaps_parameters) {
    exposed += std::max(0.0, data.parameters - forward) + m.interference * std::min(data.parameters, forward) - data.parameters;
  }
  return exposed;
}

}  // namespace

CostModel::Impl::Once CostModel::Impl::OnceOf(const Strategy& s, const LayerEntry& entry, int64_t stage, const StageCost& cost) const {
  const bool uniform = s.sharding == Sharding::kUniform;
  const DataTime data =
      ComputeDataTime(hardware, stack, s, state, uniform ? Shape(s, entry, stage) : cost.exchanged, job.model.IsCnn());
  return {cost.once + DataExposed(s, stack, hardware, data, cost.passes.F(), cost.passes.B()), cost.optimizer + data.optimizer};
}

Estimate CostModel::EvaluateAsDecided(const Strategy& s, Scratch& scratch,
                                      std::vector<StageOperators>* operators) const {
  const Impl& impl = *impl_;
  const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  const double m = static_cast<double>(micro_batches);
  Estimate estimate;
  PipelineSums sums;
  StagePasses slowest;
  double data_exposed = 0, optimizer = 0;
  bool feasible = true;
  for (int64_t i = 0; i < s.pp; ++i) {
    const StageCost stage = impl.Cost(s, entry, i, micro_batches, scratch.tables_->operators, operators);
    feasible = feasible && stage.feasible;
    if (i == 0 || stage.memory.total() > estimate.memory.total()) {
      estimate.memory = stage.memory;
      estimate.worst_stage = i;
    }
    const StagePasses& passes = stage.passes;
    const double forward = passes.F(), backward = passes.B();
    sums.forward += forward;
    sums.backward += backward;
    sums.most_weight = std::max(sums.most_weight, passes.weight);
    sums.most_forward = std::max(sums.most_forward, forward);
    sums.most_backward = std::max(sums.most_backward, backward);
    if (forward + backward > sums.most) {
      sums.most = forward + backward;
      sums.slowest = i;
      slowest = passes;
    }
    // Stages between the ends exchange alike, unless each decides for itself.
    const bool uniform = s.sharding == Sharding::kUniform;
    if (uniform && i != 0 && i != s.pp - 1 && i != s.pp / 2) continue;
    const Impl::Once once = impl.OnceOf(s, entry, i, stage);
    data_exposed = std::max(data_exposed, once.exposed);
    optimizer = std::max(optimizer, once.optimizer);
  }
  sums.all = sums.forward + sums.backward;
  const double span = PipelineSpan(s, sums, m);
  const double hops = HopsExposed(s, impl.stack, impl.HopTime(s), m);
  const double overhead = impl.hardware.step_host + m * impl.hardware.micro_batch_host;
  estimate.compute = Seconds(m * (slowest.forward.compute + slowest.backward.compute));
  estimate.tensor = Seconds(m * (slowest.forward.tensor + slowest.backward.tensor));
  estimate.context = Seconds(m * (slowest.forward.context + slowest.backward.context));
  estimate.expert = Seconds(m * (slowest.forward.expert + slowest.backward.expert));
  estimate.data = Seconds(m * (slowest.forward_data + slowest.backward_data) + data_exposed);
  estimate.pipeline = Seconds(hops);
  estimate.bubble = Seconds(span - m * sums.most);
  estimate.optimizer = Seconds(optimizer);
  estimate.overhead = Seconds(overhead);
  estimate.iteration = Seconds(span + hops + data_exposed + optimizer + overhead);
  estimate.fits = static_cast<double>(estimate.memory.total().count()) <= impl.usable && feasible;
  estimate.slowest_stage = sums.slowest;
  return estimate;
}

}  // namespace weft::planner

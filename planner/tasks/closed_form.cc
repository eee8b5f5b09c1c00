#include "planner/tasks/closed_form.h"

#include <algorithm>

namespace weft::planner {
namespace {

/// Sums and maxima over the stages of a problem; a stage's chunks count together.
struct Totals {
  double p = 0, v = 1, m = 1;
  double forward_sum = 0, backward_sum = 0;
  double forward_max = 0, backward_max = 0, both_max = 0;
  double data_max = 0, weight_max = 0;
  double hop = 0;  // mean
  bool equal = true;
  bool thirds = true;  // F = D = W everywhere
};

Totals Sum(const PipelineProblem& problem) {
  Totals t{.v = static_cast<double>(problem.chunks), .m = static_cast<double>(problem.micro_batches)};
  const size_t chunks = static_cast<size_t>(problem.chunks), stages = problem.stages.size() / chunks;
  t.p = static_cast<double>(stages);
  // The wrap from the last stage to the first counts only where there is one.
  const bool wraps = problem.schedule == ScheduleKind::kInterleaved && chunks > 1;
  const size_t hops = stages == 1 ? 0 : problem.hops.size() == stages && !wraps ? stages - 1 : problem.hops.size();
  for (size_t k = 0; k < hops; ++k) t.hop += problem.hops[k].count() / static_cast<double>(hops);
  const double wait = problem.blocking_sends ? t.hop : 0;
  const StageTime& first = problem.stages[0];
  for (size_t i = 0; i < stages; ++i) {
    double forward = 0, data = 0, weight = 0;
    for (size_t c = 0; c < chunks; ++c) {
      const StageTime& time = problem.stages[i * chunks + c];
      forward += time.forward.count() + wait;
      data += time.data_gradient.count() + wait;
      weight += time.weight_gradient.count();
      t.equal = t.equal && time.forward == first.forward && time.data_gradient == first.data_gradient &&
                time.weight_gradient == first.weight_gradient;
    }
    t.forward_sum += forward;
    t.backward_sum += data + weight;
    t.forward_max = std::max(t.forward_max, forward);
    t.backward_max = std::max(t.backward_max, data + weight);
    t.both_max = std::max(t.both_max, forward + data + weight);
    t.data_max = std::max(t.data_max, data);
    t.weight_max = std::max(t.weight_max, weight);
  }
  t.thirds = t.equal && first.forward == first.data_gradient && first.data_gradient == first.weight_gradient;
  return t;
}

/// Plain 1F1B pays the way in every micro-batch: only p-i are in flight. Source: derived by simulation.
double OneForwardOneBackwardHops(const Totals& t) {
  return t.p > 1 ? 2 * t.hop * (t.m * (t.p - 1) / t.p + t.p - 2) : 0;
}

}  // namespace

Result<PipelineEstimate> ClosedFormPipeline(const PipelineProblem& problem) {
  WEFT_RETURN_IF_ERROR(CheckPipeline(problem));
  const Totals t = Sum(problem);
  const bool no_hops = t.hop == 0;
  const bool async = no_hops || !problem.blocking_sends;
  const double sum = t.forward_sum + t.backward_sum;
  // Where sends block, the hop is in the passes already.
  const double hop = problem.blocking_sends ? 0 : t.hop;
  const double in_flight_hops = problem.blocking_sends ? 0 : OneForwardOneBackwardHops(t);
  double time = 0;
  bool exact = false;
  switch (problem.schedule) {
    case ScheduleKind::kGpipe:
      time = t.forward_sum + (t.m - 1) * t.forward_max + t.backward_sum + (t.m - 1) * t.backward_max +
             2 * (t.p - 1) * hop;
      exact = async;
      break;
    case ScheduleKind::k1F1B:
      time = sum + (t.m - 1) * t.both_max + in_flight_hops;
      exact = t.equal && async &&
              (no_hops || (problem.micro_batches % static_cast<int64_t>(t.p) == 0 && t.hop < t.forward_max));
      break;
    case ScheduleKind::kEager1F1B:
      time = sum + (t.m - 1) * t.both_max + 2 * (t.p - 1) * hop;
      exact = t.equal && no_hops;
      break;
    case ScheduleKind::kInterleaved:
      time = sum / t.v + (t.m - 1 / t.v) * t.both_max + 2 * hop * (t.p * t.v - 1);
      exact = t.equal && no_hops;
      break;
    case ScheduleKind::kZbH1:
      time = t.m * t.both_max + (t.p - 1) * (t.forward_max + t.data_max - t.weight_max) + in_flight_hops;
      exact = t.equal && no_hops && t.m >= t.p && t.weight_max <= std::min(t.forward_max, t.data_max);
      break;
    case ScheduleKind::kZbH2:
      time = t.m * t.both_max + (t.p - 1) * std::max(0.0, t.forward_max + t.data_max - 2 * t.weight_max) +
             2 * (t.p - 1) * hop;
      exact = t.equal && no_hops && t.m >= 2 * t.p - 1 && t.weight_max <= std::min(t.forward_max, t.data_max);
      break;
    case ScheduleKind::kZbV:
      time = t.m * t.both_max + 2 * (t.p - 1) * hop;
      exact = t.thirds && no_hops && t.m >= 2 * t.p - 1;
      break;
  }
  time = std::max(time, t.m * t.both_max);
  return PipelineEstimate{Seconds(time), Seconds(time - t.m * t.both_max), exact};
}

}  // namespace weft::planner

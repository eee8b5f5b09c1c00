#include "planner/tasks/pipeline_bound.h"

namespace weft::planner::inline tasks {

void PipelineBound::Add(Seconds forward, Seconds backward, Seconds weight) {
  const double v = static_cast<double>(shape_.chunks), m = static_cast<double>(shape_.micro_batches);
  const double i = static_cast<double>(added_);
  const bool last = added_ == shape_.stages - 1;
  // One stage sends nothing. In ZB-V the ends are elsewhere; none of its sends blocks.
  const bool blocks = shape_.blocking_sends && shape_.stages > 1 && shape_.schedule != ScheduleKind::kZbV;
  const Seconds send = blocks ? shape_.hop : Seconds(0);
  const Seconds busy_forward = forward + send * (last ? v - 1 : v), busy_backward = backward + send * (added_ == 0 ? v - 1 : v);
  const Seconds busy = busy_forward + busy_backward, work = m * busy;
  // The last gradient's send is the stage's own time where it blocks, and not again a part of the way up.
  const Seconds up = i > 0 && send > Seconds(0) ? (i - 1) * shape_.hop : i * shape_.hop;
  if (added_ == 0) first_weight_ = weight;
  stage_end_ = HasBarrier(shape_.schedule) ? forward_sum_ + i * shape_.hop + work : work;
  Seconds end = stage_end_;
  if (!SplitsBackward(shape_.schedule)) end += backward_sum_ + up;
  if (shape_.schedule == ScheduleKind::kZbH1) {
    most_first_ = std::max(most_first_, stage_end_ - (i + 1) * weight + data_sum_ + up + first_weight_);
    end = std::max(end, most_first_);
  }
  if (added_ == 0) most_first_ = std::max(most_first_, stage_end_);
  if (shape_.schedule == ScheduleKind::kInterleaved && shape_.chunks > 1) {
    const double behind = (v - 1) * static_cast<double>(shape_.stages);
    first_chunk_ = stage_end_ - behind * (backward / v) - (behind + 1) * send;
    most_first_chunk_ = std::max(most_first_chunk_, first_chunk_ + backward_sum_ + up);
  }
  most_ = std::max(most_, end);
  // Passes in flight before the stage's first backward one. Between that and its last forward pass lie all others but these;
  // before and behind, the way to the last stage and back, which is known when all stages are.
  const int64_t below = shape_.stages - 1 - added_;
  const int64_t flight = shape_.schedule == ScheduleKind::kEager1F1B ? 2 * below + 1 : below + 1;
  const bool plain = shape_.schedule == ScheduleKind::k1F1B || shape_.schedule == ScheduleKind::kEager1F1B;
  if (plain && flight < shape_.micro_batches) {
    const Seconds way = static_cast<double>(2 * below - (send > Seconds(0) && below > 0 ? 1 : 0)) * shape_.hop;
    const Seconds passed = forward_sum_ + backward_sum_ + forward + backward;
    const double rest = m - static_cast<double>(flight - 1);
    const Seconds turn = forward_sum_ + i * shape_.hop + rest * busy + 2 * (way - passed) + backward_sum_ + up;
    most_turn_ = std::max(most_turn_, turn);
  }
  forward_sum_ += forward / v;
  backward_sum_ += backward / v;
  data_sum_ += (backward - weight) / v;
  all_forward_ += busy_forward;
  all_backward_ += busy_backward;
  most_forward_ = std::max(most_forward_, busy_forward);
  most_backward_ = std::max(most_backward_, busy_backward);
  last_ = forward + backward;
  last_busy_ = busy;
  ++added_;
}

/// From the first pass of stage 0 on everything that it sends goes over one link; what the last message brings goes on to the last stage
/// and all the way back.
Seconds PipelineBound::OfLink() const {
  if (shape_.stages == 1 || shape_.blocking_sends) return Seconds(0);
  const double p = static_cast<double>(shape_.stages), v = static_cast<double>(shape_.chunks);
  const double messages = v * static_cast<double>(shape_.micro_batches);
  if (shape_.schedule == ScheduleKind::kZbV) return messages * shape_.hop;
  const Seconds back = SplitsBackward(shape_.schedule) ? data_sum_ : backward_sum_;
  return forward_sum_ + v * back + (messages + (p - 2) + (p * v - 1)) * shape_.hop;
}

Seconds PipelineBound::Makespan() const {
  const double p = static_cast<double>(shape_.stages), v = static_cast<double>(shape_.chunks);
  const double m = static_cast<double>(shape_.micro_batches);
  const Seconds hop = shape_.hop;
  if (shape_.stages == 1) return most_;
  const Seconds least = std::max(most_, OfLink());
  const Seconds sum = forward_sum_ + backward_sum_;  // of all stages now, per chunk
  switch (shape_.schedule) {
    case ScheduleKind::kGpipe: {
      if (shape_.blocking_sends) return std::max(most_, all_forward_ + all_backward_ + (m - 1) * (most_forward_ + most_backward_));
      const Seconds most = std::max(most_forward_, hop) + std::max(most_backward_, hop);
      return std::max(least, all_forward_ + all_backward_ + (m - 1) * most + 2 * (p - 1) * hop);
    }
    case ScheduleKind::kEager1F1B: return std::max(least, most_turn_ + 2 * sum);
    case ScheduleKind::k1F1B: {
      const int64_t rounds = (shape_.micro_batches - 1) / shape_.stages;
      const double left = static_cast<double>(shape_.micro_batches - rounds * shape_.stages);
      const Seconds way = 2 * (p - 1) * hop;
      const Seconds end = sum - last_ + left * last_busy_ + way - (shape_.blocking_sends ? hop : Seconds(0));
      return std::max({least, most_turn_ + 2 * sum, static_cast<double>(rounds) * (sum + way) + end});
    }
    case ScheduleKind::kInterleaved: {
      if (shape_.chunks == 1 || shape_.blocking_sends) return least;
      const Seconds last = last_ / v;
      return std::max(least, v * sum - last + (m * v - (v - 1) * p) * last + 2 * (p * v - 1) * hop);
    }
    default: return least;
  }
}

}  // namespace weft::planner::tasks

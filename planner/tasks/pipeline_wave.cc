// All schedules but ZB-V as waves. With N = m·v passes per stage and direction, number the forward passes of stage i by
// n and the backward passes by q, in the order in which it runs them (both orders are the same on all stages). Step s runs
//   forward pass n = s - i on every stage, then backward pass q = s - back + i on every stage ("slanted"), or
//   q = s - back on every stage ("straight": plain 1F1B and ZB-H1).
// How far `back` lies behind makes the warm-up:
//   1F1B, ZB-H1   straight, back = p - 1:              stage i warms up with p-1-i passes
//   eager, ZB-H2  slanted, back = 2(p - 1):            2(p-1-i)
//   interleaved   slanted, back = 2(p - 1) + (v-1)p:   2(p-1-i) + (v-1)p
//   GPipe         slanted, back = N + 2(p - 1):        all
// What a forward pass needs was sent in the step before: pass n of stage i-1, or pass n - p of the last stage where a
// chunk follows another. Likewise a slanted backward pass; a straight one needs the same step's pass on the stage after.
// So one mailbox per stage and direction holds all that is on the way; when its last message arrives the link is free for
// the next. The state of a pipeline is three numbers per stage. Every pass is an addition after a maximum: when the state of an earlier step returns, shifted by a constant,
// everything in between repeats, shifted, for as long as all stages are busy, and is skipped.
#include <algorithm>
#include <limits>

#include "planner/tasks/pipeline_tables.h"

namespace weft::planner::inline tasks {
namespace {

class Wave {
 public:
  Wave(ScheduleKind schedule, PipelineScratch::Tables& tables)
      : tables_(tables), p_(tables.p), v_(tables.v), passes_(tables.m * tables.v), lanes_(tables.lanes.data()) {
    switch (schedule) {
      case ScheduleKind::kGpipe: back_ = passes_ + 2 * (p_ - 1); break;
      case ScheduleKind::k1F1B:
      case ScheduleKind::kZbH1: back_ = p_ - 1; break;
      case ScheduleKind::kInterleaved:
        // With one group of micro-batches nothing is gained by starting backward early.
        back_ = tables.m == p_ && v_ > 1 ? passes_ + 2 * (p_ - 1) : 2 * (p_ - 1) + (v_ - 1) * p_;
        break;
      default: back_ = 2 * (p_ - 1);
    }
    for (int64_t i = 0; i < p_; ++i) {
      lanes_[i] = {.backward_chunk = v_ - 1};
      if (SplitsBackward(schedule)) lanes_[i].weights_waiting = schedule == ScheduleKind::kZbH1 ? i : 2 * i;
      most_waiting_ = std::max(most_waiting_, lanes_[i].weights_waiting);
    }
  }

  template <bool kChunked, bool kSplit, bool kStraight>
  void Run() {
    const int64_t end = passes_ + back_;  // the last backward pass of stage 0 runs in step end - 1
    // Steps in which every stage runs the same kinds of passes: both, or (GPipe) first one and then the other.
    const bool apart = back_ >= passes_ + p_ - 1;
    // Each ends a round early, so that what is recorded of the last passes is never skipped.
    const int64_t stride = kChunked ? p_ * v_ : 1;
    Window both{std::max(back_, p_ - 1) + most_waiting_, passes_ - stride, true, true};
    Window forward{p_ - 1, passes_ - stride, true, false};
    Window backward{back_, passes_ + back_ - (p_ - 1) - stride, false, true};
    for (int64_t s = 0; s < end;) {
      Window& window = !apart ? both : s < passes_ ? forward : backward;
      if (s >= window.first && s < window.end && (s - window.first) % stride == 0) {
        s += Skip(window, s);
        if (s >= end) break;
      }
      ForwardStep<kChunked>(s);
      BackwardStep<kChunked, kSplit, kStraight>(s);
      ++s;
    }
    if constexpr (kSplit) FinishWeights();
  }

 private:
  /// Steps [first, end) in which the pattern is the same, and a state seen in them.
  struct Window {
    int64_t first, end;
    bool forward, backward;
    int64_t seen_at = -1;
    int64_t patience = 1;
  };

  /// The output of a pass that ends at `done` goes on its way behind what the stage has sent there before. Of two stages with several chunks
  /// both ways lead to the other one.
  template <bool kChunked>
  void Send(Lane& lane, Tick& mail, Tick done, Tick way) {
    const Tick before = kChunked && p_ == 2 && way != 0 ? std::max(lane.forward_mail, lane.backward_mail) : mail;
    mail = std::max(done, before) + way;
    lane.free = done + (way != 0 ? (mail - done) & tables_.blocking : 0);
  }

  template <bool kChunked>
  void ForwardStep(int64_t s) {
    const Tick wrap = lanes_[p_ - 1].forward_mail;
    const int64_t last = std::min(p_ - 1, s), first = std::max<int64_t>(0, s - passes_ + 1);
    for (int64_t i = last; i >= first; --i) {  // descending: a stage reads its neighbour's mail of the step before
      Lane& lane = lanes_[i];
      const int64_t chunk = kChunked ? lane.forward_chunk : 0;
      const ChunkCost& cost = tables_.costs[static_cast<size_t>(i * v_ + chunk)];
      const Tick arrival = i > 0 ? lanes_[i - 1].forward_mail : kChunked && chunk > 0 ? wrap : 0;
      const Tick start = std::max(lane.free, arrival);
      Send<kChunked>(lane, lane.forward_mail, start + cost.forward, cost.send_forward);
      const int64_t n = s - i;
      if (n < p_ * v_ && (kChunked ? lane.forward_place == 0 : n == 0)) {
        tables_.chunks[static_cast<size_t>(i * v_ + chunk)].first_forward = start;
      }
      if (kChunked && ++lane.forward_place == p_) {
        lane.forward_place = 0;
        if (++lane.forward_chunk == v_) lane.forward_chunk = 0;
      }
      ++tables_.simulated;
    }
  }

  template <bool kChunked, bool kSplit, bool kStraight>
  void BackwardStep(int64_t s) {
    if constexpr (kStraight) {
      const int64_t q = s - back_;
      if (q < 0 || q >= passes_) return;
      Tick arrival = 0;  // the last stage's own forward pass is over when it is free
      for (int64_t i = p_ - 1; i >= 0; --i) {
        Backward<kChunked, kSplit>(i, q, arrival);
        arrival = lanes_[i].backward_mail;
      }
    } else {
      const Tick wrap = lanes_[0].backward_mail;
      const int64_t first = std::max<int64_t>(0, back_ - s), last = std::min(p_ - 1, passes_ + back_ - s - 1);
      for (int64_t i = first; i <= last; ++i) {  // ascending, for the same reason as above
        const bool follows = kChunked && lanes_[i].backward_chunk < v_ - 1;
        Backward<kChunked, kSplit>(i, s - back_ + i, i < p_ - 1 ? lanes_[i + 1].backward_mail : follows ? wrap : 0);
      }
    }
  }

  template <bool kChunked, bool kSplit>
  void Backward(int64_t i, int64_t q, Tick arrival) {
    Lane& lane = lanes_[i];
    const size_t index = static_cast<size_t>(i * v_ + (kChunked ? lane.backward_chunk : 0));
    const ChunkCost& cost = tables_.costs[index];
    ChunkTicks& ticks = tables_.chunks[index];
    const Tick start = std::max(lane.free, arrival), done = start + cost.backward;
    Send<kChunked>(lane, lane.backward_mail, done, cost.send_backward);
    ticks.last_backward = start;
    ticks.gradients_ready = done;
    if (kSplit && q >= lane.weights_waiting) lane.free += cost.weight;
    if (q < p_ * v_ && (kChunked ? lane.backward_place == 0 : q == 0)) ticks.first_backward_end = done;
    if (kChunked && ++lane.backward_place == p_) {
      lane.backward_place = 0;
      if (--lane.backward_chunk < 0) lane.backward_chunk = v_ - 1;
    }
    ++tables_.simulated;
  }

  /// The weight gradients that still wait after the last data gradient.
  void FinishWeights() {
    for (int64_t i = 0; i < p_; ++i) {
      const auto index = static_cast<size_t>(i);
      lanes_[i].free += std::min(lanes_[i].weights_waiting, passes_) * tables_.costs[index].weight;
      tables_.chunks[index].gradients_ready = lanes_[i].free;
    }
  }

  /// How many steps from s on repeat what lies between a state seen before and the state now. Their time is added.
  /// States are compared with one of 1, 2, 4, ... comparisons ago (Brent 1980), so a period of any length is found.
  int64_t Skip(Window& window, int64_t s) {
    const Lane* seen = tables_.checkpoint.data();
    if (window.seen_at >= 0) {
      const Tick shift = lanes_[0].free - seen[0].free;
      bool same = true;
      for (int64_t i = 0; same && i < p_; ++i) {
        same = lanes_[i].free - seen[i].free == shift &&
               (!window.forward || lanes_[i].forward_mail - seen[i].forward_mail == shift) &&
               (!window.backward || lanes_[i].backward_mail - seen[i].backward_mail == shift);
      }
      if (same) return Jump(window, s, shift);
      if (--window.patience > 0) return 0;
      window_length_ *= 2;
    } else {
      window_length_ = 1;
    }
    window.patience = window_length_;
    window.seen_at = s;
    std::copy(lanes_, lanes_ + p_, tables_.checkpoint.begin());
    return 0;
  }

  int64_t Jump(Window& window, int64_t s, Tick shift) {
    const int64_t period = s - window.seen_at;
    const int64_t times = (window.end - s) / period;
    for (int64_t i = 0; i < p_; ++i) {
      lanes_[i].free += times * shift;
      if (window.forward) lanes_[i].forward_mail += times * shift;
      if (window.backward) lanes_[i].backward_mail += times * shift;
    }
    window.end = std::numeric_limits<int64_t>::min();  // less than a period is left
    return times * period;
  }

  PipelineScratch::Tables& tables_;
  int64_t p_, v_, passes_;
  Lane* lanes_;
  int64_t back_ = 0;
  int64_t most_waiting_ = 0;
  int64_t window_length_ = 1;
};

}  // namespace

void RunWave(ScheduleKind schedule, PipelineScratch::Tables& tables) {
  Wave wave(schedule, tables);
  if (tables.v > 1) return wave.Run<true, false, false>();
  switch (schedule) {
    case ScheduleKind::k1F1B: return wave.Run<false, false, true>();
    case ScheduleKind::kZbH1: return wave.Run<false, true, true>();
    case ScheduleKind::kZbH2: return wave.Run<false, true, false>();
    default: return wave.Run<false, false, false>();
  }
}

}  // namespace weft::planner::tasks

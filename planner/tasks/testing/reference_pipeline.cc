#include "planner/tasks/testing/reference_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "planner/tasks/pipeline_order.h"

namespace weft::planner::testing {
namespace {

/// The n-th forward pass of Megatron's interleaved order; backward takes the chunks from the last to the first.
Step Interleaved(char kind, int64_t n, int64_t p, int64_t v) {
  const int64_t group = n / (p * v), inside = n % (p * v);
  return {kind, kind == 'F' ? inside / p : v - 1 - inside / p, group * p + inside % p};
}

std::vector<Step> WarmUpThenAlternate(int64_t warm_up, int64_t p, int64_t m, int64_t v, int64_t waiting, bool split) {
  const int64_t passes = m * v;
  warm_up = std::min(warm_up, passes);
  std::vector<Step> steps;
  int64_t next_w = 0;
  for (int64_t n = 0; n < warm_up; ++n) steps.push_back(Interleaved('F', n, p, v));
  for (int64_t q = 0; q < passes; ++q) {
    if (q + warm_up < passes) steps.push_back(Interleaved('F', q + warm_up, p, v));
    steps.push_back(Interleaved('D', q, p, v));
    if (split && q + 1 - next_w > waiting) steps.push_back({'W', 0, next_w++});
  }
  while (split && next_w < passes) steps.push_back({'W', 0, next_w++});
  return steps;
}

/// As the figure of ZB-V in arXiv 2401.10241 has it.
std::vector<Step> VShape(int64_t i, int64_t p, int64_t m) {
  std::vector<Step> steps;
  std::map<std::pair<char, int64_t>, int64_t> next;
  const auto add = [&](std::initializer_list<std::pair<char, int64_t>> what) {
    for (const auto& [kind, chunk] : what) {
      const int64_t j = next[{kind, chunk}]++;
      if (j < m) steps.push_back({kind, chunk, j});
    }
  };
  for (int64_t k = 0; k < 2 * (p - i) - 1; ++k) add({{'F', 0}});
  for (int64_t k = 0; k < i; ++k) add({{'F', 1}, {'F', 0}});
  for (int64_t k = 0; k < p - i; ++k) add({{'F', 1}, {'D', 1}, {'W', 1}});
  const int64_t all = std::max(m, 2 * p - 1);
  while (next[{'F', 1}] < all) {
    if (next[{'F', 0}] < all) add({{'F', 0}});
    add({{'D', 0}, {'W', 0}, {'F', 1}, {'D', 1}, {'W', 1}});
  }
  for (int64_t k = 0; k < i; ++k) add({{'D', 0}, {'D', 1}});
  for (int64_t k = 0; k < p - i; ++k) add({{'D', 0}, {'W', 0}});
  while (next[{'W', 1}] < next[{'D', 1}]) add({{'W', 1}});
  while (next[{'W', 0}] < next[{'D', 0}]) add({{'W', 0}});
  return steps;
}

}  // namespace

std::vector<Step> Order(ScheduleKind kind, int64_t i, int64_t p, int64_t m, int64_t v) {
  switch (kind) {
    case ScheduleKind::kGpipe: return WarmUpThenAlternate(m, p, m, 1, 0, false);
    case ScheduleKind::k1F1B: return WarmUpThenAlternate(p - 1 - i, p, m, 1, 0, false);
    case ScheduleKind::kEager1F1B: return WarmUpThenAlternate(2 * (p - 1 - i), p, m, 1, 0, false);
    case ScheduleKind::kInterleaved:
      return WarmUpThenAlternate(m == p && v > 1 ? m * v : 2 * (p - 1 - i) + (v - 1) * p, p, m, v, 0, false);
    case ScheduleKind::kZbH1: return WarmUpThenAlternate(p - 1 - i, p, m, 1, i, true);
    case ScheduleKind::kZbH2: return WarmUpThenAlternate(2 * (p - 1 - i), p, m, 1, 2 * i, true);
    case ScheduleKind::kZbV: return VShape(i, p, m);
  }
  return {};
}

namespace {

class Run {
 public:
  explicit Run(const PipelineProblem& problem)
      : problem_(problem),
        v_(problem.chunks),
        p_(static_cast<int64_t>(problem.stages.size()) / v_),
        m_(problem.micro_batches),
        vee_(problem.schedule == ScheduleKind::kZbV),
        split_(SplitsBackward(problem.schedule)),
        next_(static_cast<size_t>(p_), 0),
        free_(static_cast<size_t>(p_), 0) {
    for (int64_t i = 0; i < p_; ++i) order_.push_back(Order(problem.schedule, i, p_, m_, v_));
    result_.stages.resize(static_cast<size_t>(p_));
    result_.chunks.resize(static_cast<size_t>(p_ * v_));
  }

  Reference Result() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int64_t i = 0; i < p_; ++i) {
        while (Pass(i)) progress = true;
      }
    }
    for (int64_t i = 0; i < p_; ++i) Close(i);
    const bool no_barrier = problem_.schedule == ScheduleKind::kZbH2 || vee_;
    if (!no_barrier) result_.iteration = result_.makespan;
    return std::move(result_);
  }

 private:
  int64_t Place(int64_t i, int64_t c) const { return vee_ ? (c == 0 ? i : 2 * p_ - 1 - i) : c * p_ + i; }
  int64_t StageOf(int64_t k) const { return vee_ && k >= p_ ? 2 * p_ - 1 - k : k % p_; }

  /// Seconds between virtual stages a and b.
  double Hop(int64_t a, int64_t b) const {
    const int64_t i = StageOf(a), j = StageOf(b);
    if (i == j || problem_.hops.empty()) return 0;
    if (problem_.hops.size() == 1) return problem_.hops[0].count();
    // With two stages the way there and the way around differ only in which virtual stages they join.
    const bool around = p_ == 2 ? !vee_ && std::max(a, b) % 2 == 0 : std::abs(i - j) != 1;
    return problem_.hops[static_cast<size_t>(around ? p_ - 1 : std::min(i, j))].count();
  }

  /// When the input of a pass of virtual stage k is there; negative: not yet known.
  double Ready(const Step& step, int64_t k) const {
    const bool forward = step.kind == 'F';
    if (step.kind == 'W' || (forward ? k == 0 : k + 1 == p_ * v_)) return 0;
    const auto found = done_.find({step.kind, forward ? k - 1 : k + 1, step.micro_batch});
    return found == done_.end() ? -1 : found->second;
  }

  double Cost(char kind, const StageTime& time) const {
    if (kind == 'F') return time.forward.count();
    if (kind == 'W') return time.weight_gradient.count();
    return split_ ? time.data_gradient.count() : (time.data_gradient + time.weight_gradient).count();
  }

  /// The next pass of stage i, if its input is there.
  bool Pass(int64_t i) {
    const auto s = static_cast<size_t>(i);
    if (next_[s] == order_[s].size()) return false;
    const Step step = order_[s][next_[s]];
    const int64_t k = Place(i, step.chunk);
    const double ready = Ready(step, k);
    if (ready < 0) return false;
    const auto cell = static_cast<size_t>(i * v_ + step.chunk);
    const double way = step.kind == 'F' && k + 1 < p_ * v_ ? Hop(k, k + 1)
                       : step.kind == 'D' && k > 0         ? Hop(k, k - 1)
                                                           : 0;
    const double start = std::max(free_[s], ready), end = start + Cost(step.kind, problem_.stages[cell]);
    double arrives = end;
    if (way > 0) {
      // Behind all that the stage has sent to the same one; with more than two stages, round the ring is another link than back.
      const bool forward = step.kind == 'F';
      const int64_t to = StageOf(forward ? k + 1 : k - 1);
      double& link = link_[{i, to, p_ > 2 && !vee_ ? forward : true}];
      arrives = link = std::max(end, link) + way;
    }
    done_[{step.kind, k, step.micro_batch}] = arrives;
    free_[s] = problem_.blocking_sends ? arrives : end;
    if (next_[s]++ == 0) result_.stages[s].start = Seconds(start);
    result_.stages[s].busy += Seconds(free_[s] - start);
    Note(step, start, end, &result_.chunks[cell]);
    return true;
  }

  void Note(const Step& step, double start, double end, ChunkUse* chunk) const {
    const bool first = step.micro_batch == 0, last = step.micro_batch == m_ - 1;
    if (step.kind == 'F' && first) chunk->first_forward = Seconds(start);
    if (step.kind == 'D' && first) chunk->first_backward_end = Seconds(end);
    if (step.kind == 'D' && last) chunk->last_backward = Seconds(start);
    if (step.kind == (split_ ? 'W' : 'D') && last) {
      chunk->gradients_from = Seconds(start);
      chunk->gradients_ready = Seconds(end);
    }
  }

  void Close(int64_t i) {
    const auto s = static_cast<size_t>(i);
    StageUse& stage = result_.stages[s];
    EXPECT_EQ(next_[s], order_[s].size()) << "stage " << i << " is stuck";
    int64_t held = 0;
    for (const Step& step : order_[s]) {
      held += step.kind == 'F' ? 1 : step.kind == (split_ ? 'W' : 'D') ? -1 : 0;
      stage.in_flight = std::max(stage.in_flight, held);
    }
    stage.end = Seconds(free_[s]);
    result_.makespan = std::max(result_.makespan, free_[s]);
    result_.iteration = std::max(result_.iteration, free_[s] - stage.start.count());
  }

  const PipelineProblem& problem_;
  const int64_t v_, p_, m_;
  const bool vee_, split_;
  std::vector<std::vector<Step>> order_;
  std::vector<size_t> next_;
  std::vector<double> free_;
  std::map<std::tuple<char, int64_t, int64_t>, double> done_;  // arrival at whoever needs it
  std::map<std::tuple<int64_t, int64_t, bool>, double> link_;  // by sender and receiver: when it is free
  Reference result_;
};

}  // namespace

Reference ReferencePipeline(const PipelineProblem& problem) { return Run(problem).Result(); }

}  // namespace weft::planner::testing

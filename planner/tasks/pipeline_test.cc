#include "planner/tasks/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "planner/tasks/closed_form.h"

namespace weft::planner {
namespace {

using ::testing::HasSubstr;

// ---- a slow, obvious simulator: every stage has a written-out list of passes; passes run when their input is there ----

struct Step {
  char kind;  // 'F', 'D' (data gradient, or all of backward) or 'W'
  int64_t chunk, micro_batch;
};

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

struct Reference {
  double makespan = 0, iteration = 0;
  std::vector<StageUse> stages;
  std::vector<ChunkUse> chunks;
};

Reference Simulate(const PipelineProblem& problem) {
  const int64_t v = problem.chunks, p = static_cast<int64_t>(problem.stages.size()) / v, m = problem.micro_batches;
  const bool vee = problem.schedule == ScheduleKind::kZbV, split = SplitsBackward(problem.schedule);
  const auto place = [&](int64_t i, int64_t c) { return vee ? (c == 0 ? i : 2 * p - 1 - i) : c * p + i; };
  const auto stage_of = [&](int64_t k) { return vee && k >= p ? 2 * p - 1 - k : k % p; };
  const auto hop = [&](int64_t a, int64_t b) {  // between virtual stages a and b
    const int64_t i = stage_of(a), j = stage_of(b);
    if (i == j || problem.hops.empty()) return 0.0;
    if (problem.hops.size() == 1) return problem.hops[0].count();
    return problem.hops[static_cast<size_t>(std::abs(i - j) == 1 && p > 2 ? std::min(i, j)
                                            : p == 2 ? (std::max(a, b) % 2 == 1 ? 0 : (vee ? 0 : 1)) : p - 1)]
        .count();
  };
  std::map<std::tuple<char, int64_t, int64_t>, double> done;  // arrival at whoever needs it
  std::vector<std::vector<Step>> order;
  for (int64_t i = 0; i < p; ++i) order.push_back(Order(problem.schedule, i, p, m, v));
  std::vector<size_t> next(static_cast<size_t>(p), 0);
  std::vector<double> free(static_cast<size_t>(p), 0);
  Reference result{.stages = std::vector<StageUse>(static_cast<size_t>(p)),
                   .chunks = std::vector<ChunkUse>(static_cast<size_t>(p * v))};
  for (bool progress = true; progress;) {
    progress = false;
    for (int64_t i = 0; i < p; ++i) {
      const auto s = static_cast<size_t>(i);
      while (next[s] < order[s].size()) {
        const Step step = order[s][next[s]];
        const int64_t k = place(i, step.chunk), j = step.micro_batch;
        double ready = 0;
        if (step.kind == 'F' && k > 0) {
          if (!done.contains({'F', k - 1, j})) break;
          ready = done[{'F', k - 1, j}];
        } else if (step.kind == 'D' && k + 1 < p * v) {
          if (!done.contains({'D', k + 1, j})) break;
          ready = done[{'D', k + 1, j}];
        }
        const size_t cell = static_cast<size_t>(i * v + step.chunk);
        const StageTime& time = problem.stages[cell];
        const double cost = step.kind == 'F'   ? time.forward.count()
                            : step.kind == 'W' ? time.weight_gradient.count()
                            : split            ? time.data_gradient.count()
                                               : (time.data_gradient + time.weight_gradient).count();
        const double way = step.kind == 'F' && k + 1 < p * v ? hop(k, k + 1) : step.kind == 'D' && k > 0 ? hop(k, k - 1) : 0;
        const double start = std::max(free[s], ready), end = start + cost;
        done[{step.kind, k, j}] = end + way;
        free[s] = end + (problem.blocking_sends ? way : 0);
        ChunkUse& chunk = result.chunks[cell];
        if (next[s] == 0) result.stages[s].start = Seconds(start);
        if (step.kind == 'F' && j == 0) chunk.first_forward = Seconds(start);
        if (step.kind == 'D' && j == 0) chunk.first_backward_end = Seconds(end);
        if (step.kind == 'D' && j == m - 1) chunk.last_backward = Seconds(start);
        if (step.kind == (split ? 'W' : 'D') && j == m - 1) chunk.gradients_ready = Seconds(end);
        result.stages[s].busy += Seconds(free[s] - start);
        ++next[s];
        progress = true;
      }
    }
  }
  for (int64_t i = 0; i < p; ++i) {
    const auto s = static_cast<size_t>(i);
    EXPECT_EQ(next[s], order[s].size()) << "stage " << i << " is stuck";
    int64_t held = 0;
    for (const Step& step : order[s]) {
      held += step.kind == 'F' ? 1 : step.kind == (split ? 'W' : 'D') ? -1 : 0;
      result.stages[s].in_flight = std::max(result.stages[s].in_flight, held);
    }
    result.stages[s].end = Seconds(free[s]);
    result.makespan = std::max(result.makespan, free[s]);
    result.iteration = std::max(result.iteration, free[s] - result.stages[s].start.count());
  }
  const bool no_barrier = problem.schedule == ScheduleKind::kZbH2 || vee;
  if (!no_barrier) result.iteration = result.makespan;
  return result;
}

// ---- random problems ----

struct Case {
  ScheduleKind kind;
  int64_t p, m, v;
  std::vector<StageTime> stages;
  std::vector<Seconds> hops;
  bool blocking;

  PipelineProblem problem() const {
    return {.schedule = kind, .stages = stages, .micro_batches = m, .chunks = v, .hops = hops, .blocking_sends = blocking};
  }
  std::string name() const {
    return std::string(ScheduleName(kind)) + " p " + std::to_string(p) + " m " + std::to_string(m) + " v " +
           std::to_string(v) + " hops " + std::to_string(hops.size()) + (blocking ? " blocking" : "");
  }
};

/// Whole milliseconds, so that the reference's sums are nearly exact and ties are frequent.
Case RandomCase(std::mt19937& random, int spread) {
  const auto draw = [&](int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random); };
  Case c{.kind = kAllSchedules[static_cast<size_t>(draw(0, 6))], .p = draw(1, 7), .m = draw(1, 40), .v = 1};
  if (c.kind == ScheduleKind::kZbV) c.v = 2;
  if (c.kind == ScheduleKind::kInterleaved) {
    c.v = draw(1, 4);
    if (c.v > 1) c.m = c.p * draw(1, 6);
  }
  for (int64_t k = 0; k < c.p * c.v; ++k) {
    const auto time = [&] { return Seconds(1e-3 * static_cast<double>(20 + draw(-spread, spread))); };
    c.stages.push_back({time(), time(), time()});
  }
  const int64_t hops = draw(0, 2);
  for (int64_t k = 0; k < (hops == 2 ? c.p : hops); ++k) c.hops.push_back(Seconds(1e-3 * static_cast<double>(draw(0, 30))));
  c.blocking = draw(0, 3) == 0;
  return c;
}

TEST(SimulatePipeline, AgreesWithTheObviousSimulatorOnRandomPipelines) {
  std::mt19937 random(20240131);
  PipelineScratch scratch;
  for (int round = 0; round < 1500; ++round) {
    const Case c = RandomCase(random, round % 3 == 0 ? 0 : round % 3 == 1 ? 2 : 19);
    const Reference want = Simulate(c.problem());
    const Result<PipelineTime> got = SimulatePipeline(c.problem(), scratch);
    ASSERT_TRUE(got) << c.name() << ": " << got.error().message();
    ASSERT_NEAR(got->makespan.count(), want.makespan, 1e-9) << c.name();
    ASSERT_NEAR(got->iteration.count(), want.iteration, 1e-9) << c.name();
    for (size_t i = 0; i < want.stages.size(); ++i) {
      ASSERT_NEAR(got->stages[i].start.count(), want.stages[i].start.count(), 1e-9) << c.name() << " stage " << i;
      ASSERT_NEAR(got->stages[i].end.count(), want.stages[i].end.count(), 1e-9) << c.name() << " stage " << i;
      ASSERT_NEAR(got->stages[i].busy.count(), want.stages[i].busy.count(), 1e-9) << c.name() << " stage " << i;
      ASSERT_NEAR((got->stages[i].idle + got->stages[i].busy).count(), want.makespan, 1e-9) << c.name();
      ASSERT_EQ(got->stages[i].in_flight, want.stages[i].in_flight) << c.name() << " stage " << i;
    }
    for (size_t k = 0; k < want.chunks.size(); ++k) {
      const ChunkUse &a = got->chunks[k], &b = want.chunks[k];
      ASSERT_NEAR(a.first_forward.count(), b.first_forward.count(), 1e-9) << c.name() << " chunk " << k;
      ASSERT_NEAR(a.first_backward_end.count(), b.first_backward_end.count(), 1e-9) << c.name() << " chunk " << k;
      ASSERT_NEAR(a.last_backward.count(), b.last_backward.count(), 1e-9) << c.name() << " chunk " << k;
      ASSERT_NEAR(a.gradients_ready.count(), b.gradients_ready.count(), 1e-9) << c.name() << " chunk " << k;
    }
  }
}

}  // namespace
}  // namespace weft::planner

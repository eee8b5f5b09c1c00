#include "planner/tasks/pipeline_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "planner/tasks/pipeline.h"

namespace weft::planner::inline tasks {
namespace {

constexpr double kTolerance = 1e-9;

std::vector<StageTime> Equal(int64_t cells, double forward, double data, double weight) {
  return std::vector<StageTime>(static_cast<size_t>(cells), {Seconds(forward), Seconds(data), Seconds(weight)});
}

double Iteration(const PipelineProblem& problem) {
  PipelineScratch scratch;
  Result<PipelineTime> time = SimulatePipeline(problem, scratch);
  EXPECT_TRUE(time) << time.error().message();
  return time->iteration.count();
}

/// The bound of a problem whose hops are one for all.
double Bound(const PipelineProblem& problem) {
  const int64_t v = problem.chunks, p = static_cast<int64_t>(problem.stages.size()) / v;
  PipelineBound bound({.schedule = problem.schedule, .stages = p, .chunks = v, .micro_batches = problem.micro_batches,
                       .hop = problem.hops.empty() ? Seconds(0) : problem.hops[0], .blocking_sends = problem.blocking_sends});
  for (int64_t i = 0; i < p; ++i) {
    StageTime sum;
    for (int64_t c = 0; c < v; ++c) {
      const StageTime& chunk = problem.stages[static_cast<size_t>(i * v + c)];
      sum.forward += chunk.forward;
      sum.data_gradient += chunk.data_gradient;
      sum.weight_gradient += chunk.weight_gradient;
    }
    bound.Add(sum.forward, sum.data_gradient + sum.weight_gradient, sum.weight_gradient);
  }
  return bound.Makespan().count();
}

std::string Describe(const PipelineProblem& problem) {
  std::string text = std::string(ScheduleName(problem.schedule)) + " m " + std::to_string(problem.micro_batches) + " v " +
                     std::to_string(problem.chunks) + " p " + std::to_string(problem.stages.size() / static_cast<size_t>(problem.chunks));
  if (!problem.hops.empty()) text += " hop " + std::to_string(problem.hops[0].count());
  return text + (problem.blocking_sends ? " blocking" : "");
}

// (m + p - 1)(F + B): what a flush costs, whatever F : B. Source: arXiv 2104.04473, section 2.2.
TEST(PipelineBound, GpipeAnd1F1BTakeMPlusPMinusOnePasses) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kEager1F1B}) {
    for (const int64_t p : {1, 2, 3, 8, 16}) {
      for (const int64_t m : {1, 2, 7, 16, 64, 193}) {
        for (const double forward : {1.0, 0.4, 2.5}) {
          const auto stages = Equal(p, forward, 0.7, 0.9);
          const PipelineProblem problem{.schedule = kind, .stages = stages, .micro_batches = m};
          const double want = static_cast<double>(m + p - 1) * (forward + 1.6);
          EXPECT_NEAR(Iteration(problem), want, kTolerance) << Describe(problem);
          EXPECT_NEAR(Bound(problem), want, kTolerance) << Describe(problem);
        }
      }
    }
  }
}

// m(F + B) + (p-1)(F + B)/v, F and B of the whole stage.
TEST(PipelineBound, InterleavingDividesTheBubbleByTheChunks) {
  for (const int64_t p : {1, 2, 4, 8}) {
    for (const int64_t v : {1, 2, 3, 6}) {
      for (const int64_t groups : {1, 2, 5, 24}) {
        const auto stages = Equal(p * v, 1.0, 0.8, 1.1);
        const PipelineProblem problem{
            .schedule = ScheduleKind::kInterleaved, .stages = stages, .micro_batches = groups * p, .chunks = v};
        const double want = static_cast<double>(groups * p * v + p - 1) * 2.9;
        EXPECT_NEAR(Iteration(problem), want, kTolerance) << Describe(problem);
        EXPECT_NEAR(Bound(problem), want, kTolerance) << Describe(problem);
      }
    }
  }
}

// 1F1B p = 8, m = 64: 7/71 = 9.86 % of the total; interleaved v = 3: (7/3)/(64 + 7/3) = 3.52 %.
TEST(PipelineBound, BubbleSharesAreTheKnownOnes) {
  const auto plain = Equal(8, 1, 1, 1), chunked = Equal(24, 1, 1, 1);
  EXPECT_NEAR(1 - 64 * 3 / Bound({.stages = plain, .micro_batches = 64}), 0.0986, 5e-5);
  const double chunks =
      Bound({.schedule = ScheduleKind::kInterleaved, .stages = chunked, .micro_batches = 64, .chunks = 3});
  EXPECT_NEAR(1 - 64 * 9 / chunks, 0.0352, 5e-5);
}

// (p-1)(F + D - W), and none: arXiv 2401.10241.
TEST(PipelineBound, ZeroBubbleSchedulesLeaveWhatTheirPaperSays) {
  for (const int64_t p : {1, 2, 4, 8, 16}) {
    for (const int64_t m : {2 * p - 1, 2 * p, 4 * p, 12 * p + 1}) {
      for (const double weight : {1.0, 0.9, 0.5}) {
        const auto stages = Equal(p, 1.0, 1.0, weight);
        const double work = static_cast<double>(m) * (2 + weight), steps = static_cast<double>(p - 1);
        const PipelineProblem h1{.schedule = ScheduleKind::kZbH1, .stages = stages, .micro_batches = m};
        EXPECT_NEAR(Iteration(h1), work + steps * (2 - weight), kTolerance) << Describe(h1) << " W " << weight;
        EXPECT_NEAR(Bound(h1), Iteration(h1), kTolerance) << Describe(h1) << " W " << weight;
        const PipelineProblem h2{.schedule = ScheduleKind::kZbH2, .stages = stages, .micro_batches = m};
        EXPECT_NEAR(Iteration(h2), work + steps * (2 - 2 * weight), kTolerance) << Describe(h2) << " W " << weight;
        EXPECT_NEAR(Bound(h2), work, kTolerance) << Describe(h2) << " W " << weight;
      }
      const auto halves = Equal(2 * p, 0.5, 0.5, 0.5);
      const PipelineProblem v{.schedule = ScheduleKind::kZbV, .stages = halves, .micro_batches = m, .chunks = 2};
      EXPECT_NEAR(Iteration(v), static_cast<double>(m) * 3, kTolerance) << Describe(v);
      EXPECT_NEAR(Bound(v), Iteration(v), kTolerance) << Describe(v);
    }
  }
}

// ΣF + (m-1) max F + ΣB + (m-1) max B: GPipe is two flow shops one after the other.
TEST(PipelineBound, UnequalGpipeIsExact) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> time(0.1, 2.0);
  for (int round = 0; round < 200; ++round) {
    std::vector<StageTime> stages(1 + random() % 9);
    for (StageTime& stage : stages) stage = {Seconds(time(random)), Seconds(time(random)), Seconds(time(random))};
    const std::vector<Seconds> hops = {Seconds(time(random) * static_cast<double>(random() % 2))};
    const PipelineProblem problem{.schedule = ScheduleKind::kGpipe, .stages = stages,
                                  .micro_batches = static_cast<int64_t>(1 + random() % 50), .hops = hops,
                                  .blocking_sends = random() % 2 == 0};
    EXPECT_NEAR(Bound(problem) / Iteration(problem), 1, 1e-9) << Describe(problem);
  }
}

// Hops: eager 1F1B + 2(p-1)τ; plain 1F1B pays the way in every round of p micro-batches: 2τ(m(p-1)/p + p-2) for p | m, of
// which the bound has at least the first term.
TEST(PipelineBound, PlainOneForwardOneBackwardPaysTheWayInEveryRound) {
  for (const int64_t p : {2, 4, 8, 16}) {
    for (const int64_t m : {p, 2 * p, 8 * p}) {
      for (const double hop : {0.05, 0.1, 0.4}) {
        const auto stages = Equal(p, 1.0, 1.0, 1.0);
        const std::vector<Seconds> hops = {Seconds(hop)};
        PipelineProblem problem{.stages = stages, .micro_batches = m, .hops = hops};
        const double work = static_cast<double>(m + p - 1) * 3;
        const double pm = static_cast<double>(p), mm = static_cast<double>(m);
        EXPECT_NEAR(Iteration(problem), work + 2 * hop * (mm * (pm - 1) / pm + pm - 2), kTolerance) << Describe(problem);
        EXPECT_GE(Bound(problem), work + 2 * hop * mm * (pm - 1) / pm - kTolerance) << Describe(problem);
        EXPECT_LE(Bound(problem), Iteration(problem) + kTolerance) << Describe(problem);
        for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kEager1F1B}) {
          problem.schedule = kind;
          EXPECT_NEAR(Iteration(problem), work + 2 * (pm - 1) * hop, kTolerance) << Describe(problem);
          EXPECT_NEAR(Bound(problem), Iteration(problem), kTolerance) << Describe(problem);
        }
      }
    }
  }
  // m = 64, p = 8, τ = 0.1 F costs 12.4 F, not 1.4.
  const auto stages = Equal(8, 1, 1, 1);
  const std::vector<Seconds> hops = {Seconds(0.1)};
  EXPECT_NEAR(Iteration({.stages = stages, .micro_batches = 64, .hops = hops}) - 71 * 3, 12.4, kTolerance);
}

// + 2τ(pv-1) as long as τ is less than a chunk's forward pass.
TEST(PipelineBound, InterleavedPaysTheWayOnceDownAndOnceUp) {
  for (const int64_t p : {2, 4, 8}) {
    for (const int64_t v : {2, 3}) {
      for (const double hop : {0.1, 0.5}) {
        const auto stages = Equal(p * v, 1.0, 1.0, 1.0);
        const std::vector<Seconds> hops = {Seconds(hop)};
        const PipelineProblem problem{.schedule = ScheduleKind::kInterleaved, .stages = stages,
                                      .micro_batches = 8 * p, .chunks = v, .hops = hops};
        const double work = static_cast<double>(8 * p * v + p - 1) * 3;
        EXPECT_NEAR(Iteration(problem), work + 2 * hop * static_cast<double>(p * v - 1), kTolerance) << Describe(problem);
        EXPECT_NEAR(Bound(problem), Iteration(problem), kTolerance) << Describe(problem);
      }
    }
  }
}

// A link that is slower than the passes: GPipe's messages follow each other down, and the gradients up, 2 (m + p - 2) τ in all; 1F1B has
// both ways at the same time, so that its m messages with the way behind them are all: (m + 2p - 3) τ.
TEST(PipelineBound, MessagesLongerThanPassesFollowEachOther) {
  const double hop = 100;
  const std::vector<Seconds> hops = {Seconds(hop)};
  for (const int64_t p : {2, 4}) {
    for (const int64_t m : {8, 16}) {
      const auto stages = Equal(p, 1, 1, 1);
      const double passes = 3 * static_cast<double>(p), pm = static_cast<double>(p), mm = static_cast<double>(m);
      PipelineProblem problem{.schedule = ScheduleKind::kGpipe, .stages = stages, .micro_batches = m, .hops = hops};
      EXPECT_NEAR(Iteration(problem), passes + 2 * (mm + pm - 2) * hop, kTolerance) << Describe(problem);
      EXPECT_NEAR(Bound(problem), Iteration(problem), kTolerance) << Describe(problem);
      problem.schedule = ScheduleKind::kEager1F1B;
      EXPECT_NEAR(Bound(problem), passes + (mm + 2 * pm - 3) * hop, kTolerance) << Describe(problem);
      EXPECT_LE(Bound(problem), Iteration(problem) + kTolerance) << Describe(problem);
      EXPECT_LT(Iteration(problem), 1.1 * Bound(problem)) << Describe(problem);
    }
  }
}

TEST(PipelineBound, BlockingSendsLengthenEveryPass) {
  const auto stages = Equal(4, 1, 1, 1);
  const std::vector<Seconds> hops = {Seconds(0.1)};
  PipelineProblem problem{.schedule = ScheduleKind::kGpipe, .stages = stages, .micro_batches = 32, .hops = hops};
  const double free = Iteration(problem);
  problem.blocking_sends = true;
  // 31 more passes each way wait for a send of the busiest stage; the first micro-batch's way counts in both.
  EXPECT_NEAR(Iteration(problem) - free, 31 * 2 * 0.1, kTolerance);
}

// Never above the simulation, whatever the stages; for stages within 10 % of each other close to it.
TEST(PipelineBound, IsNeverAboveTheSimulation) {
  std::mt19937 random(3);
  double gap = 0;
  int close = 0;
  for (int round = 0; round < 5000; ++round) {
    const ScheduleKind kind = kAllSchedules[random() % 7];
    const int64_t p = 1 + static_cast<int64_t>(random() % 8);
    const int64_t v = kind == ScheduleKind::kZbV ? 2 : kind == ScheduleKind::kInterleaved ? 1 + random() % 3 : 1;
    const int64_t m = kind == ScheduleKind::kInterleaved ? p * (1 + random() % 5) : 1 + random() % 40;
    const bool wild = random() % 2 == 0;
    std::uniform_real_distribution<double> vary(wild ? 0.05 : 0.9, wild ? 2 : 1.1);
    std::vector<StageTime> stages;
    for (int64_t i = 0; i < p; ++i) {  // a stage's chunks are equal
      const StageTime stage = {Seconds(vary(random)), Seconds(vary(random)), Seconds(vary(random))};
      stages.insert(stages.end(), static_cast<size_t>(v), stage);
    }
    std::vector<Seconds> hops;
    if (random() % 2 == 0) hops.assign(1, Seconds((random() % 2 == 0 ? 0.3 : 3) * vary(random)));
    const bool blocking = !SplitsBackward(kind) && random() % 3 == 0;
    const PipelineProblem problem{
        .schedule = kind, .stages = stages, .micro_batches = m, .chunks = v, .hops = hops, .blocking_sends = blocking};
    const double simulated = Iteration(problem), bound = Bound(problem);
    ASSERT_LE(bound, simulated * (1 + 1e-9)) << Describe(problem);
    if (wild || !hops.empty() || kind == ScheduleKind::kZbH2) continue;
    gap += simulated / bound - 1;
    ++close;
  }
  EXPECT_GT(close, 500);
  EXPECT_LT(gap / close, 0.05);
}

}  // namespace
}  // namespace weft::planner::tasks

#include "planner/tasks/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/tasks/pipeline_order.h"
#include "planner/tasks/testing/reference_pipeline.h"

namespace weft::planner::inline tasks {
namespace {

using testing::Order;
using testing::Reference;
using testing::ReferencePipeline;
using testing::Step;
using ::testing::HasSubstr;

struct Case {
  ScheduleKind kind;
  int64_t p, m, v;
  std::vector<StageTime> stages;
  std::vector<Seconds> hops;
  bool blocking;

  PipelineProblem problem() const {
    return {.schedule = kind, .stages = stages, .micro_batches = m, .chunks = v, .hops = hops,
            .blocking_sends = blocking};
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
  for (int64_t k = 0; k < (hops == 2 ? c.p : hops); ++k) {
    c.hops.push_back(Seconds(1e-3 * static_cast<double>(draw(0, 30))));
  }
  c.blocking = draw(0, 3) == 0;
  return c;
}

TEST(SimulatePipeline, AgreesWithTheObviousSimulatorOnRandomPipelines) {
  std::mt19937 random(20240131);
  PipelineScratch scratch;
  for (int round = 0; round < 1500; ++round) {
    const Case c = RandomCase(random, round % 3 == 0 ? 0 : round % 3 == 1 ? 2 : 19);
    const Reference want = ReferencePipeline(c.problem());
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
      ASSERT_NEAR(a.gradients_from.count(), b.gradients_from.count(), 1e-9) << c.name() << " chunk " << k;
      ASSERT_NEAR(a.gradients_ready.count(), b.gradients_ready.count(), 1e-9) << c.name() << " chunk " << k;
    }
  }
}

// The order never depends on times, and a start is a maximum of sums: more time anywhere never makes the whole shorter.
TEST(SimulatePipeline, IsMonotoneInEveryTime) {
  std::mt19937 random(5);
  PipelineScratch scratch;
  for (int round = 0; round < 600; ++round) {
    Case c = RandomCase(random, 10);
    const Seconds before = SimulatePipeline(c.problem(), scratch)->makespan;
    StageTime& stage = c.stages[random() % c.stages.size()];
    Seconds& time = round % 3 == 0 ? stage.forward : round % 3 == 1 ? stage.data_gradient : stage.weight_gradient;
    time += Seconds(5e-3);
    const Seconds after = SimulatePipeline(c.problem(), scratch)->makespan;
    EXPECT_GE(after, before) << c.name();
    // ... and by no more than once per pass.
    EXPECT_LE((after - before).count(), 5e-3 * static_cast<double>(c.m) + 1e-9) << c.name();
    if (c.hops.empty()) continue;
    c.hops[random() % c.hops.size()] += Seconds(5e-3);
    EXPECT_GE(SimulatePipeline(c.problem(), scratch)->makespan, after) << c.name();
  }
}

// Stage i cannot start before the first micro-batch has come to it, and works off all of its passes.
TEST(SimulatePipeline, IsNeverBelowTheWorkOfAStageAfterTheWayToIt) {
  std::mt19937 random(6);
  PipelineScratch scratch;
  for (int round = 0; round < 600; ++round) {
    const Case c = RandomCase(random, 19);
    const PipelineTime time = *SimulatePipeline(c.problem(), scratch);
    const auto m = static_cast<double>(c.m);
    double way = 0;
    for (int64_t i = 0; i < c.p; ++i) {
      double work = 0;
      for (int64_t k = i * c.v; k < (i + 1) * c.v; ++k) {
        const StageTime& stage = c.stages[static_cast<size_t>(k)];
        work += (stage.forward + stage.data_gradient + stage.weight_gradient).count();
      }
      EXPECT_GE(time.makespan.count(), way + m * work - 1e-9) << c.name() << " stage " << i;
      EXPECT_GE(time.iteration.count(), m * work - 1e-9) << c.name() << " stage " << i;
      way += c.stages[static_cast<size_t>(i * c.v)].forward.count();
    }
  }
}

TEST(SimulatePipeline, DoublingEveryTimeDoublesTheAnswer) {
  std::mt19937 random(8);
  PipelineScratch scratch;
  for (int round = 0; round < 200; ++round) {
    Case c = RandomCase(random, 19);
    const double once = SimulatePipeline(c.problem(), scratch)->makespan.count();
    for (StageTime& stage : c.stages) {
      stage = {2 * stage.forward, 2 * stage.data_gradient, 2 * stage.weight_gradient};
    }
    for (Seconds& hop : c.hops) hop *= 2;
    EXPECT_NEAR(SimulatePipeline(c.problem(), scratch)->makespan.count(), 2 * once, 1e-9) << c.name();
  }
}

TEST(SimulatePipeline, SkipsASteadyStateWithoutChangingTheAnswer) {
  const std::vector<StageTime> stages(8, {Seconds(1e-3), Seconds(1.5e-3), Seconds(0.5e-3)});
  const std::vector<Seconds> hops = {Seconds(0.2e-3)};
  PipelineScratch scratch;
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kEager1F1B,
                                  ScheduleKind::kZbH1, ScheduleKind::kZbH2}) {
    const PipelineProblem problem{.schedule = kind, .stages = stages, .micro_batches = 400, .hops = hops};
    const PipelineTime time = *SimulatePipeline(problem, scratch);
    EXPECT_LT(time.simulated, time.operations / 4) << ScheduleName(kind);
    EXPECT_EQ(time.operations, (SplitsBackward(kind) ? 3 : 2) * 8 * 400);
    EXPECT_NEAR(time.makespan.count(), ReferencePipeline(problem).makespan, 1e-9) << ScheduleName(kind);
  }
}

TEST(SimulatePipeline, AScratchCarriesNothingFromOneProblemToTheNext) {
  std::mt19937 random(9);
  PipelineScratch reused;
  for (int round = 0; round < 300; ++round) {
    const Case c = RandomCase(random, 19);
    PipelineScratch fresh;
    const PipelineTime a = *SimulatePipeline(c.problem(), fresh), b = *SimulatePipeline(c.problem(), reused);
    EXPECT_EQ(a.makespan, b.makespan) << c.name();
    EXPECT_EQ(a.chunks.back().gradients_ready, b.chunks.back().gradients_ready) << c.name();
  }
}

TEST(StageOrder, IsWhatTheWrittenOutSchedulesSay) {
  std::mt19937 random(12);
  for (int round = 0; round < 300; ++round) {
    const Case c = RandomCase(random, 0);
    for (int64_t i = 0; i < c.p; ++i) {
      const std::vector<Step> want = Order(c.kind, i, c.p, c.m, c.v);
      const std::vector<StagePass> got = StageOrder(c.kind, i, c.p, c.m, c.v);
      ASSERT_EQ(got.size(), want.size()) << c.name();
      for (size_t n = 0; n < want.size(); ++n) {
        const PassKind kind = want[n].kind == 'F'   ? PassKind::kForward
                              : want[n].kind == 'D' ? PassKind::kData
                                                    : PassKind::kWeight;
        ASSERT_EQ(got[n], (StagePass{kind, static_cast<int32_t>(want[n].chunk), want[n].micro_batch}))
            << c.name() << " stage " << i << " pass " << n;
      }
      for (int64_t chunk = 0; chunk < c.v; ++chunk) {
        const StageChunk place = PlaceOf(c.kind, VirtualStage(c.kind, i, chunk, c.p), c.p);
        EXPECT_EQ(place.stage, i);
        EXPECT_EQ(place.chunk, chunk);
      }
    }
  }
}

// What each schedule holds, as its paper says, at p = 8, m = 64.
TEST(InFlight, IsWhatTheTableOfSchedulesSays) {
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(InFlight(ScheduleKind::kGpipe, i, 8, 64, 1), 64);
    EXPECT_EQ(InFlight(ScheduleKind::k1F1B, i, 8, 64, 1), 8 - i);
    EXPECT_EQ(InFlight(ScheduleKind::kEager1F1B, i, 8, 64, 1), 2 * (8 - i) - 1);
    EXPECT_EQ(InFlight(ScheduleKind::kInterleaved, i, 8, 64, 3), 2 * (7 - i) + 2 * 8 + 1);
    EXPECT_EQ(InFlight(ScheduleKind::kInterleaved, i, 8, 8, 3), 24);
    EXPECT_EQ(InFlight(ScheduleKind::kZbH1, i, 8, 64, 1), 8);
    EXPECT_EQ(InFlight(ScheduleKind::kZbH2, i, 8, 64, 1), 15);
    EXPECT_EQ(InFlight(ScheduleKind::kZbV, i, 8, 64, 2), 16);
  }
  // Stage 0, interleaved: p(1 + (p-1)/(pv)) micro-batches of the whole stage.
  EXPECT_NEAR(static_cast<double>(InFlight(ScheduleKind::kInterleaved, 0, 8, 64, 3)) / 3, 8 * (1 + 7.0 / 24), 1e-12);
  EXPECT_EQ(InFlight(ScheduleKind::k1F1B, 0, 8, 3, 1), 3);
}

TEST(SimulatePipeline, RefusesWhatNoScheduleCanRun) {
  const std::vector<StageTime> stages(4, {Seconds(1), Seconds(1), Seconds(1)});
  std::vector<StageTime> bad = stages;
  bad[2].data_gradient = Seconds(-1);
  std::vector<StageTime> endless = stages;
  endless[1].forward = Seconds(1e300);
  const std::vector<Seconds> two_hops(2), nan_hop = {Seconds(std::nan(""))};
  const struct {
    PipelineProblem problem;
    const char* message;
  } cases[] = {
      {{}, "1f1b pipeline: 0 stage times, expected a positive multiple of 1 chunks"},
      {{.stages = stages, .micro_batches = 0}, "0 micro-batches of 1 chunks, both must be positive"},
      {{.stages = stages, .micro_batches = 4, .chunks = 0}, "4 micro-batches of 0 chunks"},
      {{.schedule = ScheduleKind::kInterleaved, .stages = stages, .chunks = 3},
       "4 stage times, expected a positive multiple of 3"},
      {{.schedule = ScheduleKind::kInterleaved, .stages = stages, .micro_batches = 3, .chunks = 2},
       "interleaved pipeline: 3 micro-batches, expected a multiple of 2 stages"},
      {{.schedule = ScheduleKind::kZbV, .stages = stages}, "zb-v pipeline: 1 chunks, expected 2"},
      {{.schedule = ScheduleKind::kGpipe, .stages = stages, .chunks = 2}, "gpipe pipeline: 2 chunks, expected 1"},
      {{.stages = stages, .hops = two_hops}, "2 hop times, expected none, 1 or 4"},
      {{.stages = stages, .hops = nan_hop}, "hop time 0 is nan s, expected a finite time of 0 or more"},
      {{.stages = bad}, "data gradient time 2 is -1 s"},
      {{.stages = endless}, "expected at most 5000000 s"},
      {{.stages = stages, .micro_batches = int64_t{1} << 40}, "1099511627776 micro-batches: expected at most"},
  };
  PipelineScratch scratch;
  for (const auto& c : cases) {
    const Result<PipelineTime> time = SimulatePipeline(c.problem, scratch);
    ASSERT_FALSE(time) << c.message;
    EXPECT_EQ(time.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(time.error().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace weft::planner::tasks

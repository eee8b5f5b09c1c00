#include "planner/tasks/pipeline_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/tasks/task_graph.h"

namespace weft::planner::inline tasks {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 1e-9;
const std::vector<Seconds> kNothing = {Seconds(0)}, kHalf = {Seconds(0.5)};  // after a single stage

// One stage, two micro-batches of F 1, B 2: the last backward is [4, 6]. 1 s in four buckets: the first is ready at 4.5,
// the last, of 0.25 s, not before 6. In one bucket all of it is seen.
TEST(EndOfIteration, BucketsHideAllButTheLastBehindTheLastBackward) {
  const std::vector<StageTime> stages = {{Seconds(1), Seconds(1), Seconds(1)}};
  PipelineScratch scratch;
  const PipelineTime time = SimulatePipeline({.stages = stages, .micro_batches = 2}, scratch).value();
  const auto end = [&](Seconds exchange, int64_t buckets) {
    return EndOfIteration(ScheduleKind::k1F1B, time, std::vector<ChunkExchange>{{exchange, buckets}}, kHalf).value();
  };
  EXPECT_NEAR(end(Seconds(1), 4).iteration.count(), 6.25 + 0.5, kTolerance);
  EXPECT_NEAR(end(Seconds(1), 1).iteration.count(), 7 + 0.5, kTolerance);
  EXPECT_NEAR(end(Seconds(8), 4).iteration.count(), 4.5 + 8 + 0.5, kTolerance);
  EXPECT_NEAR(end(Seconds(0), 1).iteration.count(), 6 + 0.5, kTolerance);
}

// Where backward is split only the weight gradient makes gradients final: the last second, not the last two.
TEST(EndOfIteration, SplitBackwardIsFinalOnlyWithItsWeightGradient) {
  const std::vector<StageTime> stages = {{Seconds(1), Seconds(1), Seconds(1)}};
  PipelineScratch scratch;
  const PipelineTime time =
      SimulatePipeline({.schedule = ScheduleKind::kZbH1, .stages = stages, .micro_batches = 2}, scratch).value();
  const std::vector<ChunkExchange> exchange = {{Seconds(1), 4}};
  EXPECT_NEAR(EndOfIteration(ScheduleKind::kZbH1, time, exchange, kNothing)->iteration.count(), 5.25 + 1, kTolerance);
}

// With one bucket per chunk the task graph says the same.
TEST(EndOfIteration, IsTheTaskGraphsAnswerForWholeChunks) {
  std::mt19937 random(15);
  PipelineScratch scratch;
  for (int round = 0; round < 200; ++round) {
    const ScheduleKind kind = kAllSchedules[random() % 7];
    if (!HasBarrier(kind)) continue;
    const auto p = static_cast<int64_t>(1 + random() % 6);
    const int64_t v = kind == ScheduleKind::kInterleaved ? 1 + random() % 3 : 1;
    const int64_t m = p * (1 + static_cast<int64_t>(random() % 4));
    const auto time = [&] { return Seconds(1e-3 * static_cast<double>(1 + random() % 30)); };
    std::vector<StageTime> stages(static_cast<size_t>(p * v));
    for (StageTime& stage : stages) stage = {time(), time(), time()};
    std::vector<Seconds> exchanges(stages.size());
    for (Seconds& exchange : exchanges) exchange = 3 * time();
    const std::vector<Bytes> gradients(stages.size(), Bytes(1));
    std::vector<ChunkExchange> whole;
    for (const Seconds exchange : exchanges) whole.push_back({exchange, 1});
    const PipelineProblem problem{.schedule = kind, .stages = stages, .micro_batches = m, .chunks = v};
    const PipelineTime simulated = SimulatePipeline(problem, scratch).value();
    const PipelineDemands demands =
        DemandsOf(problem, {.gradients = gradients, .gradient_times = exchanges, .optimizer = Seconds(2e-3)}).value();
    const PipelineEnd end = EndOfIteration(kind, simulated, whole, std::vector<Seconds>(static_cast<size_t>(p), Seconds(2e-3))).value();
    ASSERT_NEAR(end.iteration.count(), demands.iteration.count(), kTolerance) << ScheduleName(kind) << " p " << p;
  }
}

TEST(EndOfIteration, RefusesExchangesOfAnotherShape) {
  const std::vector<StageTime> stages(2, {Seconds(1), Seconds(1), Seconds(1)});
  PipelineScratch scratch;
  const PipelineTime time = SimulatePipeline({.stages = stages}, scratch).value();
  const auto message = [&](std::vector<ChunkExchange> exchanges, std::vector<Seconds> after) {
    const Result<PipelineEnd> end = EndOfIteration(ScheduleKind::k1F1B, time, exchanges, after);
    return end ? std::string("accepted") : end.error().message();
  };
  EXPECT_THAT(message({{}}, {2, Seconds(0)}), HasSubstr("1 exchanges, expected one for each of 2 chunks"));
  EXPECT_THAT(message({{}, {Seconds(-1), 1}}, {2, Seconds(0)}), HasSubstr("chunk 1 takes -1 s in 1 buckets"));
  EXPECT_THAT(message({{}, {Seconds(1), 0}}, {2, Seconds(0)}), HasSubstr("chunk 1 takes 1 s in 0 buckets"));
  EXPECT_THAT(message({{}, {}}, {Seconds(0)}), HasSubstr("times after 1 stages, expected one for each of 2"));
  EXPECT_THAT(message({{}, {}}, {Seconds(0), Seconds(-1)}), HasSubstr("what follows stage 1 takes -1 s"));
}

}  // namespace
}  // namespace weft::planner::tasks

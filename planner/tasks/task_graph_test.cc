#include "planner/tasks/task_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::planner::inline tasks {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 1e-9;

Seconds Length(const TaskGraph& graph) {
  Seconds end{0};
  for (const TaskWindow& window : Windows(graph)) end = std::max(end, window.earliest_end);
  return end;
}

// a(2) - b(3) - d(1), and c(1) beside b: c may end 2 s later.
TEST(Windows, SlackIsTheTimeThatATaskMayBeLater) {
  TaskGraph graph;
  const int32_t a = graph.Add(Seconds(2), {});
  const int32_t b = graph.Add(Seconds(3), std::vector{a});
  const int32_t c = graph.Add(Seconds(1), std::vector{a});
  const int32_t d = graph.Add(Seconds(1), std::vector{b, c});
  const std::vector<TaskWindow> windows = Windows(graph);
  EXPECT_NEAR(windows[static_cast<size_t>(c)].earliest_start.count(), 2, kTolerance);
  EXPECT_NEAR(windows[static_cast<size_t>(c)].latest_end.count(), 5, kTolerance);
  EXPECT_NEAR(windows[static_cast<size_t>(c)].slack().count(), 2, kTolerance);
  for (const int32_t task : {a, b, d}) EXPECT_NEAR(windows[static_cast<size_t>(task)].slack().count(), 0, kTolerance);
  EXPECT_NEAR(Windows(graph, Seconds(10))[static_cast<size_t>(a)].slack().count(), 4, kTolerance);
  EXPECT_NEAR(Length(graph).count(), 6, kTolerance);
}

// A task longer by its slack changes nothing; longer by a second more makes the whole longer by that second.
TEST(Windows, SlackIsExactOnRandomGraphs) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const int tasks = 2 + static_cast<int>(random() % 20);
    std::vector<Seconds> durations;
    std::vector<std::vector<int32_t>> after(static_cast<size_t>(tasks));
    for (int k = 0; k < tasks; ++k) {
      durations.push_back(Seconds(static_cast<double>(random() % 8)));
      for (int before = 0; before < k; ++before) {
        if (random() % 5 == 0) after[static_cast<size_t>(k)].push_back(before);
      }
    }
    const auto build = [&](int longer, Seconds by) {
      TaskGraph graph;
      for (int k = 0; k < tasks; ++k) {
        graph.Add(durations[static_cast<size_t>(k)] + (k == longer ? by : Seconds(0)), after[static_cast<size_t>(k)]);
      }
      return graph;
    };
    const TaskGraph graph = build(-1, Seconds(0));
    const std::vector<TaskWindow> windows = Windows(graph);
    const double length = Length(graph).count();
    for (int k = 0; k < tasks; ++k) {
      const Seconds slack = windows[static_cast<size_t>(k)].slack();
      EXPECT_GE(slack.count(), 0);
      EXPECT_NEAR(Length(build(k, slack)).count(), length, kTolerance);
      EXPECT_NEAR(Length(build(k, slack + Seconds(1))).count(), length + 1, kTolerance);
    }
  }
}

// Two stages, one micro-batch, hops of 0.5: F F B B with a message each way; nothing can wait but the last stage's
// exchange, which has the hop back and the first stage's backward pass of 2 s to hide behind.
TEST(DemandsOf, OneMicroBatchLeavesSlackOnlyToTheLastStagesGradients) {
  const std::vector<StageTime> stages(2, {Seconds(1), Seconds(1), Seconds(1)});
  const std::vector<Seconds> hops = {Seconds(0.5)}, exchange(2, Seconds(3));
  const std::vector<Bytes> gradients(2, Bytes(100));
  const PipelineProblem problem{.stages = stages, .hops = hops};
  const PipelineDemands demands =
      DemandsOf(problem, {.message = Bytes(7), .gradients = gradients, .gradient_times = exchange, .optimizer = Seconds(1)})
          .value();
  EXPECT_NEAR(demands.iteration.count(), 1 + 0.5 + 1 + 2 + 0.5 + 2 + 3 + 1, kTolerance);
  ASSERT_EQ(demands.transfers.size(), 4u);
  for (const TransferDemand& transfer : demands.transfers) {
    const bool free = transfer.kind == TransferDemand::Kind::kGradientExchange && transfer.from == 1;
    EXPECT_NEAR(transfer.window.slack().count(), free ? 2.5 : 0, kTolerance);
    EXPECT_EQ(transfer.bytes, Bytes(transfer.kind == TransferDemand::Kind::kGradientExchange ? 100 : 7));
  }
}

TEST(DemandsOf, ItsGraphTakesAsLongAsTheSimulation) {
  std::mt19937 random(8);
  PipelineScratch scratch;
  for (int round = 0; round < 300; ++round) {
    const ScheduleKind kind = kAllSchedules[random() % 7];
    const auto p = static_cast<int64_t>(1 + random() % 6);
    const int64_t v = kind == ScheduleKind::kZbV ? 2 : kind == ScheduleKind::kInterleaved ? 1 + random() % 3 : 1;
    const int64_t m = kind == ScheduleKind::kInterleaved ? p * (1 + random() % 4) : 1 + random() % 20;
    const auto time = [&] { return Seconds(1e-3 * static_cast<double>(1 + random() % 30)); };
    std::vector<StageTime> stages(static_cast<size_t>(p * v));
    for (StageTime& stage : stages) stage = {time(), time(), time()};
    std::vector<Seconds> hops(round % 3 == 0 ? 0 : round % 3 == 1 ? 1 : static_cast<size_t>(p));
    for (Seconds& hop : hops) hop = time();
    const PipelineProblem problem{.schedule = kind, .stages = stages, .micro_batches = m, .chunks = v, .hops = hops,
                                  .blocking_sends = random() % 3 == 0};
    const PipelineDemands demands = DemandsOf(problem, {.message = Bytes(1)}).value();
    ASSERT_NEAR(demands.iteration.count(), SimulatePipeline(problem, scratch)->makespan.count(), kTolerance)
        << ScheduleName(kind) << " p " << p << " m " << m << " v " << v << " hops " << hops.size();
    // v messages per boundary, direction and micro-batch, and v - 1 around; ZB-V's two ways use the same boundaries.
    const int64_t around = kind == ScheduleKind::kInterleaved && p > 1 ? v - 1 : 0;
    ASSERT_EQ(static_cast<int64_t>(demands.transfers.size()), 2 * m * ((p - 1) * v + around));
    for (const TransferDemand& transfer : demands.transfers) ASSERT_GE(transfer.window.slack().count(), -kTolerance);
  }
}

TEST(DemandsOf, RefusesTrafficOfAnotherShape) {
  const std::vector<StageTime> stages(2, {Seconds(1), Seconds(1), Seconds(1)});
  const std::vector<Bytes> three(3);
  const std::vector<Seconds> negative = {Seconds(0), Seconds(-1)};
  const auto message = [&](const PipelineTraffic& traffic) {
    const Result<PipelineDemands> demands = DemandsOf({.stages = stages}, traffic);
    return demands ? std::string("accepted") : demands.error().message();
  };
  EXPECT_THAT(message({.gradients = three}), HasSubstr("3 gradients, expected none or 2"));
  EXPECT_THAT(message({.gradient_times = negative}), HasSubstr("gradient time 1 is -1 s"));
  EXPECT_THAT(message({.message = Bytes(-3)}), HasSubstr("message -3 B"));
  EXPECT_EQ(DemandsOf({}, {}).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace weft::planner::tasks

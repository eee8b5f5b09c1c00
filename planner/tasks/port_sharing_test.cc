// Tasks that share ports against sums by hand, and against the longest path where nobody meets.
#include "planner/tasks/port_sharing.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::planner::inline tasks {
namespace {

TEST(PortSharing, TwoOnOnePortTakeTurnsOfHalf) {
  TaskGraph graph;
  graph.Add(Seconds(2), {});
  graph.Add(Seconds(3), {});
  const std::vector<PortUse> use = {{{0, 1}}, {{0, 1}, {1, 1}}};
  const std::vector<TaskSpan> spans = RunTasks(graph, use, 2);
  EXPECT_NEAR(spans[0].end.count(), 4, 1e-9) << "half of the port until 2 s of both are through";
  EXPECT_NEAR(spans[1].end.count(), 5, 1e-9) << "and then all of it";
}

TEST(PortSharing, WhatLatencyLeavesIdleIsAnothers) {
  TaskGraph graph;
  const int32_t computes = graph.Add(Seconds(1), {});
  graph.Add(Seconds(4), {});
  graph.Add(Seconds(2), std::vector{computes});
  const std::vector<PortUse> use = {{}, {{0, 0.3}}, {{0, 0.7}}};
  const std::vector<TaskSpan> spans = RunTasks(graph, use, 1);
  EXPECT_NEAR(spans[1].end.count(), 4, 1e-9);
  EXPECT_NEAR(spans[2].begin.count(), 1, 1e-9);
  EXPECT_NEAR(spans[2].end.count(), 3, 1e-9);
}

// 0.2 of the port is less than a fair share, which the other has the rest of: at 0.8 of its speed.
TEST(PortSharing, WhoWantsLittleIsNotHeld) {
  TaskGraph graph;
  graph.Add(Seconds(10), {});
  graph.Add(Seconds(4), {});
  const std::vector<PortUse> use = {{{0, 0.2}}, {{0, 1}}};
  const std::vector<TaskSpan> spans = RunTasks(graph, use, 1);
  EXPECT_NEAR(spans[0].end.count(), 10, 1e-9);
  EXPECT_NEAR(spans[1].end.count(), 5, 1e-9);
}

// Three flows beside one: three quarters of the port and one.
TEST(PortSharing, APortIsFairToFlows) {
  TaskGraph graph;
  graph.Add(Seconds(3), {});
  graph.Add(Seconds(2), {});
  const std::vector<PortUse> use = {{{0, 1, 1. / 3}}, {{0, 1}}};
  const std::vector<TaskSpan> spans = RunTasks(graph, use, 1);
  EXPECT_NEAR(spans[0].end.count(), 4, 1e-9);
  EXPECT_NEAR(spans[1].end.count(), 5, 1e-9) << "1 s of its 2 by then";
}

// A meets B on port 0, B meets C on port 1: when A is through, B and C go on with half of port 1 each.
TEST(PortSharing, AnEndReachesThoseBehindTheNeighbour) {
  TaskGraph graph;
  graph.Add(Seconds(1), {});
  graph.Add(Seconds(2), {});
  graph.Add(Seconds(3), {});
  const std::vector<PortUse> use = {{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}}};
  const std::vector<TaskSpan> spans = RunTasks(graph, use, 2);
  EXPECT_NEAR(spans[0].end.count(), 2, 1e-9);
  EXPECT_NEAR(spans[1].end.count(), 4, 1e-9);
  EXPECT_NEAR(spans[2].end.count(), 5, 1e-9);
}

// The first needs all of port 0 and half of port 1, of which the second needs all: both move at 2/3, and fill it.
TEST(PortSharing, WhoIsSlowedDownUsesLessOfAllItsPorts) {
  TaskGraph graph;
  graph.Add(Seconds(2), {});
  graph.Add(Seconds(4), {});
  const std::vector<PortUse> use = {{{0, 1}, {1, 0.5}}, {{1, 1}}};
  const std::vector<TaskSpan> spans = RunTasks(graph, use, 2);
  EXPECT_NEAR(spans[0].end.count(), 3, 1e-9);
  EXPECT_NEAR(spans[1].end.count(), 5, 1e-9) << "2 s of its 4 by then";
}

TEST(PortSharing, RandomGraphsAreTheLongestPathWhereNobodyMeets) {
  std::mt19937 random(7);
  for (int drawn = 0; drawn < 200; ++drawn) {
    TaskGraph graph;
    std::vector<PortUse> apart, shared;
    const int tasks = 60;
    for (int32_t t = 0; t < tasks; ++t) {
      std::vector<int32_t> after;
      for (int32_t before = std::max(0, t - 8); before < t; ++before) {
        if (random() % 5 == 0) after.push_back(before);
      }
      graph.Add(Seconds(static_cast<double>(random() % 4) * 0.25), after);
      apart.push_back({{t, 1}});
      shared.emplace_back();
      for (const int32_t first : {0, 3}) {
        const double share = 0.25 * (random() % 5);
        if (share > 0) shared.back().push_back({first + static_cast<int32_t>(random() % 3), share});
      }
    }
    const std::vector<TaskWindow> windows = Windows(graph);
    const std::vector<TaskSpan> alone = RunTasks(graph, apart, tasks), met = RunTasks(graph, shared, 6);
    std::vector<double> work(6, 0);
    Seconds end{0};
    for (size_t t = 0; t < windows.size(); ++t) {
      ASSERT_DOUBLE_EQ(alone[t].begin.count(), windows[t].earliest_start.count());
      ASSERT_DOUBLE_EQ(alone[t].end.count(), windows[t].earliest_end.count());
      const Seconds took = met[t].end - met[t].begin, least = graph.duration(static_cast<int32_t>(t));
      ASSERT_GE(took.count(), least.count() - 1e-9) << "none is faster than alone";
      for (const int32_t before : graph.after(static_cast<int32_t>(t))) {
        ASSERT_GE(met[t].begin.count(), met[static_cast<size_t>(before)].end.count());
      }
      for (const auto& [port, share, flow] : shared[t]) work[static_cast<size_t>(port)] += share * least.count();
      end = std::max(end, met[t].end);
    }
    for (const double of_port : work) ASSERT_GE(end.count(), of_port - 1e-9) << "no port does more than it can";
  }
}

}  // namespace
}  // namespace weft::planner::tasks

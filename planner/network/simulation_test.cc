#include "planner/network/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace weft::planner {
namespace {

// One link of 8 bit/s carries one byte per second.
const BitsPerSecond kByte(8);

SimulatedFlow Flow(std::vector<LinkId> links, int64_t bytes, double start = 0) {
  return {.links = std::move(links), .bytes = Bytes(bytes), .start = Seconds(start)};
}

TEST(Simulation, AFlowAloneTakesBytesOverRate) {
  const std::vector<BitsPerSecond> capacity = {kByte * 10};
  const std::vector<SimulatedFlow> flows = {Flow({LinkId(0)}, 50, 2)};
  const SimulationResult result = SimulateFlows(capacity, flows);
  EXPECT_NEAR(result.finish[0].count(), 7, 1e-9);
  EXPECT_DOUBLE_EQ(result.link_busy_bytes[0], 50);
  EXPECT_EQ(result.events, 2);
}

// 10 B/s. A: 60 B from 0, B: 20 B from 2. A alone until 2 (20 B), both at 5 until B ends at 6 (A 40 B), A alone: 8.
TEST(Simulation, RatesChangeWhenAFlowStartsAndEnds) {
  const std::vector<BitsPerSecond> capacity = {kByte * 10};
  const std::vector<SimulatedFlow> flows = {Flow({LinkId(0)}, 60), Flow({LinkId(0)}, 20, 2)};
  const SimulationResult result = SimulateFlows(capacity, flows);
  EXPECT_NEAR(result.finish[0].count(), 8, 1e-9);
  EXPECT_NEAR(result.finish[1].count(), 6, 1e-9);
}

TEST(Simulation, ADeadLinkBlocksItsFlowForEverAndNoOther) {
  const std::vector<BitsPerSecond> capacity = {BitsPerSecond(0), kByte};
  const std::vector<SimulatedFlow> flows = {Flow({LinkId(0)}, 1), Flow({LinkId(1)}, 3), Flow({LinkId(1)}, 0, 1)};
  const SimulationResult result = SimulateFlows(capacity, flows);
  EXPECT_TRUE(std::isinf(result.finish[0].count()));
  EXPECT_NEAR(result.finish[1].count(), 3, 1e-9);
  EXPECT_NEAR(result.finish[2].count(), 1, 1e-9) << "nothing to send is sent at once";
}

TEST(Simulation, NothingToDoIsDone) {
  EXPECT_EQ(SimulateFlows({}, {}).events, 0);
}

// Conservation: every link carries exactly the bytes of the flows that cross it, and no link more than its capacity
// allows until the last flow ends.
TEST(Simulation, EveryByteIsCarriedOnce) {
  std::mt19937 random(11);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int round = 0; round < 100; ++round) {
    std::vector<BitsPerSecond> capacity;
    for (int l = 0; l < 5; ++l) capacity.push_back(kByte * draw(1, 9));
    std::vector<SimulatedFlow> flows;
    std::vector<double> expected(5, 0);
    for (int f = 0; f < 12; ++f) {
      const int a = draw(0, 4), b = (a + draw(1, 4)) % 5;
      flows.push_back(Flow({LinkId(a), LinkId(b)}, draw(1, 1000), draw(0, 50)));
      expected[static_cast<size_t>(a)] += static_cast<double>(flows.back().bytes.count());
      expected[static_cast<size_t>(b)] += static_cast<double>(flows.back().bytes.count());
    }
    const SimulationResult result = SimulateFlows(capacity, flows);
    double last = 0;
    for (size_t f = 0; f < flows.size(); ++f) {
      const double least = flows[f].start.count() + 1e-9;
      ASSERT_GT(result.finish[f].count(), least);
      last = std::max(last, result.finish[f].count());
    }
    for (size_t l = 0; l < 5; ++l) {
      ASSERT_NEAR(result.link_busy_bytes[l], expected[l], 1e-6 * (1 + expected[l]));
      ASSERT_LE(result.link_busy_bytes[l], capacity[l].bytes_per_second() * last * (1 + 1e-9));
    }
  }
}

// 10 B/s. The urgent flow (30 B from 2 s) stops the other (50 B from 0): 20 B until 2, nothing until 5, 30 B until 8.
TEST(Simulation, AHigherPriorityStopsALowerOne) {
  const std::vector<BitsPerSecond> capacity = {kByte * 10};
  std::vector<SimulatedFlow> flows = {Flow({LinkId(0)}, 50), Flow({LinkId(0)}, 30, 2)};
  flows[0].priority = 1;
  const SimulationResult result = SimulateFlows(capacity, flows);
  EXPECT_NEAR(result.finish[0].count(), 8, 1e-9);
  EXPECT_NEAR(result.finish[1].count(), 5, 1e-9);
}

/// Lane i sends over link i and step k waits for step k - 1 of the lane before it.
std::vector<TransferLane> Ring(int ranks, int64_t bytes, double latency) {
  std::vector<TransferLane> lanes;
  for (int i = 0; i < ranks; ++i) {
    lanes.push_back({.links = {LinkId(i)}, .bytes = Bytes(bytes), .steps = 2 * (ranks - 1), .latency = Seconds(latency),
                     .needs = {{.lane = (i + ranks - 1) % ranks, .lag = 1}}});
  }
  return lanes;
}

// 2(n - 1) steps of latency + bytes / rate: 14 · (0.5 + 20 / 10) = 35 s.
TEST(Lanes, ARingTakesTheAlphaBetaTime) {
  const std::vector<BitsPerSecond> capacity(8, kByte * 10);
  for (const bool recurrence : {true, false}) {
    const SimulationResult result = SimulateLanes(capacity, Ring(8, 20, 0.5), {.recurrence = recurrence});
    for (const Seconds finish : result.finish) EXPECT_NEAR(finish.count(), 35, 1e-9);
    EXPECT_EQ(result.events, 8 * 14 * 2);
    EXPECT_DOUBLE_EQ(result.link_busy_bytes[3], 14 * 20);
  }
}

// The slow lane paces all: 14 · (0.5 + 20 / 5) = 63 s for itself; whoever waits for its last but one step ends
// earlier.
TEST(Lanes, ASlowLinkPacesTheWholeRing) {
  std::vector<BitsPerSecond> capacity(8, kByte * 10);
  capacity[2] = kByte * 5;
  for (const bool recurrence : {true, false}) {
    const SimulationResult result = SimulateLanes(capacity, Ring(8, 20, 0.5), {.recurrence = recurrence});
    EXPECT_NEAR(result.finish[2].count(), 63, 1e-9);
    EXPECT_NEAR(result.finish[3].count(), 13 * 4.5 + 2.5, 1e-9);
  }
}

// A chain with lag 0: chunk k goes on when it has come. 3 hops, 4 chunks of 1 s: 3 + 4 - 1 s.
TEST(Lanes, ChunksFollowEachOtherThroughAPipeline) {
  const std::vector<BitsPerSecond> capacity(3, kByte);
  std::vector<TransferLane> lanes;
  for (int i = 0; i < 3; ++i) lanes.push_back({.links = {LinkId(i)}, .bytes = Bytes(1), .steps = 4});
  lanes[1].needs = {{.lane = 0, .lag = 0}};
  lanes[2].needs = {{.lane = 1, .lag = 0}};
  EXPECT_NEAR(SimulateLanes(capacity, lanes).finish[2].count(), 6, 1e-9);
}

// Two rings over one link get half of it each, as often as both send.
TEST(Lanes, CollidingRingsShareTheirLink) {
  const std::vector<BitsPerSecond> capacity(2, kByte * 10);
  std::vector<TransferLane> lanes = Ring(2, 20, 0), other = Ring(2, 20, 0);
  for (TransferLane& lane : other) lane.needs[0].lane += 2;
  lanes.insert(lanes.end(), other.begin(), other.end());
  const SimulationResult result = SimulateLanes(capacity, lanes);
  for (const Seconds finish : result.finish) EXPECT_NEAR(finish.count(), 2 * 20 / 5.0, 1e-9);
}

TEST(Lanes, ACircleNeverFinishesAndHoldsUpNobodyElse) {
  const std::vector<BitsPerSecond> capacity(3, kByte);
  std::vector<TransferLane> lanes;
  for (int i = 0; i < 3; ++i) lanes.push_back({.links = {LinkId(i)}, .bytes = Bytes(2)});
  lanes[0].needs = {{.lane = 1, .lag = 0}};
  lanes[1].needs = {{.lane = 0, .lag = 0}};
  const SimulationResult result = SimulateLanes(capacity, lanes);
  EXPECT_TRUE(std::isinf(result.finish[0].count()));
  EXPECT_TRUE(std::isinf(result.finish[1].count()));
  EXPECT_NEAR(result.finish[2].count(), 2, 1e-9);
}

// 300 random sets of lanes, alone or colliding: the recurrence, where it applies, and the events agree.
TEST(Lanes, TheRecurrenceAgreesWithTheEvents) {
  std::mt19937 random(5);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int round = 0; round < 300; ++round) {
    const int links = draw(4, 12);
    std::vector<BitsPerSecond> capacity;
    for (int l = 0; l < links; ++l) capacity.push_back(kByte * draw(1, 9));
    std::vector<TransferLane> lanes;
    for (int i = 0; i < draw(1, 10); ++i) {
      TransferLane lane{.links = {LinkId(round % 3 == 0 ? draw(0, links - 1) : i % links)}, .bytes = Bytes(draw(0, 30)),
                        .steps = draw(1, 6), .latency = Seconds(draw(0, 2)), .start = Seconds(draw(0, 5))};
      for (int n = draw(0, 2); n > 0 && i > 0; --n) lane.needs.push_back({.lane = draw(0, i - 1), .lag = draw(0, 2)});
      lanes.push_back(std::move(lane));
    }
    const SimulationResult fast = SimulateLanes(capacity, lanes);
    const SimulationResult slow = SimulateLanes(capacity, lanes, {.recurrence = false});
    ASSERT_EQ(fast.events, slow.events);
    for (size_t i = 0; i < lanes.size(); ++i) {
      ASSERT_NEAR(fast.finish[i].count(), slow.finish[i].count(), 1e-9) << "round " << round << " lane " << i;
    }
    for (size_t l = 0; l < capacity.size(); ++l) ASSERT_NEAR(fast.link_busy_bytes[l], slow.link_busy_bytes[l], 1e-6);
  }
}

/// The same by complete solutions at every event and small arrays: slow and obvious.
std::vector<double> SimulateObviously(std::span<const BitsPerSecond> capacity, std::span<const SimulatedFlow> flows) {
  std::vector<double> left, finish(flows.size(), -1);
  for (const SimulatedFlow& flow : flows) left.push_back(static_cast<double>(flow.bytes.count()));
  for (double now = 0;;) {
    std::vector<MaxMinFlow> sharing;
    std::vector<size_t> who;
    double next = 1e300;
    for (size_t f = 0; f < flows.size(); ++f) {
      if (finish[f] >= 0) continue;
      if (flows[f].start.count() > now) {
        next = std::min(next, flows[f].start.count());
        continue;
      }
      who.push_back(f);
      sharing.push_back({.links = flows[f].links, .weight = flows[f].weight, .cap = flows[f].cap,
                         .priority = flows[f].priority});
    }
    const std::vector<BitsPerSecond> rates = MaxMinRates(capacity, sharing);
    for (size_t i = 0; i < who.size(); ++i) {
      if (rates[i].value() > 0) next = std::min(next, now + left[who[i]] / rates[i].bytes_per_second());
    }
    if (next == 1e300) return finish;
    for (size_t i = 0; i < who.size(); ++i) {
      left[who[i]] -= rates[i].bytes_per_second() * (next - now);
      if (left[who[i]] < 1e-7) finish[who[i]] = next;
    }
    now = next;
  }
}

TEST(Simulation, AgreesWithCompleteSolutionsAtEveryEvent) {
  std::mt19937 random(23);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int round = 0; round < 300; ++round) {
    std::vector<BitsPerSecond> capacity;
    for (int l = 0; l < 6; ++l) capacity.push_back(kByte * draw(1, 9));
    std::vector<SimulatedFlow> flows;
    for (int f = draw(1, 25); f > 0; --f) {
      const int a = draw(0, 5), b = (a + draw(1, 5)) % 6;
      flows.push_back(Flow({LinkId(a), LinkId(b)}, draw(1, 1000), draw(0, 50)));
      flows.back().weight = draw(1, 3);
      flows.back().priority = draw(0, round % 3);
      if (draw(0, 3) == 0) flows.back().cap = kByte * draw(1, 4);
    }
    const SimulationResult fast = SimulateFlows(capacity, flows);
    const std::vector<double> slow = SimulateObviously(capacity, flows);
    for (size_t f = 0; f < flows.size(); ++f) {
      ASSERT_NEAR(fast.finish[f].count(), slow[f], 1e-6 * slow[f]) << "round " << round << " flow " << f;
    }
  }
}

}  // namespace
}  // namespace weft::planner

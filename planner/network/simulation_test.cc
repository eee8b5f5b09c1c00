#include "planner/network/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft::planner

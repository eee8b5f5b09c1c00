#include "planner/jobs/simulate/job_traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace weft::planner::inline jobs {
namespace {

using namespace literals;
using ::testing::ElementsAre;

// Four ends, 2 · 3/4 of 1024 bytes on every hop.
TEST(PatternTraffic, RingSendsToTheNextOneOnly) {
  EXPECT_THAT(
      PatternTraffic(TrafficPattern::kRing, 4, 1024_B),
      ElementsAre(PairBytes{0, 1, 1536_B}, PairBytes{1, 2, 1536_B}, PairBytes{2, 3, 1536_B}, PairBytes{3, 0, 1536_B}));
  EXPECT_THAT(PatternTraffic(TrafficPattern::kRing, 2, 1024_B),
              ElementsAre(PairBytes{0, 1, 1024_B}, PairBytes{1, 0, 1024_B}));
  EXPECT_TRUE(PatternTraffic(TrafficPattern::kRing, 1, 1024_B).empty());
}

TEST(PatternTraffic, AllToAllSendsAPartToEachOther) {
  const std::vector<PairBytes> pairs = PatternTraffic(TrafficPattern::kAllToAll, 8, 1024_B);
  EXPECT_EQ(pairs.size(), 56u);
  for (const PairBytes& pair : pairs) EXPECT_EQ(pair.bytes, 128_B);
}

// n - 1 edges in each of two trees, half of the buffer up and half down each: 2 (n-1) S in all, as much as the ring's.
TEST(PatternTraffic, TreesSendAsMuchAsTheRing) {
  for (const int32_t ends : {2, 3, 8, 13}) {
    int64_t tree = 0;
    std::map<int32_t, int64_t> out;
    for (const PairBytes& pair : PatternTraffic(TrafficPattern::kTree, ends, 1_MiB)) {
      tree += pair.bytes.count();
      out[pair.from] += pair.bytes.count();
    }
    EXPECT_EQ(tree, 2 * (ends - 1) * int64_t{1 << 20}) << ends;
    // An inner node of at most one tree: half up in both, half down to two children in one.
    for (const auto& [from, bytes] : out) EXPECT_LE(bytes, 2 * int64_t{1 << 20}) << ends << " from " << from;
  }
}

TEST(PatternTraffic, HugeBuffersDoNotOverflow) {
  const Bytes most = Bytes(int64_t{1} << 61);
  for (const PairBytes& pair : PatternTraffic(TrafficPattern::kRing, 1024, most)) EXPECT_GT(pair.bytes, most);
}

TEST(FlowsBetween, SpreadsAPairOverTheGpusWithoutLosingAByte) {
  const std::vector<TrafficEnd> ends = {
      {NodeId(0), NodeId(1), NodeId(2)}, {NodeId(10), NodeId(11), NodeId(12)}, {NodeId(20)}};
  const std::vector<PairBytes> pairs = {{0, 1, 100_B}, {1, 2, 7_B}};
  const std::vector<ScenarioFlow> flows = FlowsBetween(ends, pairs);
  ASSERT_EQ(flows.size(), 6u);
  EXPECT_EQ(flows[0].from, NodeId(0));
  EXPECT_EQ(flows[0].to, NodeId(10));
  EXPECT_EQ(flows[0].bytes, 34_B);
  EXPECT_EQ(flows[2].to, NodeId(12));
  EXPECT_EQ(flows[2].bytes, 33_B);
  EXPECT_EQ(flows[5].to, NodeId(20)) << "ends of different size take turns";
  Bytes sum;
  for (const ScenarioFlow& flow : flows) sum += flow.bytes;
  EXPECT_EQ(sum, 107_B);
  EXPECT_TRUE(FlowsBetween(ends, std::vector<PairBytes>{{0, 1, 0_B}}).empty());
}

}  // namespace
}  // namespace weft::planner::jobs

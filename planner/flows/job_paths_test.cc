#include "planner/flows/job_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace weft::planner::inline flows {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

/// A flow from link 0 over one of `ways` to link 1.
RoutableFlow Flow(int ways) {
  RoutableFlow flow{.bytes = Bytes(4000), .paths = {}};
  for (int w = 0; w < ways; ++w) flow.paths.push_back({{LinkId(0), LinkId(2 + w), LinkId(1)}});
  return flow;
}

std::vector<BitsPerSecond> Alike() { return std::vector<BitsPerSecond>(10, BitsPerSecond(1e9)); }

TEST(AddSplits, DividesEvenlyBetweenFewWaysThatAreAlike) {
  RoutableFlow flow = Flow(2);
  AddSplits(&flow, Alike());
  ASSERT_EQ(flow.paths.size(), 3u);
  EXPECT_EQ(flow.WholePaths(), 2u);
  const PeriodicJob job = OnPaths({.gpus = 1, .compute = Seconds(1), .release = Seconds(1), .flows = {flow}}, {2});
  ASSERT_EQ(job.loads.size(), 4u);
  EXPECT_EQ(job.loads[0].bytes, Bytes(4000)) << "all of it leaves the host";
  EXPECT_EQ(job.loads[1].bytes, Bytes(4000));
  EXPECT_EQ(job.loads[2].bytes, Bytes(2000));
  EXPECT_EQ(job.loads[3].bytes, Bytes(2000));
}

TEST(AddSplits, TakesEveryNthWayWhereTheyAreMoreThanLanes) {
  RoutableFlow flow = Flow(8);
  AddSplits(&flow, Alike());
  ASSERT_EQ(flow.paths.size(), 10u);
  EXPECT_THAT(flow.paths[8].links, ElementsAre(LinkId(0), LinkId(1), LinkId(2), LinkId(4), LinkId(6), LinkId(8)));
  EXPECT_THAT(flow.paths[9].links, ElementsAre(LinkId(0), LinkId(1), LinkId(3), LinkId(5), LinkId(7), LinkId(9)));
  EXPECT_THAT(flow.shares[9], ElementsAre(1, 1, 0.25, 0.25, 0.25, 0.25));
}

TEST(AddSplits, GivesEachWayWhatItsOwnLinksCanCarry) {
  RoutableFlow flow = Flow(2);
  std::vector<BitsPerSecond> capacity = Alike();
  capacity[0] = BitsPerSecond(1e3);  // both ways have it: of no account
  capacity[2] = BitsPerSecond(0.5e9);
  AddSplits(&flow, capacity);
  EXPECT_THAT(SharesOf(flow, 2), ElementsAre(DoubleNear(1. / 3, 1e-12), DoubleNear(2. / 3, 1e-12)));
  EXPECT_THAT(flow.shares[2], ElementsAre(1, 1, DoubleNear(1. / 3, 1e-12), DoubleNear(2. / 3, 1e-12)));
  EXPECT_THAT(SharesOf(flow, 1), ElementsAre(0, 1));
}

TEST(AddSplits, LinksThatSomeWaysShareCountInParts) {
  RoutableFlow flow{.bytes = Bytes(4000), .paths = {{{LinkId(0), LinkId(2)}}, {{LinkId(0), LinkId(3)}}, {{LinkId(1), LinkId(4)}}, {{LinkId(1), LinkId(5)}}}};
  std::vector<BitsPerSecond> capacity = Alike();
  capacity[0] = BitsPerSecond(0.5e9);
  capacity[1] = BitsPerSecond(2e9);
  AddSplits(&flow, capacity);
  EXPECT_THAT(SharesOf(flow, 4), ElementsAre(DoubleNear(0.1, 1e-12), DoubleNear(0.1, 1e-12), DoubleNear(0.4, 1e-12), DoubleNear(0.4, 1e-12)));
}

TEST(AddSplits, LeavesOutADeadWay) {
  RoutableFlow flow = Flow(3);
  std::vector<BitsPerSecond> capacity = Alike();
  capacity[2] = BitsPerSecond(0);
  AddSplits(&flow, capacity);
  EXPECT_THAT(SharesOf(flow, 3), ElementsAre(0, 0.5, 0.5));
  EXPECT_THAT(flow.paths[3].links, ElementsAre(LinkId(0), LinkId(1), LinkId(3), LinkId(4)));
  RoutableFlow two = Flow(2);
  AddSplits(&two, capacity);
  EXPECT_EQ(two.paths.size(), 2u) << "one way is left";
}

TEST(AddSplits, DividesEvenlyWhereNoWayHasAnyCapacity) {
  RoutableFlow flow = Flow(2);
  AddSplits(&flow, std::vector<BitsPerSecond>(10, BitsPerSecond(0)));
  EXPECT_THAT(SharesOf(flow, 2), ElementsAre(0.5, 0.5));
}

TEST(AddSplits, LeavesAFlowOfOneWayAlone) {
  RoutableFlow flow = Flow(1);
  AddSplits(&flow, Alike());
  EXPECT_EQ(flow.paths.size(), 1u);
  EXPECT_EQ(flow.WholePaths(), 1u);
  EXPECT_EQ(flow.ShareOn(0, 0), 1);
}

}  // namespace
}  // namespace weft::planner::flows

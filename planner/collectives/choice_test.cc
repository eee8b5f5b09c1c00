#include "planner/collectives/choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/collectives/packed_schedule.h"
#include "planner/collectives/testing/replay.h"

namespace weft::planner::inline collectives {
namespace {

using namespace literals;
using ::testing::HasSubstr;

/// Hosts of 8: NVLink at 40 GB/s per rank, one NIC per rank at `across` GB/s.
CommunicatorShape Hosts(int32_t hosts, double across) {
  return {.ranks = 8 * hosts,
          .group = 8,
          .inner = {Seconds(2e-6), GigabytesPerSecond(40)},
          .outer = {Seconds(14e-6), GigabytesPerSecond(across)}};
}

double Replayed(const AlgorithmCost& cost, Collective collective, const CommunicatorShape& shape, Bytes bytes) {
  const auto schedule = MakeSchedule(cost.spec, collective, shape.ranks);
  EXPECT_TRUE(schedule) << schedule.error().message();
  const auto time = ReplayTime(*schedule, shape, bytes, std::min(cost.slices, 8));
  EXPECT_TRUE(time) << time.error().message();
  return time->count();
}

// The regret of trusting closed forms: what was chosen, replayed, against the best of all candidates, replayed.
TEST(Choose, IsNearTheFastestOfAllCandidatesWhenTheyAreReplayed) {
  double worst = 1;
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kAllToAll}) {
    for (const double across : {50.0, 12.5, 1.8}) {
      for (const Bytes bytes : {4_KiB, 1_MiB, 64_MiB}) {
        const CommunicatorShape shape = Hosts(2, across);
        const auto costs = Choose(collective, shape, bytes);
        ASSERT_TRUE(costs) << costs.error().message();
        double best = 1e300;
        for (const AlgorithmCost& cost : *costs) best = std::min(best, Replayed(cost, collective, shape, bytes));
        const double regret = Replayed(costs->front(), collective, shape, bytes) / best;
        worst = std::max(worst, regret);
        EXPECT_LE(regret, 1.15) << CollectiveName(collective) << " " << ToString(costs->front().spec) << " across " << across
                                << " bytes " << bytes.count();
      }
    }
  }
  RecordProperty("worst_regret_percent", static_cast<int>(100 * (worst - 1)));
}

// NCCL takes a ring for large data on any fabric. Where the ways out are slow, keeping each host's sums on its own links first
// moves an eighth per NIC.
TEST(Choose, BeatsTheRingOfNcclWhereTheNetworkIsSlow) {
  const CommunicatorShape shape = Hosts(2, 1.8);
  const NcclGraph graph{.generation = GpuGeneration::kHopper, .ranks = 16, .nodes = 2, .channels = 8, .inside_gbs = 45,
                        .across_gbs = 45, .nvswitch = true};
  EXPECT_EQ(NcclTable(graph, Collective::kAllReduce, 64_MiB).front().algorithm, NcclAlgorithm::kRing);
  const auto costs = Choose(Collective::kAllReduce, shape, 64_MiB);
  ASSERT_TRUE(costs);
  EXPECT_EQ(ToString(costs->front().spec), "hierarchical:8");
  const double ours = Replayed(costs->front(), Collective::kAllReduce, shape, 64_MiB);
  const double ring = Replayed({{Algorithm::kRing, 0}, Seconds(0), 1}, Collective::kAllReduce, shape, 64_MiB);
  EXPECT_LT(ours * 5, ring);
}

TEST(Choose, GoesByLatencyForSmallAndByBytesForLargeData) {
  const auto small = Choose(Collective::kAllReduce, Hosts(4, 50), 1_KiB), large = Choose(Collective::kAllReduce, Hosts(4, 50), 1_GiB);
  ASSERT_TRUE(small && large);
  EXPECT_NE(small->front().spec, large->front().spec);
}

TEST(Choose, PackedTreesAreTakenWhereTheLinksAreUneven) {
  // A square of 4 ranks with one thick and one thin pair of cables, and a diagonal: a ring is bound by the thin ones.
  PackingGraph graph{.ranks = 4, .nodes = 4, .cables = {{0, 1, 8}, {1, 2, 1}, {2, 3, 8}, {3, 0, 1}, {0, 2, 4}, {1, 3, 4}}};
  const auto packing = PackTrees(graph);
  ASSERT_TRUE(packing) << packing.error().message();
  const LinkCost thin{Seconds(1e-6), GigabytesPerSecond(1)};
  const CommunicatorShape shape{.ranks = 4, .group = 0, .inner = thin, .outer = thin};
  const auto costs = Choose(Collective::kAllReduce, shape, 64_MiB,
                            {.packing = &*packing, .packing_unit = GigabytesPerSecond(1)});
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->front().spec.algorithm, Algorithm::kForest);
}

TEST(Choose, RefusesAShapeWithoutRates) {
  const auto costs = Choose(Collective::kAllReduce, {.ranks = 4}, 1_MiB);
  ASSERT_FALSE(costs);
  EXPECT_EQ(costs.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(costs.error().message(), HasSubstr("4 ranks"));
}

TEST(NcclTableOn, ChangesNothingWhereTheNetworkIsWhatNcclAssumes) {
  const NcclGraph graph{.generation = GpuGeneration::kHopper, .ranks = 32, .nodes = 4, .channels = 8, .inside_gbs = 45,
                        .across_gbs = 45, .nvswitch = true};
  for (Bytes bytes = 1_KiB; bytes <= 1_GiB; bytes = bytes * 4) {
    const auto assumed = NcclTable(graph, Collective::kAllReduce, bytes);
    const auto real = NcclTableOn(graph, Collective::kAllReduce, bytes, GigabytesPerSecond(400));
    EXPECT_EQ(assumed.front().algorithm, real.front().algorithm) << bytes.count();
    EXPECT_EQ(assumed.front().protocol, real.front().protocol) << bytes.count();
  }
}

// 1 GiB on 4 hosts whose ways out are oversubscribed. NCCL takes Simple for a bandwidth that the network does not give: LL128
// fills the same wire and starts sooner.
TEST(NcclTableOn, LeavesSimpleWhereOversubscriptionTakesItsAdvantage) {
  const NcclGraph graph{.generation = GpuGeneration::kHopper, .ranks = 32, .nodes = 4, .channels = 8, .inside_gbs = 45,
                        .across_gbs = 45, .nvswitch = true};
  const auto assumed = NcclTable(graph, Collective::kAllGather, 1_GiB);
  const auto real = NcclTableOn(graph, Collective::kAllGather, 1_GiB, GigabytesPerSecond(50));
  EXPECT_EQ(assumed.front().protocol, NcclProtocol::kSimple);
  EXPECT_EQ(real.front().protocol, NcclProtocol::kLl128);
  // Wire: 3/4 of 1 GiB through 50 GB/s, behind the latency.
  EXPECT_NEAR(real.front().time.count(), 0.75 * 1073741824 / 50e9 + 1e-6 * real.front().latency_us, 1e-9);
}

}  // namespace
}  // namespace weft::planner::collectives

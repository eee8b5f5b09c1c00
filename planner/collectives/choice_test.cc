#include "planner/collectives/choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/collectives/packed_schedule.h"
#include "planner/collectives/schedule_cost.h"
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
        const auto costs = Choose(collective, NetworkOf(shape), shape.ranks, bytes);
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
  EXPECT_EQ(NcclTable(graph, Collective::kAllReduce, 64_MiB).front().algorithm, Algorithm::kRing);
  const auto costs = Choose(Collective::kAllReduce, NetworkOf(shape), shape.ranks, 64_MiB);
  ASSERT_TRUE(costs);
  EXPECT_EQ(ToString(costs->front().spec), "hierarchical:8");
  const double ours = Replayed(costs->front(), Collective::kAllReduce, shape, 64_MiB);
  const double ring = Replayed({{Algorithm::kRing, 0}, Seconds(0), 1}, Collective::kAllReduce, shape, 64_MiB);
  EXPECT_LT(ours * 5, ring);
}

TEST(Choose, GoesByLatencyForSmallAndByBytesForLargeData) {
  const auto small = Choose(Collective::kAllReduce, NetworkOf(Hosts(4, 50)), 32, 1_KiB),
             large = Choose(Collective::kAllReduce, NetworkOf(Hosts(4, 50)), 32, 1_GiB);
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
  const auto costs = Choose(Collective::kAllReduce, NetworkOf(shape), 4, 64_MiB,
                            {.packing = &*packing, .packing_unit = GigabytesPerSecond(1)});
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->front().spec.algorithm, Algorithm::kForest);
}

TEST(Choose, RefusesANetworkWithoutRates) {
  const auto costs = Choose(Collective::kAllReduce, {.gpus_per_node = 4, .intra_rate = 0}, 4, 1_MiB);
  ASSERT_FALSE(costs);
  EXPECT_EQ(costs.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(costs.error().message(), HasSubstr("4 ranks"));
}

/// Four hosts of 8 H100 and the network that NCCL takes them for, with `across` byte/s out of each GPU; LL and LL128.
constexpr NcclGraph kFourHosts{.generation = GpuGeneration::kHopper, .ranks = 32, .nodes = 4, .channels = 8, .inside_gbs = 45,
                               .across_gbs = 45, .nvswitch = true};
GroupNetwork FourHosts(double across) {
  GroupNetwork network{.gpus_per_node = 8, .intra_rate = 360e9, .nic_rate = across, .intra_latency = 4e-6, .nic_latency = 14e-6,
                       .start = 8.4e-6, .has_early = true, .has_ll128 = true, .least_stretch = 1 / 0.92};
  network.early[0] = {6.6e-6, 0.6e-6, 5e-6, 2, {1 / 141e9, 1 / 39e9, 1 / 20.4e9}};
  network.early[1] = {14e-6, 1.9e-6, 8.5e-6, 1 / 0.92, {}};
  return network;
}

TEST(CellsOn, AgreesWithNcclWhereTheNetworkIsWhatItAssumes) {
  for (const Bytes bytes : {1_KiB, 16_KiB, 1_GiB}) {
    const auto assumed = NcclTable(kFourHosts, Collective::kAllReduce, bytes);
    const auto real = CellsOn(FourHosts(45e9), {32, 1}, Collective::kAllReduce, bytes, assumed);
    ASSERT_EQ(real.size(), assumed.size());
    EXPECT_EQ(assumed.front().algorithm, real.front().algorithm) << bytes.count();
    EXPECT_EQ(assumed.front().protocol, real.front().protocol) << bytes.count();
  }
}

// 64 KiB on hosts whose ways out give 1/2000 of what NCCL counts on: it takes LL, which sends every byte twice.
TEST(CellsOn, LeavesLlWhereTheWireIsSlow) {
  const auto assumed = NcclTable(kFourHosts, Collective::kAllReduce, 64_KiB);
  const auto real = CellsOn(FourHosts(0.02e9), {32, 1}, Collective::kAllReduce, 64_KiB, assumed);
  EXPECT_EQ(assumed.front().protocol, Protocol::kLl);
  EXPECT_EQ(real.front().protocol, Protocol::kLl128);
  // A ring sends 2 · 31/32 of the data through 8 NICs of 0.02 GB/s, LL128 stretched; 56 steps inside and 6 outside. A tree of this
  // size reaches 0.6 of its rate.
  EXPECT_EQ(real.front().algorithm, Algorithm::kRing);
  EXPECT_NEAR(real.front().time.count(), 14e-6 + 56 * 1.9e-6 + 6 * 8.5e-6 + 2 * 31.0 / 32 * 65536 / (0.16e9 * 0.92), 1e-12);
}

}  // namespace
}  // namespace weft::planner::collectives

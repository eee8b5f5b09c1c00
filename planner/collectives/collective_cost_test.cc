#include "planner/collectives/collective_cost.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/collectives/tree_rate.h"

namespace weft::planner::inline collectives {
namespace {

/// 128 GPUs, eight to a node, without start-up times; leaves of 32 GPUs that let out `share` of what their NICs send.
GroupNetwork Network(double share) {
  GroupNetwork network{.gpus_per_node = 8, .intra_rate = 200e9, .nic_rate = 50e9, .direct_intra_rate = 200e9};
  network.above[0] = {32, share * 50e9};
  network.tiers = 1;
  return network;
}

// Ring over all: one of 128 ranks' edges leaves each leaf, and all eight NICs of a node carry it at once.
TEST(CollectiveCost, ARingOverAllLeavesALeafOnce) {
  const double bytes = 128e6;
  EXPECT_DOUBLE_EQ(GatherTime(Network(1), {128, 1}, bytes), bytes * 127 / 128 / 200e9);
  EXPECT_DOUBLE_EQ(GatherTime(Network(0.125), {128, 1}, bytes), bytes * 127 / 128 / 200e9) << "32 · 6.25 GB/s leave a leaf";
  EXPECT_DOUBLE_EQ(GatherTime(Network(0.0625), {128, 1}, bytes), bytes * 127 / 128 / 100e9);
}

// Two nodes of two GPUs, 10 GB/s inside, 1 GB/s out for both together, a gigabyte. Flat: 2·3/4 at 1 GB/s. By levels: 2·1/2 at 10
// and 2·1/2 of a half per GPU at 0.5 each: 0.1 + 1 s.
TEST(CollectiveCost, LevelsWinWhereTheNicIsTheBottleneck) {
  const GroupNetwork network{.gpus_per_node = 2, .intra_rate = 10e9, .nic_rate = 0.5e9, .direct_intra_rate = 10e9};
  EXPECT_DOUBLE_EQ(AllReduceTime(network, {4, 1}, 1e9), 1.5);
  EXPECT_DOUBLE_EQ(HierarchicalAllReduceTime(network, {4, 1}, 1e9), 1.1);
  EXPECT_DOUBLE_EQ(HierarchicalAllReduceTime(network, {2, 1}, 1e9), 0.1) << "one node";
}

// A small message of two ranks: there and back.
TEST(CollectiveCost, LatencyIsOfTheHopThatIsCrossed) {
  const GroupNetwork network{.gpus_per_node = 1, .intra_rate = 10e9, .nic_rate = 1e9, .intra_latency = 1e-6, .nic_latency = 9e-6,
                             .direct_intra_rate = 10e9};
  EXPECT_NEAR(AllReduceTime(network, {2, 1}, 1), 18e-6, 1e-8);
}

// One rank per leaf: 32 rings share what leaves a leaf.
TEST(CollectiveCost, RingsOfOneRankPerLeafShareWhatLeavesIt) {
  const Group across{4, 32};
  EXPECT_DOUBLE_EQ(GatherTime(Network(1), across, 4e6), 3e6 / 50e9);
  EXPECT_DOUBLE_EQ(GatherTime(Network(0.25), across, 4e6), 3e6 / 12.5e9);
}

TEST(CollectiveCost, GroupsInsideAUnitDoNotNoticeWhatLeavesIt) {
  for (const Group group : {Group{8, 1}, Group{32, 1}, Group{4, 8}}) {
    EXPECT_DOUBLE_EQ(AllReduceTime(Network(0.1), group, 1e6), AllReduceTime(Network(1), group, 1e6));
    EXPECT_DOUBLE_EQ(AllToAllTime(Network(0.1), group, 1e6), AllToAllTime(Network(1), group, 1e6));
  }
}

// Every rank on another node costs its time; GPUs that share NICs reach a part of their rate.
TEST(CollectiveCost, AllToAllPaysForPeersOnOtherNodes) {
  GroupNetwork network{.gpus_per_node = 8, .intra_rate = 200e9, .nic_rate = 50e9, .direct_intra_rate = 200e9, .peer_latency = 1e-5};
  EXPECT_NEAR(AllToAllTime(network, {8, 1}, 0), 0, 1e-12);
  EXPECT_NEAR(AllToAllTime(network, {64, 1}, 0), 56 * 1e-5, 1e-12);
  network.peer_latency = 0;
  const double whole = AllToAllTime(network, {64, 1}, 1e9);
  network.direct_nic_share = 0.5;
  EXPECT_NEAR(AllToAllTime(network, {64, 1}, 1e9), 2 * whole, 1e-12);
}

// NCCL's own figures: of 16 MiB in Simple, 64 B · 2^18, a tree reaches 0.7; a ring is not asked.
TEST(CollectiveCost, ATreeReachesLessOfItsRateInTheMiddle) {
  EXPECT_EQ(TreeRateShare(Protocol::kSimple, 16 << 20), 0.7);
  EXPECT_EQ(TreeRateShare(Protocol::kSimple, 64), 0.9);
  EXPECT_EQ(TreeRateShare(Protocol::kLl, 63), 1);
  EXPECT_EQ(TreeRateShare(Protocol::kLl128, 0x1p40), 1);
  GroupNetwork network{.gpus_per_node = 8, .intra_rate = 200e9, .nic_rate = 50e9, .direct_intra_rate = 200e9};
  const auto time = [&] { return CollectiveTime(network, {64, 1}, Collective::kAllReduce, Algorithm::kTree, Protocol::kSimple, 16 << 20).value(); };
  const double plain = time();
  network.has_early = true;  // NCCL's
  EXPECT_NEAR(time(), plain / 0.7, 1e-12);
}

// All-to-all over all 128 ranks: 96 of 128 parts leave the leaf.
TEST(CollectiveCost, AllToAllPaysTheTierThatItsPartsCross) {
  EXPECT_DOUBLE_EQ(AllToAllTime(Network(1), {128, 1}, 128e6), 120e6 / 50e9) << "all but the node's own eight";
  EXPECT_DOUBLE_EQ(AllToAllTime(Network(0.25), {128, 1}, 128e6), 96e6 / 12.5e9);
  EXPECT_DOUBLE_EQ(ParameterServerTime(Network(0.25), {128, 1}, 128e6), 2 * 96e6 / 12.5e9);
}

// A neighbour eight ranks on: eight of a leaf's 32 GPUs send out of it.
TEST(CollectiveCost, FewNeighboursCrossABorder) {
  EXPECT_DOUBLE_EQ(SendTime(Network(0.25), {16, 8}, 1e6), 1e6 / 50e9);
  EXPECT_DOUBLE_EQ(SendTime(Network(0.125), {16, 8}, 1e6), 1e6 / 25e9);
  EXPECT_DOUBLE_EQ(SendTime(Network(0.125), {4, 32}, 1e6), 1e6 / 6.25e9);
  EXPECT_DOUBLE_EQ(SendTime(Network(0.125), {4, 8}, 1e6), 1e6 / 50e9) << "all in one leaf";
}

// Between two neighbours the message pays for what lies between them, whoever else sends.
TEST(CollectiveCost, AMessagePaysTheTiersBetweenItsEnds) {
  const GroupNetwork network = Network(0.125);  // nodes of 8, leaves of 32
  EXPECT_EQ(UnitsLeft(network, 0, 7), 0U);
  EXPECT_EQ(UnitsLeft(network, 7, 8), 1U);
  EXPECT_EQ(UnitsLeft(network, 16, 31), 1U);
  EXPECT_EQ(UnitsLeft(network, 32, 31), 2U);
  EXPECT_DOUBLE_EQ(SendTime(network, 8, 1, 1e6), 1e6 / 50e9);
  EXPECT_DOUBLE_EQ(SendTime(network, 8, 2, 1e6), 1e6 / 25e9) << "eight of a leaf's 32 GPUs send out of it";
  EXPECT_DOUBLE_EQ(SendTime(network, 64, 2, 1e6), 1e6 / 6.25e9) << "all of them";
  EXPECT_LT(SendTime(network, 1, 0, 1e6), 1e6 / 50e9) << "over NVLink";
}

// Groups of 24 in leaves of 32: some straddle a border, eight rings leave each leaf.
TEST(CollectiveCost, GroupsThatStraddleABorderPayForIt) {
  const Group group{3, 8};
  EXPECT_DOUBLE_EQ(GatherTime(Network(0.25), group, 3e6), 2e6 / 50e9) << "32 · 12.5 GB/s for eight rings";
  EXPECT_DOUBLE_EQ(GatherTime(Network(0.125), group, 3e6), 2e6 / 25e9);
  const int64_t units[] = {32, 128};
  EXPECT_EQ(OutermostTier(Network(1), group, units), 2u);
}

// A tier that lets out what its NICs send costs nothing, and less never costs less.
TEST(CollectiveCost, NarrowerTiersNeverCostLess) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    GroupNetwork network = Network(1);
    network.intra_latency = 4e-6;
    network.nic_latency = 12e-6;
    GroupNetwork plain = network, narrow = network;
    plain.tiers = 0;
    narrow.above[0].rate *= 0.01 * static_cast<double>(1 + random() % 100);
    const int64_t size = int64_t{1} << (random() % 8), stride = int64_t{1} << (random() % 8);
    const Group group{size, std::min(stride, int64_t{128} / size)};
    const double bytes = static_cast<double>(1 + random() % 100'000'000);
    using Time = double (*)(const GroupNetwork&, const Group&, double);
    const Time exchange = [](const GroupNetwork& n, const Group& g, double held) { return AllToAllTime(n, g, held); };
    const Time all[] = {AllReduceTime, GatherTime, HierarchicalAllReduceTime, ParameterServerTime, exchange};
    for (const auto& time : all) {
      EXPECT_DOUBLE_EQ(time(network, group, bytes), time(plain, group, bytes)) << size << " " << group.stride;
      EXPECT_LE(time(network, group, bytes), time(narrow, group, bytes)) << size << " " << group.stride;
    }
    EXPECT_LE(SendTime(network, group, bytes), SendTime(narrow, group, bytes));
    EXPECT_LE(RingStepTime(network, group, bytes), RingStepTime(narrow, group, bytes));
  }
}

/// As NCCL has it on 16 hosts of 8 H100, 360 GB/s inside.
GroupNetwork Nccl() {
  GroupNetwork network{.gpus_per_node = 8, .intra_rate = 360e9, .nic_rate = 41e9, .intra_latency = 4e-6, .nic_latency = 14e-6,
                       .direct_intra_rate = 360e9, .start = 8.4e-6, .has_early = true, .has_ll128 = true, .least_stretch = 1 / 0.92,
                       .switch_rate = 306e9, .switch_start = 25e-6};
  network.early[0] = {6.6e-6, 0.6e-6, 5e-6, 2, {1 / 141e9, 1 / 39e9, 1 / 20.4e9}};
  network.early[1] = {14e-6, 1.9e-6, 8.5e-6, 1 / 0.92, {}};
  return network;
}

// What the search asks is the least of all algorithms and protocols, and the name that it prints is of that one.
TEST(CollectiveCost, TheLibrarysChoiceIsTheLeastOfAllCells) {
  const GroupNetwork network = Nccl();
  for (const Group group : {Group{2, 1}, {8, 1}, {16, 1}, {128, 1}, {4, 8}, {2, 8}, {16, 4}}) {
    for (double bytes = 8; bytes < 1e10; bytes *= 3) {
      for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast}) {
        double least = 1e300;
        Algorithm fastest = Algorithm::kRing;
        for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree, Algorithm::kNvls, Algorithm::kNvlsTree}) {
          for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
            const auto time = CollectiveTime(network, group, collective, algorithm, protocol, bytes);
            if (time && *time < least) least = *time, fastest = algorithm;
          }
        }
        EXPECT_NEAR(CollectiveTime(network, group, collective, bytes) / least, 1, 1e-12) << group.size << " " << bytes;
        if (collective != Collective::kAllReduce) continue;
        EXPECT_EQ(AllReduceAlgorithm(network, group, bytes), fastest) << group.size << " " << group.stride << " " << bytes;
      }
    }
  }
}

// Eight bytes around a node: 14 steps of LL behind its start. 64 KiB: LL sends them twice.
TEST(CollectiveCost, SmallMessagesGoByFlags) {
  EXPECT_NEAR(AllReduceTime(Nccl(), {8, 1}, 8), 6.6e-6 + 14 * 0.6e-6, 1e-9);
  EXPECT_NEAR(AllReduceTime(Nccl(), {8, 1}, 65536), 6.6e-6 + 14 * 0.6e-6 + 1.75 * 65536 / 141e9, 1e-9);
}

// 8 GiB: each GPU's link carries 9/8 of it at 306 GB/s; over two nodes no more, as eight NICs of 41 GB/s carry it once.
TEST(CollectiveCost, TheSwitchSumsLargeMessages) {
  const double bytes = 0x1p33, seconds = 25e-6 + (bytes + 3 * 0x1p24) * 1.125 / 306e9;
  EXPECT_NEAR(AllReduceTime(Nccl(), {8, 1}, bytes), seconds, 1e-9);
  EXPECT_EQ(AllReduceAlgorithm(Nccl(), {16, 1}, bytes), Algorithm::kNvlsTree);
  EXPECT_NEAR(AllReduceTime(Nccl(), {16, 1}, bytes), seconds + 2 * 14e-6, 1e-9);
  EXPECT_FALSE(CollectiveTime(Nccl(), {4, 8}, Collective::kAllReduce, Algorithm::kNvlsTree, Protocol::kSimple, bytes)) << "one rank per node";
}

// A runtime with one ring leaves a node by one NIC.
TEST(CollectiveCost, ASingleRingLeavesByOneNic) {
  GroupNetwork network = Network(1);
  EXPECT_DOUBLE_EQ(GatherTime(network, {16, 1}, 16e9), 15e9 / 200e9);
  network.single_ring = true;
  EXPECT_DOUBLE_EQ(GatherTime(network, {16, 1}, 16e9), 15e9 / 50e9);
}

TEST(CollectiveCost, TheTierThatHoldsAGroup) {
  const GroupNetwork network = Network(1);
  const int64_t units[] = {32, 128};
  EXPECT_EQ(OutermostTier(network, {8, 1}, units), 0u);
  EXPECT_EQ(OutermostTier(network, {4, 8}, units), 1u);
  EXPECT_EQ(OutermostTier(network, {4, 32}, units), 2u);
  EXPECT_EQ(OutermostTier(network, {2, 128}, units), 2u) << "the last has all";
}

}  // namespace
}  // namespace weft::planner::collectives

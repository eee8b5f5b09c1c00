#include "planner/collectives/nccl_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::planner::inline collectives {
namespace {

using namespace literals;

// The figures are worked out by hand from the formulae: NIC latency 0, Intel unless named, multicast off, one NIC per GPU.
NcclGraph H100(int32_t nodes) {
  return {.generation = GpuGeneration::kHopper, .ranks = 8 * nodes, .nodes = nodes, .channels = 8, .inside_gbs = 45,
          .across_gbs = 45, .nvswitch = true, .communicator_channels = 16};
}
NcclGraph A100() {
  return {.generation = GpuGeneration::kAmpere, .ranks = 16, .nodes = 2, .channels = 8, .inside_gbs = 24,
          .across_gbs = 24, .nvswitch = true, .amd_cpu = true, .communicator_channels = 16};
}
NcclGraph OneGpuPerNode() {
  return {.generation = GpuGeneration::kAmpere, .ranks = 4, .nodes = 4, .channels = 1, .inside_gbs = 12,
          .across_gbs = 12, .nvlink = false, .communicator_channels = 2};
}

struct Cell {
  double latency, bandwidth;
};

Cell Entry(const NcclGraph& graph, Collective collective, Algorithm algorithm, Protocol protocol) {
  for (const NcclEntry& entry : NcclTable(graph, collective, 1_MiB)) {
    if (entry.algorithm == algorithm && entry.protocol == protocol) return {entry.latency_us, entry.bandwidth_gbs};
  }
  return {-1, -1};
}

void ExpectCells(const NcclGraph& graph, Collective collective, Algorithm algorithm,
                 const std::array<Cell, 3>& expected) {
  for (const auto protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
    const Cell cell = Entry(graph, collective, algorithm, protocol);
    const Cell& want = expected[static_cast<size_t>(protocol)];
    EXPECT_NEAR(cell.latency, want.latency, 0.051) << NcclAlgorithmName(algorithm) << NcclProtocolName(protocol);
    EXPECT_NEAR(cell.bandwidth, want.bandwidth, 0.051) << NcclAlgorithmName(algorithm) << NcclProtocolName(protocol);
  }
}

/// "Tree LL 30.8"
std::string Winner(const NcclGraph& graph, Collective collective, Bytes bytes) {
  const NcclEntry best = NcclTable(graph, collective, bytes).front();
  return fmt::format("{} {} {:.1f}", NcclAlgorithmName(best.algorithm), NcclProtocolName(best.protocol),
                     1e6 * best.time.count());
}

TEST(NcclModel, TwoNodesOfEightH100) {
  ExpectCells(H100(2), Collective::kAllReduce, Algorithm::kTree, {{{25.2, 19.5}, {48.5, 146.8}, {92.4, 165.6}}});
  ExpectCells(H100(2), Collective::kAllReduce, Algorithm::kRing, {{{40.0, 20.8}, {75.2, 156.6}, {131.6, 192.0}}});
  EXPECT_EQ(Winner(H100(2), Collective::kAllReduce, 64_KiB), "Tree LL 30.8");
  EXPECT_EQ(Winner(H100(2), Collective::kAllReduce, 1_MiB), "Tree LL128 60.4");
  EXPECT_EQ(Winner(H100(2), Collective::kAllReduce, 16_MiB), "Tree LL128 175.5");
  EXPECT_EQ(Winner(H100(2), Collective::kAllReduce, 64_MiB), "Ring LL128 503.8");
  EXPECT_EQ(Winner(H100(2), Collective::kAllReduce, 1_GiB), "Ring Simple 5776.6");
}

TEST(NcclModel, FourNodesOfEightH100) {
  ExpectCells(H100(4), Collective::kAllReduce, Algorithm::kTree, {{{35.2, 10.2}, {65.5, 116.0}, {120.4, 144.0}}});
  ExpectCells(H100(4), Collective::kAllReduce, Algorithm::kRing, {{{78.8, 10.5}, {144.4, 151.5}, {282.8, 185.8}}});
  EXPECT_EQ(Winner(H100(4), Collective::kAllReduce, 64_KiB), "Tree LL 45.9");
  EXPECT_EQ(Winner(H100(4), Collective::kAllReduce, 16_MiB), "Tree LL128 226.2");
  EXPECT_EQ(Winner(H100(4), Collective::kAllReduce, 64_MiB), "Ring LL128 587.3");
  EXPECT_EQ(Winner(H100(4), Collective::kAllReduce, 1_GiB), "Ring Simple 6174.7");
}

TEST(NcclModel, TwoNodesOfEightA100WithAmdCpus) {
  ExpectCells(A100(), Collective::kAllReduce, Algorithm::kTree, {{{25.2, 11.2}, {48.5, 80.0}, {92.4, 88.3}}});
  ExpectCells(A100(), Collective::kAllReduce, Algorithm::kRing, {{{68.0, 12.0}, {78.0, 85.3}, {204.4, 102.4}}});
  EXPECT_EQ(Winner(A100(), Collective::kAllReduce, 64_KiB), "Tree LL 34.9");
  EXPECT_EQ(Winner(A100(), Collective::kAllReduce, 4_MiB), "Tree LL128 114.0");
  EXPECT_EQ(Winner(A100(), Collective::kAllReduce, 64_MiB), "Ring LL128 864.4");
  EXPECT_EQ(Winner(A100(), Collective::kAllReduce, 1_GiB), "Ring Simple 10771.9");
}

TEST(NcclModel, AllGatherOfTwoNodesOfEightH100) {
  ExpectCells(H100(2), Collective::kAllGather, Algorithm::kRing, {{{23.3, 41.6}, {44.6, 313.2}, {70.0, 384.0}}});
  EXPECT_EQ(Winner(H100(2), Collective::kAllGather, 64_KiB), "Ring LL 24.9");
  EXPECT_EQ(Winner(H100(2), Collective::kAllGather, 4_MiB), "Ring LL128 58.0");
  EXPECT_EQ(Winner(H100(2), Collective::kAllGather, 64_MiB), "Ring Simple 244.8");
}

TEST(NcclModel, FourNodesOfOneGpu) {
  ExpectCells(OneGpuPerNode(), Collective::kAllReduce, Algorithm::kTree, {{{26.8, 1.2}, {48.0, 4.4}, {64.4, 4.7}}});
  ExpectCells(OneGpuPerNode(), Collective::kAllReduce, Algorithm::kRing, {{{36.6, 4.0}, {65.0, 7.4}, {92.4, 8.0}}});
  EXPECT_EQ(Winner(OneGpuPerNode(), Collective::kAllReduce, 1_KiB), "Tree LL 27.7");
  EXPECT_EQ(Winner(OneGpuPerNode(), Collective::kAllReduce, 64_KiB), "Ring LL 53.0");
  EXPECT_EQ(Winner(OneGpuPerNode(), Collective::kAllReduce, 1_MiB), "Ring LL128 207.5");
  EXPECT_EQ(Winner(OneGpuPerNode(), Collective::kAllReduce, 64_MiB), "Ring Simple 8518.0");
}

TEST(NcclModel, ChannelsAreThoseOfTheCheckedGraphs) {
  const ChannelSpeed h100 = ChannelsOf(GpuGeneration::kHopper, 8, 8, GigabitsPerSecond(400));
  EXPECT_EQ(h100.channels, 8);
  EXPECT_EQ(h100.across_gbs, 48);  // a log may show 45: the search stops where NVLink is shared
  const ChannelSpeed a100 = ChannelsOf(GpuGeneration::kAmpere, 8, 8, GigabitsPerSecond(200));
  EXPECT_EQ(a100.channels, 8);
  EXPECT_EQ(a100.across_gbs, 24);
  const ChannelSpeed one = ChannelsOf(GpuGeneration::kHopper, 1, 1, GigabitsPerSecond(400));
  EXPECT_EQ(one.channels, 2);
  EXPECT_EQ(one.across_gbs, 24);
}

TEST(NcclModel, SmallMessagesUseFewerChannels) {
  const NcclGraph graph = H100(2);
  const NcclEntry simple{Algorithm::kRing, Protocol::kSimple};
  EXPECT_EQ(NcclChannels(graph, simple, 1_GiB), 16);
  EXPECT_EQ(NcclChannels(graph, simple, 64_KiB), 2);  // 512 threads · 64 bytes each
  EXPECT_EQ(NcclChannels(graph, {Algorithm::kTree, Protocol::kLl}, 8_KiB), 2);
}

TEST(NcclModel, MulticastIsACandidateOnlyWhereTheSwitchHasIt) {
  NcclGraph graph = H100(1);
  const auto has = [&](Algorithm algorithm) {
    return Entry(graph, Collective::kAllReduce, algorithm, Protocol::kSimple).bandwidth > 0;
  };
  EXPECT_FALSE(has(Algorithm::kNvls));
  graph.nvls = true;
  EXPECT_TRUE(has(Algorithm::kNvls));
  EXPECT_FALSE(has(Algorithm::kNvlsTree));
  graph.generation = GpuGeneration::kAmpere;
  EXPECT_FALSE(has(Algorithm::kNvls));
  EXPECT_TRUE(NcclTable(graph, Collective::kAllToAll, 1_MiB).empty());
}

}  // namespace
}  // namespace weft::planner::collectives

#include "planner/fabric/cluster_spec.h"

#include <gtest/gtest.h>


namespace weft::planner::inline fabric {
namespace {

TEST(ClusterSpec, PresetsHaveTheirNodesAndRates) {
  const ClusterSpec cluster = FindClusterPreset("dgx-a100", 384).value();
  EXPECT_EQ(cluster.nodes, 384);
  EXPECT_EQ(cluster.gpus_per_node, 8);
  EXPECT_EQ(cluster.TotalGpus(), 3072);
  EXPECT_EQ(cluster.device.name, "a100-80");
  EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 1.6e12);
  EXPECT_FALSE(FindClusterPreset("dgx-b900", 1));
  EXPECT_EQ(ClusterPresetNames(), "dgx-v100, dgx-a100, dgx-h100, dgx-h200, dgx-b200, gb200-nvl72");
}

TEST(ClusterSpec, ARackOfSeventyTwoIsOneNode) {
  const ClusterSpec cluster = FindClusterPreset("gb200-nvl72", 2).value();
  EXPECT_EQ(cluster.TotalGpus(), 144);
  EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 72 * 400e9);
  EXPECT_EQ(cluster.GpusPerHost(), 4);
}

TEST(ClusterSpec, AHomogeneousClusterIsOneGroup) {
  ClusterSpec cluster = FindClusterPreset("dgx-h100", 4).value();
  cluster.nodes = 3;  // as code that knows no groups changes it
  const std::vector<NodeGroup> groups = cluster.Groups();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_FALSE(cluster.heterogeneous());
  EXPECT_EQ(groups[0].gpus(), 24);
  EXPECT_EQ(groups[0].device.name, "h100-80");
  EXPECT_EQ(groups[0].nic_rate, cluster.nic_rate);
}

TEST(ClusterSpec, TheCommonFieldsAreWhatEveryNodeHas) {
  NodeGroup fast = FindClusterPreset("dgx-h100", 2)->Groups()[0], slow = FindClusterPreset("dgx-v100", 3)->Groups()[0];
  slow.gpus_per_node = 4;
  for (bool swapped : {false, true}) {
    const ClusterSpec cluster =
        MakeCluster("mixed", swapped ? std::vector{slow, fast} : std::vector{fast, slow}, 0.9);
    EXPECT_TRUE(cluster.heterogeneous());
    EXPECT_EQ(cluster.nodes, 5);
    EXPECT_EQ(cluster.gpus_per_node, 4);
    EXPECT_EQ(cluster.TotalGpus(), 2 * 8 + 3 * 4);
    EXPECT_EQ(cluster.Groups().size(), 2u);
    EXPECT_EQ(cluster.device.memory, Bytes(int64_t{32} << 30));
    EXPECT_DOUBLE_EQ(cluster.device.Peak(Precision::kBf16).value(), 125e12);
    EXPECT_DOUBLE_EQ(cluster.device.Peak(Precision::kFp8).value(), 125e12);
    EXPECT_DOUBLE_EQ(cluster.device.Peak(Precision::kFp32).value(), 15.7e12);
    EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 400e9);
    EXPECT_DOUBLE_EQ(cluster.intra_node_rate.value(), 150 * 8e9);
  }
}

}  // namespace
}  // namespace weft::planner::fabric

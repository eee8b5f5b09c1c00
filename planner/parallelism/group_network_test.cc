#include "planner/parallelism/group_network.h"

#include <gtest/gtest.h>

namespace weft::planner::inline parallelism {
namespace {

ClusterSpec Nodes(const char* preset) { return *FindClusterPreset(preset, 2); }

TEST(GroupNetwork, LinksGiveWhatTheirKindLeaves) {
  const GroupNetwork a100 = MakeGroupNetwork(Nodes("dgx-a100"), CollectiveLibrary::kNccl, Calibration());
  EXPECT_DOUBLE_EQ(a100.intra_rate, 0.8 * 300e9) << "twelve links of 20 GB/s";
  EXPECT_EQ(a100.switch_rate, 0) << "its switch does not sum";
  const GroupNetwork h100 = MakeGroupNetwork(Nodes("dgx-h100"), CollectiveLibrary::kNccl, Calibration());
  EXPECT_DOUBLE_EQ(h100.intra_rate, 18 * 20.6e9);
  EXPECT_DOUBLE_EQ(h100.switch_rate, 0.85 * 18 * 20.6e9);
  EXPECT_EQ(LinkKindOf(Nodes("gb200-nvl72")), "nvl72");
  EXPECT_EQ(LinkKindOf(Nodes("dgx-v100")), "nvlink2");
}

// Sixteen ports of 100 Gbit/s for eight GPUs are two each; four NICs of 400 for one GPU meet its slot.
TEST(GroupNetwork, SeveralNicsOfAGpuShareItsSlot) {
  const Calibration calibration;
  const double goodput = calibration.Get("link.nic", "efficiency");
  ClusterSpec cluster = Nodes("dgx-a100");
  cluster.nic_rate = GigabitsPerSecond(16 * 100);
  EXPECT_DOUBLE_EQ(MakeGroupNetwork(cluster, CollectiveLibrary::kNccl, calibration).nic_rate, goodput * 25e9);
  cluster = Nodes("dgx-h100");
  cluster.gpus_per_node = 1;
  cluster.nic_rate = GigabitsPerSecond(4 * 400);
  EXPECT_DOUBLE_EQ(MakeGroupNetwork(cluster, CollectiveLibrary::kNccl, calibration).nic_rate, 0.762 * 63e9);
  cluster.gpus_per_node = 8;
  cluster.nic_rate = GigabitsPerSecond(2 * 400);
  cluster.nics_per_node = 2;
  EXPECT_DOUBLE_EQ(MakeGroupNetwork(cluster, CollectiveLibrary::kNccl, calibration).nic_rate,
                   goodput * calibration.Get("link.nic", "shared") * 12.5e9) << "four GPUs to a NIC";
}

// Where their number is known a GPU's rings leave by one NIC, unless EFA's plugin makes one of several.
TEST(GroupNetwork, SpareNicsIdleButThoseOfEfa) {
  const Calibration calibration;
  const double goodput = calibration.Get("link.nic", "efficiency");
  ClusterSpec cluster = Nodes("dgx-a100");
  cluster.nic_rate = GigabitsPerSecond(16 * 100);
  cluster.nics_per_node = 16;
  EXPECT_DOUBLE_EQ(MakeGroupNetwork(cluster, CollectiveLibrary::kNccl, calibration).nic_rate, goodput * 12.5e9);
  cluster.nic_kind = NicKind::kEfa;
  const GroupNetwork efa = MakeGroupNetwork(cluster, CollectiveLibrary::kNccl, calibration);
  EXPECT_DOUBLE_EQ(efa.nic_rate, calibration.Get("link.nic.efa", "efficiency") * 25e9);
  EXPECT_GT(efa.nic_latency, MakeGroupNetwork(Nodes("dgx-a100"), CollectiveLibrary::kNccl, calibration).nic_latency);
  cluster.nics_per_node = 4;
  cluster.nic_rate = GigabitsPerSecond(4 * 400);
  EXPECT_TRUE(cluster.SharesNics()) << "200 Gbit/s for each GPU, and two to a NIC";
  EXPECT_LT(MakeGroupNetwork(cluster, CollectiveLibrary::kNccl, calibration).direct_nic_share, 1);
  EXPECT_EQ(efa.direct_nic_share, 1);
}

// A NIC of less than 100 Gbit/s is one of several GPUs, where there are several.
TEST(GroupNetwork, TheOnlyGpuOfANodeSharesItsNicWithNobody) {
  ClusterSpec cluster = Nodes("dgx-a100");
  cluster.gpus_per_node = 1;
  cluster.nic_rate = BitsPerSecond(60e6);
  const GroupNetwork network = MakeGroupNetwork(cluster, CollectiveLibrary::kWeft, Calibration());
  EXPECT_DOUBLE_EQ(network.nic_rate, 60e6 / 8 * Calibration().Get("link.nic", "efficiency"));
}

TEST(GroupNetwork, OurOwnRuntimeHasOneRingAndNoProtocols) {
  const GroupNetwork own = MakeGroupNetwork(Nodes("dgx-h100"), CollectiveLibrary::kWeft, Calibration());
  EXPECT_TRUE(own.single_ring);
  EXPECT_FALSE(own.has_early);
  EXPECT_EQ(own.start, 0);
  EXPECT_EQ(own.switch_rate, 0);
}

}  // namespace
}  // namespace weft::planner::parallelism

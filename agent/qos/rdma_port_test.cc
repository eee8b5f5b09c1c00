#include "agent/qos/rdma_port.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Files laid out as a kernel with one RoCE device has them. tests/roce/qos_test.py reads a real one.
struct RdmaPorts : ::testing::Test {
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(dir.path + "/" + path).parent_path());
    std::ofstream(dir.path + "/" + path) << text << "\n";
  }
  void SetUp() override {
    const std::string port = "sys/class/infiniband/mlx5_0/ports/1/";
    Write(port + "link_layer", "Ethernet");
    Write(port + "gid_attrs/ndevs/0", "eth0");
    Write(port + "gid_attrs/ndevs/1", "eth0");
    Write(port + "gid_attrs/types/0", "IB/RoCE v1");
    Write(port + "gid_attrs/types/1", "RoCE v2");
    Write(port + "gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001");
    Write(port + "hw_counters/np_cnp_sent", "17");
    Write(port + "hw_counters/lifespan", "10");
    Write("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106");
    Write("sys/class/infiniband/ib0/ports/1/link_layer", "InfiniBand");
    Write("rdma_cm/mlx5_0/ports/1/default_roce_tos", "104");
  }
  TempDir dir;
  QosRoots roots{.sysfs = dir.path + "/sys", .rdma_cm = dir.path + "/rdma_cm"};
};

TEST_F(RdmaPorts, AreReadWithWhatIsSet) {
  const std::vector<RdmaPort> ports = ReadRdmaPorts(roots);
  ASSERT_EQ(ports.size(), 1u) << "InfiniBand has no DSCP";
  EXPECT_EQ(ports[0].device, "mlx5_0");
  EXPECT_EQ(ports[0].interface, "eth0");
  EXPECT_EQ(ports[0].roce_tos, 104);
  EXPECT_EQ(ports[0].forced_class, 106);
  EXPECT_THAT(ports[0].gids, ElementsAre("1: ::ffff:10.0.0.1"));
  EXPECT_THAT(ports[0].counters, ElementsAre(Pair("np_cnp_sent", 17)));
  EXPECT_TRUE(fs::exists(roots.rdma_cm + "/mlx5_0")) << "a folder that somebody else made stays";
}

TEST_F(RdmaPorts, AreSet) {
  ASSERT_TRUE(SetRoceTos(roots, "mlx5_0", 1, 106));
  ASSERT_TRUE(SetForcedClass(roots, "mlx5_0", 1, 26));
  EXPECT_EQ(ReadRdmaPorts(roots)[0].roce_tos, 106);
}

TEST_F(RdmaPorts, WhatIsNotThereIsSaid) {
  roots.rdma_cm = dir.path + "/nothing";
  const RdmaPort port = ReadRdmaPorts(roots).at(0);
  EXPECT_FALSE(port.roce_tos);
  EXPECT_THAT(port.roce_tos_unreadable, HasSubstr("configfs is not mounted or rdma_cm not loaded"));
  EXPECT_EQ(SetRoceTos(roots, "mlx5_0", 1, 1).error().code(), Code::kNotFound);
  Write("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=none");
  EXPECT_FALSE(ReadRdmaPorts(roots).at(0).forced_class);
  roots.sysfs = dir.path + "/nothing";
  EXPECT_THAT(ReadRdmaPorts(roots), IsEmpty());
}

}  // namespace
}  // namespace weft::agent

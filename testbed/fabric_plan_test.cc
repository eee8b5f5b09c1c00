#include "testbed/fabric_plan.h"

#include <gmock/gmock.h>

#include <set>

namespace weft::testbed {
namespace {

using ::testing::HasSubstr;

FabricPlan MakePlan(FabricOptions options = {.id = "t"}, int slot = 7) {
  auto plan = FabricPlan::Make(options, slot);
  EXPECT_TRUE(plan.has_value()) << plan.error().message();
  return plan.value_or(FabricPlan{});
}

TEST(FabricPlan, HostsAreNumberedLeafByLeaf) {
  const FabricPlan plan = MakePlan();
  ASSERT_EQ(plan.hosts.size(), 8U);
  const FabricHost& h5 = plan.hosts[4];  // the first of leaf 2
  EXPECT_EQ(h5.name, "h5");
  EXPECT_EQ(h5.netns, "weft-t-h5");
  EXPECT_EQ(h5.leaf, "leaf2");
  EXPECT_EQ(h5.data_address, "10.2.1.2");
  EXPECT_EQ(h5.gateway, "10.2.1.1");
  EXPECT_EQ(h5.mgmt_address, "172.31.7.15");
  EXPECT_EQ(plan.mgmt_gateway, "172.31.7.1");
}

TEST(FabricPlan, SwitchesHaveIdentities) {
  const FabricPlan plan = MakePlan({.id = "t", .leaves = 3, .spines = 2});
  EXPECT_EQ(plan.leaves[2].identity, "10.255.1.3");
  EXPECT_EQ(plan.spines[1].identity, "10.255.2.2");
  EXPECT_EQ(plan.spines[1].netns, "weft-t-spine2");
}

TEST(FabricPlan, EveryCableIsTwoLinksSideBySide) {
  const FabricPlan plan = MakePlan();
  ASSERT_EQ(plan.cables.size(), 8U + 2 * 2);
  ASSERT_EQ(plan.links.size(), 2 * plan.cables.size());
  for (size_t i = 0; i < plan.cables.size(); ++i) {
    EXPECT_EQ(plan.links[2 * i].from, plan.cables[i].a.node);
    EXPECT_EQ(plan.links[2 * i].to, plan.cables[i].b.node);
    EXPECT_EQ(plan.links[2 * i + 1].from, plan.cables[i].b.node);
    EXPECT_EQ(plan.links[2 * i + 1].device, plan.cables[i].b.device);
  }
}

TEST(FabricPlan, NoAddressOrDeviceIsGivenTwice) {
  const FabricPlan plan = MakePlan({.id = "t", .leaves = 64, .spines = 64, .hosts_per_leaf = 3});
  std::set<std::string> addresses;
  std::set<std::pair<std::string, std::string>> devices;
  for (const Cable& cable : plan.cables) {
    for (const CableEnd* end : {&cable.a, &cable.b}) {
      EXPECT_TRUE(addresses.insert(end->address).second) << end->address;
      EXPECT_TRUE(devices.emplace(end->netns, end->device).second) << end->netns << " " << end->device;
      EXPECT_LE(end->device.size(), 15U) << end->device;  // IFNAMSIZ less the final zero
    }
  }
  for (const FabricHost& host : plan.hosts) {
    EXPECT_TRUE(addresses.insert(host.mgmt_address).second) << host.mgmt_address;
    EXPECT_LE(plan.BridgePort(host).size(), 15U) << plan.BridgePort(host);
  }
}

TEST(FabricPlan, TiersMayHaveRatesOfTheirOwn) {
  const FabricPlan plan = MakePlan({.id = "t",
                                    .link_rate = MegabitsPerSecond(100),
                                    .host_link_rate = MegabitsPerSecond(50)});
  EXPECT_EQ(plan.links.front().rate, MegabitsPerSecond(50));
  EXPECT_EQ(plan.links.back().rate, MegabitsPerSecond(100));
}

TEST(FabricPlan, RefusesOptionsByNameValueAndRange) {
  const struct {
    FabricOptions options;
    const char* message;
  } cases[] = {
      {{.id = ""}, "fabric id \"\", must be 1 to 16 of a-z and 0-9"},
      {{.id = "a-b"}, "fabric id \"a-b\""},
      {{.id = "../../etc/x"}, "fabric id"},
      {{.id = "Lab"}, "fabric id \"Lab\""},
      {{.id = "abcdefghijklmnopq"}, "must be 1 to 16"},
      {{.id = "t", .leaves = 0}, "leaves 0, must be 1 to 64"},
      {{.id = "t", .spines = 65}, "spines 65, must be 1 to 64"},
      {{.id = "t", .hosts_per_leaf = -1}, "hosts per leaf -1"},
      {{.id = "t", .leaves = 61, .hosts_per_leaf = 4}, "244 hosts, must be at most 240"},
      {{.id = "t", .link_rate = BitsPerSecond(0)}, "link rate 0 bit/s, must be 8 kbit/s to 400 Gbit/s"},
      {{.id = "t", .spine_link_rate = GigabitsPerSecond(500)}, "spine link rate 5e+11 bit/s"},
  };
  for (const auto& one : cases) {
    const auto plan = FabricPlan::Make(one.options, 1);
    ASSERT_FALSE(plan.has_value()) << one.message;
    EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(plan.error().message(), HasSubstr(one.message));
  }
  const auto plan = FabricPlan::Make({.id = "t"}, 255);
  ASSERT_FALSE(plan.has_value());
  EXPECT_THAT(plan.error().message(), HasSubstr("slot 255, must be 1 to 254"));
}

}  // namespace
}  // namespace weft::testbed

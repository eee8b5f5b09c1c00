#include "testbed/fabric_scripts.h"

#include <gmock/gmock.h>

namespace weft::testbed {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FabricScripts : public ::testing::Test {
 protected:
  // Cables: h1-leaf1, h2-leaf2, leaf1-spine1, leaf1-spine2, leaf2-spine1, leaf2-spine2.
  FabricPlan plan_ = *FabricPlan::Make({.id = "t", .hosts_per_leaf = 1}, 7);
  std::vector<CableState> cables_ = std::vector<CableState>(plan_.cables.size());
};

TEST_F(FabricScripts, ALeafSpreadsOverAllSpines) {
  EXPECT_THAT(RouteScript(plan_, "leaf1", cables_),
              HasSubstr("route replace 10.2.0.0/16 src 10.255.1.1 nexthop via 10.254.1.1 nexthop via 10.254.1.3\n"));
}

TEST_F(FabricScripts, EveryRouteOfASwitchNamesItsIdentity) {
  for (const auto& [node, identity] : {std::pair("leaf2", "src 10.255.1.2"), std::pair("spine1", "src 10.255.2.1")}) {
    std::string script = RouteScript(plan_, node, cables_);
    ASSERT_FALSE(script.empty());
    for (size_t end; (end = script.find('\n')) != std::string::npos; script.erase(0, end + 1)) {
      EXPECT_THAT(script.substr(0, end), HasSubstr(identity));
    }
    EXPECT_THAT(AddressScript(plan_, node), HasSubstr("noprefixroute"));  // no connected routes besides these
  }
}

TEST_F(FabricScripts, AFarCableThatIsDownIsAvoidedOnceItIsKnown) {
  const std::string both = "10.2.0.0/16 src 10.255.1.1 nexthop via 10.254.1.1 nexthop via 10.254.1.3\n";
  cables_[5] = {.up = false, .known = false};  // leaf2-spine2, as static routing sees it from leaf1: not at all
  EXPECT_THAT(RouteScript(plan_, "leaf1", cables_), HasSubstr(both));
  cables_[5].known = true;
  EXPECT_THAT(RouteScript(plan_, "leaf1", cables_), HasSubstr("10.2.0.0/16 src 10.255.1.1 nexthop via 10.254.1.1\n"));
}

TEST_F(FabricScripts, ANearCableThatIsDownIsNeverUsed) {
  cables_[2] = {.up = false, .known = false};  // leaf1-spine1
  const std::string script = RouteScript(plan_, "leaf1", cables_);
  EXPECT_THAT(script, HasSubstr("10.2.0.0/16 src 10.255.1.1 nexthop via 10.254.1.3\n"));
  EXPECT_THAT(script, HasSubstr("route replace unreachable 10.255.2.1/32\n"));
  EXPECT_THAT(script, Not(HasSubstr("dev spine1")));
}

TEST_F(FabricScripts, WithoutAnyCableAPrefixIsUnreachable) {
  cables_[2] = cables_[3] = {.up = false, .known = true};
  EXPECT_THAT(RouteScript(plan_, "leaf1", cables_), HasSubstr("route replace unreachable 10.2.0.0/16\n"));
  EXPECT_THAT(RouteScript(plan_, "spine2", cables_), HasSubstr("route replace unreachable 10.1.0.0/16\n"));
}

TEST_F(FabricScripts, PortsHaveTheClassesOfTheSiteWithTheirShares) {
  plan_.options.classes = {{46, 60}, {26, 30}, {0, 10}};
  const std::string script = ShapingScript(plan_, "leaf1");
  EXPECT_THAT(script, HasSubstr("qdisc add dev spine2 root handle 1: htb default 30\n"));
  EXPECT_THAT(script, HasSubstr("classid 1:10 htb prio 0 rate 120000000bit ceil 200000000bit"));
  EXPECT_THAT(script, HasSubstr("classid 1:20 htb prio 1 rate 60000000bit ceil 200000000bit"));
  EXPECT_THAT(script, HasSubstr("classid 1:30 htb prio 2 rate 20000000bit ceil 200000000bit"));
  EXPECT_THAT(script, HasSubstr("match ip dsfield 0xb8 0xfc classid 1:10\n"));
  EXPECT_THAT(script, HasSubstr("match ip dsfield 0x68 0xfc classid 1:20\n"));
}

TEST_F(FabricScripts, PortsHaveTwoPrioritiesUnderOneRate) {
  const std::string script = ShapingScript(plan_, "leaf1");
  EXPECT_THAT(script, HasSubstr("qdisc add dev spine2 root handle 1: htb default 20\n"));
  EXPECT_THAT(script, HasSubstr("class add dev spine2 parent 1: classid 1:1 htb rate 200000000bit ceil 200000000bit"));
  EXPECT_THAT(script, HasSubstr("classid 1:10 htb prio 0 rate 1000000bit ceil 200000000bit"));
  EXPECT_THAT(script, HasSubstr("classid 1:20 htb prio 1 rate 1000000bit ceil 200000000bit"));
  EXPECT_THAT(script, HasSubstr("match ip dsfield 0x68 0xfc classid 1:10\n"));
  EXPECT_THAT(script, Not(HasSubstr("1:30")));
  EXPECT_THAT(ShapingScript(plan_, "h1"), HasSubstr("dev eth0"));          // hosts' own ports too
  EXPECT_THAT(ShapingScript(plan_, "h1"), Not(HasSubstr("mgmt0")));        // management is never shaped
}

TEST_F(FabricScripts, HostsSendNoSuperPacketThatAPortHoldsForLong) {
  EXPECT_THAT(AddressScript(plan_, "h1"), HasSubstr("link set eth0 gso_max_size 65536\n"));  // 2.6 ms of 200 Mbit/s
  EXPECT_THAT(AddressScript(plan_, "leaf1"), Not(HasSubstr("gso_max_size")));
  plan_.links[2].rate = BitsPerSecond(25e6);
  EXPECT_THAT(AddressScript(plan_, "h1"), HasSubstr("link set eth0 gso_max_size 13012\n"));  // 4 ms
  plan_.links[3].rate = BitsPerSecond(1e6);  // the slowest counts, two segments at least
  EXPECT_THAT(AddressScript(plan_, "h1"), HasSubstr("link set eth0 gso_max_size 3512\n"));
}

TEST_F(FabricScripts, AFinerGrainLetsNoMessagePassAtOnce) {
  plan_.options.grain = Seconds(250e-6);
  EXPECT_THAT(AddressScript(plan_, "h1"), HasSubstr("link set eth0 gso_max_size 6762\n"));  // 250 us of 200 Mbit/s, and headers
  EXPECT_THAT(ShapingScript(plan_, "h1"), HasSubstr("burst 6250 cburst 6250"));
}

TEST_F(FabricScripts, APortHoldsWhatTheOptionSays) {
  EXPECT_THAT(ShapingScript(plan_, "h1"), HasSubstr("bfifo limit 1500000\n"));  // 60 ms of 200 Mbit/s
  plan_.options.queue = Bytes(32 << 10);
  EXPECT_THAT(ShapingScript(plan_, "h1"), HasSubstr("bfifo limit 32768\n"));
}

TEST_F(FabricScripts, FairPortsHaveAQueueForEachFlowInEachClass) {
  plan_.options.fair = true;
  const std::string own = ShapingScript(plan_, "h1");
  EXPECT_THAT(own, HasSubstr("class add dev eth0 parent 1:20 classid 1:2001 htb prio 1"));
  EXPECT_THAT(own, HasSubstr("qdisc add dev eth0 parent 1:20ff handle 20ff: bfifo"));
  EXPECT_THAT(own, Not(HasSubstr("parent 1:20 handle"))) << "classes themselves hold nothing";
  EXPECT_THAT(own, HasSubstr("htb default 2000\n"));
  EXPECT_THAT(own, HasSubstr("prio 1 handle 1: u32 divisor 256\n"));
  EXPECT_THAT(own, HasSubstr("prio 1 u32 ht 1:ff: match u32 0 0 classid 1:10ff\n"));
  EXPECT_THAT(own, HasSubstr("prio 1 u32 match ip dsfield 0x68 0xfc hashkey mask 0x01fe0000 at 20 link 1:\n"));
  EXPECT_THAT(own, HasSubstr("prio 2 u32 match u32 0 0 hashkey mask 0x01fe0000 at 20 link 2:\n"));
}

TEST_F(FabricScripts, OnlySwitchesForwardAndOnlyAGivenSeedIsSet) {
  const auto has = [&](std::string_view node, const std::string& path) {
    for (const auto& setting : Sysctls(plan_, node)) {
      if (setting.first == path) return true;
    }
    return false;
  };
  EXPECT_TRUE(has("spine1", "net/ipv4/ip_forward"));
  EXPECT_FALSE(has("h1", "net/ipv4/ip_forward"));
  EXPECT_FALSE(has("leaf1", "net/ipv4/fib_multipath_hash_seed"));
  plan_.options.hash_seed = 5;
  EXPECT_TRUE(has("leaf1", "net/ipv4/fib_multipath_hash_seed"));
}

}  // namespace
}  // namespace weft::testbed

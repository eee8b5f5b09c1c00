// Settings as a port of a real NIC would have them, against a declaration; untested on hardware.
#include "agent/qos/drift.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::QosDeclaration Declaration() {
  v1::QosDeclaration declared;
  declared.set_roce_tos(106);
  const int values[][4] = {{26, 3, 60, 1}, {10, 1, 30, 0}, {0, 0, 10, 0}};
  for (const auto& [dscp, priority, share, lossless] : values) {
    v1::QosClass* entry = declared.add_classes();
    entry->set_dscp(dscp);
    entry->set_priority(priority);
    entry->set_share(share);
    entry->set_lossless(lossless != 0);
  }
  return declared;
}

/// As a NIC comes from its maker: everything strict, nothing paused, PCP trusted.
PortSettings NewPort() {
  PortSettings port{.interface = "eth0", .addresses = {"10.0.0.1"}, .mtu = 1500};
  port.dcb.emplace();
  port.dcb->pfc = ieee_pfc{.pfc_cap = 8};
  port.dcb->ets = ieee_ets{.ets_cap = 8};
  for (int i = 0; i < kPriorities; ++i) port.dcb->ets->prio_tc[i] = static_cast<uint8_t>(i);
  port.rdma = {{.device = "mlx5_0", .port = 1, .interface = "eth0", .roce_tos = 0, .gids = {"3: ::ffff:10.0.0.1"}}};
  return port;
}

std::vector<std::string> Settings(const std::vector<v1::QosDrift>& drifts) {
  std::vector<std::string> names;
  for (const v1::QosDrift& drift : drifts) names.push_back(drift.setting());
  return names;
}

/// The port after the kernel did what `change` says.
PortSettings After(PortSettings port, const PortChange& change) {
  for (const DcbApp& app : change.dcb.remove) port.dcb->apps.erase(app);
  port.dcb->apps.insert(change.dcb.add.begin(), change.dcb.add.end());
  if (change.dcb.ets) port.dcb->ets = change.dcb.ets;
  if (change.dcb.pfc) port.dcb->pfc = change.dcb.pfc;
  if (change.dcb.trust) port.dcb->trust = change.dcb.trust;
  for (const auto& number : change.roce_tos) port.rdma[0].roce_tos = number.value;
  for (const auto& number : change.forced_class) port.rdma[0].forced_class = number.value;
  return port;
}

TEST(QosDrift, NamesEachSettingWithTheCommandsThatMendIt) {
  const auto drifts = FindDrifts(Declaration(), NewPort());
  ASSERT_THAT(Settings(drifts), ElementsAre("trust", "dscp-priority", "dscp-priority", "dscp-priority", "pfc", "ets", "roce-tos"));
  EXPECT_THAT(drifts[0].mlnx_commands(), ElementsAre("mlnx_qos -i eth0 --trust dscp"));
  EXPECT_EQ(drifts[1].is(), "DSCP 26 has no priority");
  EXPECT_THAT(drifts[1].commands(), ElementsAre("dcb app replace dev eth0 dscp-prio 26:3"));
  EXPECT_THAT(drifts[1].mlnx_commands(), ElementsAre("mlnx_qos -i eth0 --dscp2prio set,26,3"));
  EXPECT_EQ(drifts[4].is(), "off");
  EXPECT_EQ(drifts[4].expected(), "priorities 3");
  EXPECT_THAT(drifts[4].commands(), ElementsAre("dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off"));
  EXPECT_THAT(drifts[4].mlnx_commands(), ElementsAre("mlnx_qos -i eth0 --pfc 0,0,0,1,0,0,0,0"));
  EXPECT_THAT(drifts[5].mlnx_commands(),
              ElementsAre("mlnx_qos -i eth0 --prio_tc 0,1,0,3,0,0,0,0 --tsa ets,ets,strict,ets,strict,strict,strict,strict "
                                                     "--tcbw 10,30,0,60,0,0,0,0"));
  EXPECT_THAT(drifts[6].commands(), ElementsAre("cma_roce_tos -d mlx5_0 -p 1 -t 106"));
  for (const v1::QosDrift& drift : drifts) EXPECT_TRUE(drift.mendable()) << drift.setting();
}

TEST(QosDrift, WhatIsMendedHasNoDriftLeft) {
  for (const bool has_trust_table : {false, true}) {
    PortSettings port = NewPort();
    if (has_trust_table) port.dcb->trust = {255};
    port.rdma[0].forced_class = 0;
    port.dcb->apps = {{5, 6, 26}, {5, 2, 46}};
    const PortSettings mended = After(port, MendingChange(Declaration(), port));
    EXPECT_THAT(Settings(FindDrifts(Declaration(), mended)), IsEmpty());
    EXPECT_TRUE(MendingChange(Declaration(), mended).empty());
    EXPECT_TRUE(mended.dcb->apps.contains({5, 2, 46})) << "a DSCP that nobody declared stays";
    EXPECT_FALSE(mended.dcb->apps.contains({5, 6, 26}));
    const auto& shares = mended.dcb->ets->tc_tx_bw;
    EXPECT_EQ(std::accumulate(std::begin(shares), std::end(shares), 0), 100);
  }
}

TEST(QosDrift, ShareMayBeInAnyTrafficClassOfItsOwn) {
  PortSettings port = NewPort();
  port = After(port, MendingChange(Declaration(), port));
  std::swap(port.dcb->ets->prio_tc[3], port.dcb->ets->prio_tc[1]);
  std::swap(port.dcb->ets->tc_tx_bw[3], port.dcb->ets->tc_tx_bw[1]);
  EXPECT_THAT(Settings(FindDrifts(Declaration(), port)), IsEmpty());
  port.dcb->ets->prio_tc[0] = port.dcb->ets->prio_tc[3];
  EXPECT_THAT(Settings(FindDrifts(Declaration(), port)), ElementsAre("ets")) << "two priorities in one class share it";
}

TEST(QosDrift, ANicWithFewerClassesThanPrioritiesUsesThoseThatItHas) {
  PortSettings port = NewPort();
  port.dcb->ets->ets_cap = 3;
  const PortChange change = MendingChange(Declaration(), port);
  ASSERT_TRUE(change.dcb.ets);
  EXPECT_EQ(change.dcb.ets->prio_tc[3], 2);
  EXPECT_EQ(change.dcb.ets->tc_tx_bw[2], 60);
  EXPECT_THAT(Settings(FindDrifts(Declaration(), After(port, change))), IsEmpty());
}

TEST(QosDrift, LosslessBuffersAreNamedButLeftToPeople) {
  PortSettings port = NewPort();
  port = After(port, MendingChange(Declaration(), port));
  port.dcb->buffers = dcbnl_buffer{};
  const auto drifts = FindDrifts(Declaration(), port);
  ASSERT_THAT(Settings(drifts), ElementsAre("buffer"));
  EXPECT_FALSE(drifts[0].mendable());
  EXPECT_THAT(drifts[0].commands(), ElementsAre("dcb buffer set dev eth0 prio-buffer 3:1"));
  port.dcb->buffers->prio2buffer[3] = 1;
  EXPECT_THAT(Settings(FindDrifts(Declaration(), port)), IsEmpty());
}

TEST(QosDrift, WithoutAWordOnTheTosAnyDeclaredClassWillDo) {
  v1::QosDeclaration declared = Declaration();
  declared.set_roce_tos(-1);
  EXPECT_EQ(WantedRoceTos(declared, 106), 106);
  EXPECT_EQ(WantedRoceTos(declared, 40), 40);
  EXPECT_EQ(WantedRoceTos(declared, 32), 0) << "the default class's";
}

TEST(QosDrift, PortsWithoutDcbAreHeldToTheRest) {
  PortSettings port = NewPort();
  port.dcb.reset();
  port.mtu = 1500;
  port.addresses.push_back("10.0.9.9");
  port.sent = {{26, 90}, {8, 10}};
  v1::QosDeclaration declared = Declaration();
  declared.set_mtu(9000);
  const auto drifts = FindDrifts(declared, port);
  ASSERT_THAT(Settings(drifts), ElementsAre("roce-tos", "gid", "mtu", "packets"));
  EXPECT_EQ(drifts[1].is(), "mlx5_0 has no RoCE v2 GID of 10.0.9.9");
  EXPECT_EQ(drifts[3].is(), "10 of 100 sampled packets of flows carry DSCP 8");
  const PortChange change = MendingChange(declared, port);
  EXPECT_TRUE(change.dcb.empty());
  ASSERT_EQ(change.roce_tos.size(), 1u);
}

TEST(QosDrift, WhatAControllerMustNotDeclareIsRefused) {
  const auto refused = [](auto change) {
    v1::QosDeclaration declared = Declaration();
    change(declared);
    const Status status = CheckDeclaration(declared);
    return status ? "" : status.error().message();
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_THAT(refused([](auto& d) { d.mutable_classes(0)->set_dscp(64); }), HasSubstr("DSCP 64"));
  EXPECT_THAT(refused([](auto& d) { d.mutable_classes(0)->set_dscp(0); }), HasSubstr("each once"));
  EXPECT_THAT(refused([](auto& d) { d.mutable_classes(0)->set_priority(8); }), HasSubstr("priority 8"));
  EXPECT_THAT(refused([](auto& d) { d.mutable_classes(0)->set_share(61); }), HasSubstr("shares come to 101"));
  EXPECT_THAT(refused([](auto& d) { d.mutable_classes(0)->set_share(0), d.mutable_classes(1)->set_share(90); }),
              HasSubstr("a share of each"));
  EXPECT_THAT(refused([](auto& d) { d.clear_classes(); }), HasSubstr("0 of them"));
  EXPECT_THAT(refused([](auto& d) { d.set_roce_tos(256); }), HasSubstr("roce_tos 256"));
}

}  // namespace
}  // namespace weft::agent

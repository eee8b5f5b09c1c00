// RDMA flows over paths that take what is posted and say nothing, with devices that would try again for half a minute. Each test gives up
// before that.
#include <gtest/gtest.h>

#include "netplugin/rdma/path.h"
#include "netplugin/rdma/testing/flow_fixture.h"
#include "netplugin/testing/agent.h"

namespace weft::net::rdma {
namespace {

class RdmaSilence : public testing::FlowFixture {};

TEST_F(RdmaSilence, WhatASilentLaneHoldsGoesOverTheOthersOnceThePolicyHasLeftIt) {
  net::testing::PolicyFile file;
  std::string why;
  auto mapping = PolicyMapping::Map(file.fd(), &why);
  ASSERT_TRUE(mapping) << why;
  policies_.Offer(std::move(mapping));
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 20, rdma.retry_count = 7, rdma.queue_pairs = 2; }));
  const auto port = [&](uint32_t lane) { return static_cast<uint16_t>(sender().lanes[lane].source_port.load()); };
  const uint16_t silent = port(0), other = port(1);
  bool told = false;
  Exchange(60, 32 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.SilencePath(silent);
  }, [&] {
    if (told || sender().silent_ms[0].load() < 200) return;
    told = true;
    const net::testing::WantedLane lanes[] = {{other, 1}};
    abi::FlowPolicy policy = net::testing::MakePolicy(sender().flow, lanes);
    policy.lease_until_ns = NowNs() + 60'000'000'000;
    file.Write(policy);
  });  // gives up after 30 s, before the device does
  EXPECT_TRUE(told);
  EXPECT_EQ(fabric_.counts().failures, 0u) << "no device has said anything";
  EXPECT_EQ(port(0), silent);
}

/// The policy leaves every lane for a port that none has, and names those left with no weight, as the controller's does.
TEST_F(RdmaSilence, APortIsHadThoughThePolicyNamesAllLanes) {
  net::testing::PolicyFile file;
  std::string why;
  auto mapping = PolicyMapping::Map(file.fd(), &why);
  ASSERT_TRUE(mapping) << why;
  policies_.Offer(std::move(mapping));
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.queue_pairs = 2; }));
  const auto port = [&](uint32_t lane) { return static_cast<uint16_t>(sender().lanes[lane].source_port.load()); };
  Exchange(200, 32 << 10, 8, [&](int sent) {
    if (sent != 20) return;
    const net::testing::WantedLane lanes[] = {{port(0), 0}, {port(1), 0}, {50001, 1}};
    abi::FlowPolicy policy = net::testing::MakePolicy(sender().flow, lanes);
    policy.lease_until_ns = NowNs() + 60'000'000'000;
    file.Write(policy);
  });
  ASSERT_TRUE(testing::Eventually([&] { return port(0) == 50001; }));
  const auto before = fabric_.counts().bytes_by_port[50001];
  Exchange(20, 32 << 10, 8);
  EXPECT_GT(fabric_.counts().bytes_by_port[50001], before);
}

TEST_F(RdmaSilence, CreditsThatGetLostGoAnotherWay) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 20, rdma.retry_count = 7; }));
  fabric_.SilencePath(DefaultPorts(~sender().flow, kMaxParts + 1)[kControlLane]);
  Exchange(20, 16 << 10, 8);
  EXPECT_EQ(fabric_.counts().failures, 0u);
}

TEST_F(RdmaSilence, CreditsThatGetLostTakeTheWayOfALaneThatWasHeardOf) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 20, rdma.retry_count = 7, rdma.queue_pairs = 2; }));
  const auto ports = DefaultPorts(~sender().flow, kMaxParts + 1);
  const auto as_lanes = [&] { return fabric_.counts().bytes_by_port[ports[0]] + fabric_.counts().bytes_by_port[ports[1]]; };
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent != 20) return;
    EXPECT_EQ(as_lanes(), 0u) << "a receiver writes credits alone";
    fabric_.SilencePath(ports[kControlLane]);
  });
  EXPECT_GE(as_lanes(), 30 * sizeof(Credit));
}

TEST_F(RdmaSilence, AcknowledgementsThatGetLostGoAnotherWay) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 8, rdma.retry_count = 0, rdma.queue_pairs = 2; }));
  Exchange(60, 32 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.SilencePath(DefaultPorts(~sender().flow, kMaxParts + 1)[0]);
  });
  EXPECT_EQ(fabric_.counts().lost_acknowledgements, 1u) << "the same way was taken again";
  EXPECT_EQ(fabric_.counts().failures, 0u) << "no device has said anything";
}

}  // namespace
}  // namespace weft::net::rdma

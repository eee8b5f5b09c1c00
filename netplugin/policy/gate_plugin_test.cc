// The time window of a policy in the built library: sends wait for it, calls do not.
#include <gtest/gtest.h>

#include "netplugin/testing/agent_fixture.h"

namespace weft::net::testing {
namespace {

using GatePluginTest = AgentTest;

TEST_F(GatePluginTest, ABurstWaitsForItsWindowAndTheCallsDoNot) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  const WantedLane lanes[] = {{static_cast<uint16_t>(flow().lanes[0].source_port.load()), 1}};
  abi::FlowPolicy policy = MakePolicy(flow().flow, lanes);
  policy.lease_until_ns = NowNs() + 59'000'000'000;
  policy.window_period_ns = 60'000'000'000;
  policy.window_offset_ns = NowNs() + 50'000'000'000;  // longer than any of this takes
  policy.window_length_ns = 1'000'000;
  file.Write(policy);
  ASSERT_TRUE(Eventually([&] { return agent_->telemetry().process.policy_epoch.load() == 1; }));
  std::vector<char> data, got(50000);
  Fill(&data, 50000, 1);
  void* request = nullptr;
  ASSERT_EQ(table().Send(pair_.send, data.data(), got.size(), &request), nccl::kSuccess);
  ASSERT_NE(request, nullptr) << "taken";
  int done = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(table().Test(request, &done, nullptr), nccl::kSuccess);
    ASSERT_EQ(done, 0) << "and not done";
  }
  EXPECT_EQ(flow().bytes.load(), 0u);
  policy.window_offset_ns = NowNs();
  policy.window_length_ns = policy.window_period_ns;
  file.Write(policy);
  EXPECT_TRUE(Eventually([&] { return table().Test(request, &done, nullptr) != nccl::kSuccess || done; }));
  EXPECT_EQ(flow().gate_holds.load(), 1u);
  EXPECT_GT(flow().gate_held_ns.load(), 0u);
  EXPECT_EQ(ReceiveAll(table(), pair_.recv, got.data(), got.size(), nullptr), nccl::kSuccess);
  EXPECT_TRUE(Check(got, got.size(), 1));
}

TEST_F(GatePluginTest, AWindowLapsesWithItsLease) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  const WantedLane lanes[] = {{static_cast<uint16_t>(flow().lanes[0].source_port.load()), 1}};
  abi::FlowPolicy policy = MakePolicy(flow().flow, lanes);
  const uint64_t now = NowNs();
  policy.lease_until_ns = now + 300'000'000;
  policy.window_period_ns = 60'000'000'000;
  policy.window_offset_ns = now + 59'000'000'000;
  policy.window_length_ns = 1'000'000;
  file.Write(policy);
  ASSERT_TRUE(Eventually([&] { return agent_->telemetry().process.policy_epoch.load() == 1; }));
  const std::vector<char> data(1000);
  EXPECT_EQ(SendAll(table(), pair_.send, data.data(), data.size()), nccl::kSuccess) << "within 30 s, not 59";
  EXPECT_GE(NowNs(), policy.lease_until_ns);
}

}  // namespace
}  // namespace weft::net::testing

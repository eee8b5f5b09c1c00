// The built library with an agent: policies over real shared memory while data flows, on loopback.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "netplugin/testing/agent_fixture.h"

namespace weft::net::testing {
namespace {

using abi::LaneState;

TEST_F(AgentTest, LearnsWhoTheProcessIsAndWhatItsFlowsAre) {
  EXPECT_STREQ(agent_->hello().job, "job-7");
  EXPECT_EQ(agent_->hello().rank, 5);
  const abi::ProcessInfo& process = agent_->telemetry().process;
  EXPECT_STREQ(process.job, "job-7");
  EXPECT_EQ(process.world, 8);
  EXPECT_EQ(process.net_version, 11);
  EXPECT_TRUE(agent_->telemetry_is_read_only());
  const abi::FlowSlot* receive = FindFlow(agent_->telemetry(), abi::Direction::kReceive);
  ASSERT_NE(receive, nullptr);
  EXPECT_EQ(flow().flow, receive->flow);
  EXPECT_NE(flow().flow, 0u);
  EXPECT_EQ(flow().comm, 0xC0FFEEu);
  EXPECT_EQ(flow().peer_rank, 5);
  EXPECT_EQ(flow().family, 4u);
  EXPECT_EQ(flow().peer_address[0], 127);
  EXPECT_EQ(flow().peer_port, receive->peer_port);
  EXPECT_EQ(flow().lanes[0].source_port.load(), receive->lanes[0].source_port.load());
  EXPECT_EQ(flow().lanes[0].state.load(), static_cast<uint32_t>(LaneState::kActive));
}

TEST_F(AgentTest, CountsMessagesBytesBurstsAndWire) {
  std::vector<char> data(1000), got(1000);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(SendAll(table(), pair_.send, data.data(), data.size()), nccl::kSuccess);
    ASSERT_EQ(ReceiveAll(table(), pair_.recv, got.data(), got.size(), nullptr), nccl::kSuccess);
  }
  const abi::FlowSlot* receive = FindFlow(agent_->telemetry(), abi::Direction::kReceive);
  for (const abi::FlowSlot* slot : {&flow(), receive}) {
    EXPECT_EQ(slot->messages.load(), 10u);
    EXPECT_EQ(slot->bytes.load(), 10000u);
    uint64_t counted = 0;
    for (const auto& bucket : slot->histogram) counted += bucket.load();
    EXPECT_EQ(counted, 10u);
    // 10 chunks of 64 + 1000 + 24 bytes; on the wire also the hello and a header per packet.
    EXPECT_EQ(slot->lanes[0].bytes.load(), 10880u);
    EXPECT_TRUE(Eventually([&] { return slot->lanes[0].wire_bytes.load() >= 10880 + 32 + 10 * 52; }));
    EXPECT_TRUE(Eventually([&] { return slot->burst_count.load(std::memory_order_acquire) > 0; }))
        << "an idle flow's burst is closed";
    EXPECT_LE(slot->bursts[0].start_ns.load(), slot->bursts[0].end_ns.load());
  }
}

TEST_F(AgentTest, LanesFollowThePolicyWhileDataFlows) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  StartTraffic();
  const WantedLane two[] = {{FreePort(), 1}, {FreePort(), 3}};
  file.Write(MakePolicy(flow().flow, two));
  ASSERT_TRUE(Eventually([&] { return InForce(two); }));
  std::vector<uint64_t> carried = Carried(two, 16 << 20);
  EXPECT_NEAR(static_cast<double>(carried[1]) / static_cast<double>(carried[0]), 3.0, 0.3);
  EXPECT_EQ(flow().lanes[0].weight.load(), 0u) << "the first lane's port is not in the policy";

  const WantedLane four[] = {{two[1].port, 1}, {FreePort(), 2}, {FreePort(), 4}, {two[0].port, 1}};
  file.Write(MakePolicy(flow().flow, four));
  ASSERT_TRUE(Eventually([&] { return InForce(four); }));
  EXPECT_EQ(flow().policy_epoch.load(), 2u);
  carried = Carried(four, 32 << 20);
  const auto sum = static_cast<double>(carried[0] + carried[1] + carried[2] + carried[3]);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<double>(carried[i]) / sum, four[i].weight / 8.0, 0.0125);

  const WantedLane left[] = {{four[0].port, 1}, {four[1].port, 0}};
  file.Write(MakePolicy(flow().flow, left));
  ASSERT_TRUE(Eventually([&] { return InForce(left); }));
  carried = Carried(left, 4 << 20);
  EXPECT_LT(carried[1], 300000u) << "only what was queued before";
  const WantedLane right[] = {{four[0].port, 0}, {four[1].port, 1}};
  file.Write(MakePolicy(flow().flow, right));
  ASSERT_TRUE(Eventually([&] { return InForce(right); }));
  carried = Carried(right, 4 << 20);
  EXPECT_LT(carried[0], 300000u);
}

TEST_F(AgentTest, RoomIsMadeWhenEveryPolicyNamesNewPorts) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  StartTraffic();
  for (int round = 0; round < 12; ++round) {  // 36 ports on at most 8 lanes
    const WantedLane lanes[] = {{FreePort(), 1}, {FreePort(), 1}, {FreePort(), 1}};
    file.Write(MakePolicy(flow().flow, lanes));
    ASSERT_TRUE(Eventually([&] { return InForce(lanes); })) << "round " << round << Describe();
  }
}

TEST_F(AgentTest, APortInUseFailsAloneAndIsTriedAgainWithTheNextEpoch) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  StartTraffic();
  const uint16_t port = FreePort();
  auto taken = std::make_unique<Fd>(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_storage storage;
  Address address;
  address.family = AF_INET;
  address.bytes[0] = 127;
  address.bytes[3] = 1;
  address.port = port;
  const socklen_t length = address.ToSockaddr(&storage);
  ASSERT_EQ(bind(taken->get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  const WantedLane lanes[] = {{port, 1}, {FreePort(), 1}};
  file.Write(MakePolicy(flow().flow, lanes));
  ASSERT_TRUE(Eventually([&] {
    const abi::LaneTelemetry* lane = LaneOf(port);
    return lane && lane->state.load() == static_cast<uint32_t>(LaneState::kFailed);
  }));
  ASSERT_TRUE(Eventually([&] { return InForce({&lanes[1], 1}); })) << "the other lane carries all";
  EXPECT_TRUE(Plugin::Logged("bind: Address already in use"));
  taken.reset();
  file.Write(MakePolicy(flow().flow, lanes));
  EXPECT_TRUE(Eventually([&] { return InForce(lanes); }));
}

TEST_F(AgentTest, ClassAndPacingLapseWithTheirLease) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  StartTraffic();
  abi::FlowPolicy policy = KeepFirstLane();
  const uint16_t port = policy.lanes[0].source_port;
  policy.traffic_class = 0x68 | 3;  // the ECN bits are not ours
  policy.lease_until_ns = NowNs() + 700'000'000;
  file.Write(policy);
  EXPECT_TRUE(Eventually([&] { return (TosOf(port, true) & 0xFC) == 0x68; }));
  EXPECT_TRUE(Eventually([&] { return (TosOf(port, false) & 0xFC) == 0x68; })) << "the acknowledgements are marked too";
  EXPECT_TRUE(Eventually([&] { return (TosOf(port, true) & 0xFC) == 0; })) << "after the lease";
  EXPECT_TRUE(Eventually([&] { return (TosOf(port, false) & 0xFC) == 0; }));
}

TEST_F(AgentTest, TheReceiverSeesWhatASlowPathGivesALane) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  StartTraffic();
  abi::FlowPolicy policy = KeepFirstLane();
  policy.pacing_bps = 80'000'000;  // stands for the slow path
  policy.lease_until_ns = NowNs() + 50'000'000'000;
  file.Write(policy);
  const abi::LaneTelemetry& lane = FindFlow(agent_->telemetry(), abi::Direction::kReceive)->lanes[0];
  const auto waited = [&] { return lane.backlog_ns.load(); };
  ASSERT_TRUE(Eventually([&] { return waited() > 100'000'000; })) << "what was there before it was slow has gone";
  const uint64_t from_ns = waited(), from_bytes = lane.backlog_bytes.load();
  ASSERT_TRUE(Eventually([&] { return waited() > from_ns + 500'000'000; }));
  const double rate = static_cast<double>(lane.backlog_bytes.load() - from_bytes) * 8e9 /
                      static_cast<double>(waited() - from_ns);
  EXPECT_NEAR(rate, 80e6, 16e6);
}

TEST_F(AgentTest, AReceiverThatTakesItsTimeIsNoSlowPath) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  std::vector<char> data(9000), target(9000);
  const auto send = [&] {
    void* request = nullptr;
    int done = 0;
    ASSERT_TRUE(Eventually([&] {
      if (!request) table().Send(pair_.send, data.data(), data.size(), &request);
      return request && table().Test(request, &done, nullptr) == nccl::kSuccess && done;
    }));
  };
  const auto receive = [&] {
    int size = 0;
    ASSERT_EQ(ReceiveAll(table(), pair_.recv, target.data(), target.size(), &size), nccl::kSuccess);
  };
  // Twice as many are sent as received, and each step waits for the background thread to have seen the message on the
  // wire: each is longer in the socket than the one before it, and nothing of that is the wire's. Few enough for the
  // receiver's window.
  const std::atomic<uint64_t>& on_wire = flow().lanes[0].wire_bytes;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = on_wire.load();
    ASSERT_NO_FATAL_FAILURE(send());
    if (i % 2 == 1) {
      ASSERT_NO_FATAL_FAILURE(receive());
    }
    ASSERT_TRUE(Eventually([&] { return on_wire.load() >= before + data.size(); }));
  }
  for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(receive());
  const abi::LaneTelemetry& lane = FindFlow(agent_->telemetry(), abi::Direction::kReceive)->lanes[0];
  EXPECT_LE(lane.backlog_ns.load(), 5'000'000u);
}

TEST_F(AgentTest, AWaitIsOverWhenTheDataIsThereAndNotWhenItIsRead) {
  std::vector<char> data(9000), target(9000);
  const std::atomic<uint64_t>& waited = FindFlow(agent_->telemetry(), abi::Direction::kReceive)->wait_peer_ns;
  // The first chunk that says when it was sent makes its reader ask when it came; some are sent before the plugin knows that an agent looks.
  for (int i = 0; i < 8; ++i) {
    void* request = nullptr;
    int done = 0, size = 0;
    const uint64_t before_ns = waited.load(), posted_ns = NowNs();
    ASSERT_EQ(table().Receive(pair_.recv, target.data(), target.size(), &request), nccl::kSuccess);
    ASSERT_EQ(table().Test(request, &done, &size), nccl::kSuccess);
    ASSERT_EQ(done, 0) << "it waits";
    ASSERT_EQ(SendAll(table(), pair_.send, data.data(), data.size()), nccl::kSuccess);
    const uint64_t sent_ns = NowNs();
    ASSERT_TRUE(Eventually([&] { return NowNs() >= sent_ns + 50'000'000; })) << "meanwhile nobody reads";
    ASSERT_TRUE(Eventually([&] { return table().Test(request, &done, &size) == nccl::kSuccess && done != 0; }));
    if (i < 4) continue;
    EXPECT_LE(waited.load() - before_ns, sent_ns - posted_ns + 25'000'000) << "half of the time in which nobody read";
  }
}

TEST_F(AgentTest, EntriesOutOfRangeAreRefusedAndCounted) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  StartTraffic();
  const auto first = static_cast<uint16_t>(flow().lanes[0].source_port.load());
  const WantedLane good[] = {{FreePort(), 2}, {first, 1}};
  const auto& rejected = agent_->telemetry().process.policy_rejected;
  file.Write(MakePolicy(flow().flow, good));
  ASSERT_TRUE(Eventually([&] { return InForce(good); }));
  EXPECT_EQ(rejected.load(), 0u);
  abi::FlowPolicy bad = MakePolicy(flow().flow, good);
  bad.traffic_class = 256;
  bad.lanes[0].weight = 9;
  file.Write(bad);
  EXPECT_TRUE(Eventually([&] { return rejected.load() == 1; }));
  EXPECT_TRUE(Plugin::Logged("the traffic class is above 255"));
  // A count past the end of the table, as a writer gone mad would leave it.
  file.segment().table.count.store(abi::kMaxFlows + 1);
  file.segment().table.epoch.fetch_add(1);
  EXPECT_TRUE(Eventually([&] { return rejected.load() == 2; }));
  EXPECT_TRUE(Plugin::Logged("the table's entry count is out of range"));
  Carried(good, 1 << 20);
  EXPECT_TRUE(InForce(good)) << "nothing of it was taken";
}

TEST_F(AgentTest, CorruptSegmentsAreRefusedWithAReason) {
  StartTraffic();
  const auto& rejected = agent_->telemetry().process.policy_rejected;
  const WantedLane lanes[] = {{FreePort(), 1}};
  const std::pair<std::function<void(abi::PolicySegment&)>, const char*> cases[] = {
      {[](auto& s) { s.header.magic ^= 1; }, "the magic number is wrong"},
      {[](auto& s) { s.header.version = 99; }, "the segment version is not supported (version 99, this plugin reads 3)"},
      {[](auto& s) { s.header.section_count = 9; }, "the directory has too many sections"},
      {[](auto& s) { s.header.sections[0].offset = ~7ull; }, "a section lies outside the segment"},
      {[](auto& s) { s.header.sections[0].entry_bytes = 64; }, "a section's entry size is not this version's"},
      {[](auto& s) { s.header.version = abi::kPreviousSegmentVersion; }, "the segment version is not supported (version 2, this plugin reads 3)"},
      {[](auto& s) { s.table.count = 4097; }, "the table claims 4097 entries, at most 4096 fit"},
  };
  uint64_t expected = 0;
  for (const auto& [spoil, reason] : cases) {
    PolicyFile file;
    file.Write(MakePolicy(flow().flow, lanes));
    spoil(file.segment());
    ASSERT_TRUE(agent_->SendPolicy(file.fd()));
    ++expected;
    EXPECT_TRUE(Eventually([&] { return rejected.load() == expected; })) << reason;
    EXPECT_TRUE(Plugin::Logged(std::string("policy segment refused: ") + reason));
  }
  PolicyFile unsealed(false);
  unsealed.Write(MakePolicy(flow().flow, lanes));
  ASSERT_TRUE(agent_->SendPolicy(unsealed.fd()));
  EXPECT_TRUE(Eventually([&] { return rejected.load() == expected + 1; }));
  EXPECT_TRUE(Plugin::Logged("not sealed against shrinking"));
  EXPECT_EQ(LaneOf(lanes[0].port), nullptr);
  PolicyFile good;
  good.Write(MakePolicy(flow().flow, lanes));
  ASSERT_TRUE(agent_->SendPolicy(good.fd()));
  EXPECT_TRUE(Eventually([&] { return InForce(lanes); })) << "and a good one is still taken";
}

TEST_F(AgentTest, AnAgentThatComesBackAdoptsTheProcess) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  StartTraffic();
  const WantedLane before[] = {{FreePort(), 1}, {FreePort(), 2}};
  file.Write(MakePolicy(flow().flow, before));
  ASSERT_TRUE(Eventually([&] { return InForce(before); }));
  const ino_t inode = agent_->telemetry_inode();
  const uint64_t id = flow().flow;

  agent_ = nullptr;
  agent_ = std::make_unique<Agent>(run_dir_);
  ASSERT_TRUE(agent_->Greet());
  EXPECT_EQ(agent_->telemetry_inode(), inode) << "the same telemetry";
  EXPECT_EQ(flow().flow, id);
  PolicyFile fresh;
  ASSERT_TRUE(agent_->SendPolicy(fresh.fd()));
  Carried(before, 8 << 20);
  EXPECT_TRUE(InForce(before)) << "an empty policy changes nothing";
  const WantedLane after[] = {{before[0].port, 5}, {FreePort(), 1}};
  fresh.Write(MakePolicy(id, after));
  EXPECT_TRUE(Eventually([&] { return InForce(after); }));
}

TEST_F(AgentTest, ARefusalIsSaidOnceAndTrainingGoesOn) {
  StartTraffic();
  ASSERT_TRUE(agent_->SendReject("job-7 belongs to another user"));
  EXPECT_TRUE(Eventually([&] { return Plugin::Logged("the agent refused this process: job-7 belongs to another user"); }));
  const uint64_t seen = received_;
  EXPECT_TRUE(Eventually([&] { return received_ > seen + 100; }));
}

}  // namespace
}  // namespace weft::net::testing

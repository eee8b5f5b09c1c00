// What RDMA flows do with messages, paths, classes and memory while nothing fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "netplugin/rdma/testing/flow_fixture.h"
#include "netplugin/testing/agent.h"

namespace weft::net::rdma {
namespace {

using net::testing::MakePolicy;
using net::testing::PolicyFile;
using net::testing::WantedLane;
using testing::Eventually;
using testing::kRoom;

class RdmaFlow : public testing::FlowFixture {};

TEST_F(RdmaFlow, MessagesOfAnySizeArriveWholeAndInOrder) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Exchange(400, 64 << 10, 32);
  EXPECT_EQ(fabric_.counts().failures, 0u);
  EXPECT_EQ(sender().messages.load(), 400u);
}

TEST_F(RdmaFlow, BytesGoByTheFlowsOwnPortsAlike) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Exchange(200, 256 << 10, 8);
  const auto counts = fabric_.counts();
  uint64_t total = 0;
  for (const auto& lane : sender().lanes) total += lane.bytes.load();
  for (uint32_t lane = 0; lane < 4; ++lane) {
    const auto port = static_cast<uint16_t>(sender().lanes[lane].source_port.load());
    EXPECT_GE(port, kFirstRocePort);
    EXPECT_EQ(counts.bytes_by_port.at(port), sender().lanes[lane].bytes.load());
    EXPECT_NEAR(static_cast<double>(counts.bytes_by_port.at(port)) / static_cast<double>(total), 0.25, 0.02);
  }
}

TEST_F(RdmaFlow, KnownPathsAreSpreadOver) {
  probe_ = [](uint16_t port) { return port % 4; };
  ASSERT_NO_FATAL_FAILURE(Connect());
  std::set<uint32_t> paths;
  for (uint32_t lane = 0; lane < 4; ++lane) paths.insert(sender().lanes[lane].source_port.load() % 4);
  // Of sixteen ports some may have no fourth path among them; what there is must be used.
  std::set<uint32_t> possible;
  for (const uint16_t port : DefaultPorts(sender().flow, 16)) possible.insert(port % 4);
  EXPECT_EQ(paths, possible);
}

/// What the sender learns of a message's arrival, with the credit after it.
TEST_F(RdmaFlow, ThePathIsMeasuredFromPostToArrival) {
  in_background_ = false;  // nobody else polls
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.queue_pairs = 1; }));
  telemetry_->observed = true;
  const auto message = [&](uint64_t held_ms, bool watched) {
    Request *sending = nullptr, *receiving = nullptr;
    int done = 0, size = 0;
    ASSERT_EQ(recv_->Irecv(target_.data(), 64 << 10, 0, target_handle_, &receiving), nccl::kSuccess);
    ASSERT_TRUE(receiving);
    ASSERT_TRUE(Eventually([&] {
      recv_->Test(receiving, &done, &size);
      send_->Isend(source_.data(), 64 << 10, 0, source_handle_, &sending);
      return sending != nullptr;
    }));
    // The network holds the message up, or the receiver does not look for as long.
    int arrived = 0, acknowledged = 0;
    fabric_.Hold(watched && held_ms > 0);
    const uint64_t until = NowNs() + held_ms * 1'000'000;
    while (NowNs() < until) {
      if (watched) recv_->Test(receiving, &arrived, &size);
      else if (!acknowledged) send_->Test(sending, &acknowledged, &size);
    }
    fabric_.Hold(false);
    ASSERT_TRUE(Eventually([&] { return arrived || (recv_->Test(receiving, &arrived, &size) == nccl::kSuccess && arrived); }));
    ASSERT_TRUE(Eventually([&] { return acknowledged || (send_->Test(sending, &acknowledged, &size) == nccl::kSuccess && acknowledged); }));
  };
  const auto backlog_ms = [&] { return static_cast<double>(sender().lanes[0].backlog_ns.load()) / 1e6; };
  const auto settle = [&] {  // a machine that is busy may hold any of them up
    for (int i = 0; i < 20; ++i) message(0, true);
  };
  settle();
  double before = backlog_ms();
  message(40, true);
  message(0, true);  // its credit tells of the one before
  EXPECT_GE(backlog_ms() - before, 38);
  EXPECT_GE(sender().lanes[0].backlog_bytes.load(), 64u << 10);
  settle();
  before = backlog_ms();
  message(40, /*watched=*/false);  // when it came nobody knows
  message(0, true);
  EXPECT_LT(backlog_ms() - before, 30);
}

TEST_F(RdmaFlow, LongPartsGoInPiecesAndEndWithARecord) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.queue_pairs = 1; }));
  Exchange(12, 3 << 20, 1);  // a write takes 1 MiB on this fabric
  EXPECT_EQ(fabric_.counts().failures, 0u);
}

TEST_F(RdmaFlow, UnderAdaptiveRoutingTheEndIsAWriteOfItsOwn) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.adaptive_routing = 1; }));
  Exchange(100, 64 << 10, 16);
  EXPECT_GT(fabric_.counts().writes, 100u * 2);
}

TEST_F(RdmaFlow, APolicyMovesPortsWeightsAndClass) {
  PolicyFile file;
  std::string why;
  auto mapping = PolicyMapping::Map(file.fd(), &why);
  ASSERT_TRUE(mapping) << why;
  policies_.Offer(std::move(mapping));
  ASSERT_NO_FATAL_FAILURE(Connect());
  const WantedLane lanes[] = {{50001, 3}, {50002, 1}};
  Exchange(300, 64 << 10, 16, [&](int sent) {
    if (sent != 50) return;
    abi::FlowPolicy policy = MakePolicy(sender().flow, lanes);
    policy.traffic_class = 104;
    policy.lease_until_ns = NowNs() + 10'000'000'000;
    file.Write(policy);
  });
  // The policy is taken within a sweep; what goes afterwards follows it.
  ASSERT_TRUE(Eventually([&] { return fabric_.counts().class_by_port.contains(50001); }));
  const auto before = fabric_.counts();
  Exchange(100, 64 << 10, 8);
  const auto after = fabric_.counts();
  EXPECT_EQ(after.class_by_port.at(50001), 104);
  EXPECT_EQ(after.class_by_port.at(50002), 104);
  const auto moved = [&](uint16_t port) {
    const auto found = before.bytes_by_port.find(port);
    const uint64_t then = found == before.bytes_by_port.end() ? 0 : found->second;
    return static_cast<double>(after.bytes_by_port.at(port) - then);
  };
  EXPECT_NEAR(moved(50001) / (moved(50001) + moved(50002)), 0.75, 0.03);
}

TEST_F(RdmaFlow, AnEarlyBurstIsHeldUntilItsWindowOpens) {
  in_background_ = false;
  PolicyFile file;
  std::string why;
  auto mapping = PolicyMapping::Map(file.fd(), &why);
  ASSERT_TRUE(mapping) << why;
  policies_.Offer(std::move(mapping));
  ASSERT_NO_FATAL_FAILURE(Connect());
  abi::FlowPolicy policy = MakePolicy(sender().flow, {});
  policy.window_period_ns = 2'000'000'000;
  policy.window_length_ns = 1'000'000;
  policy.window_offset_ns = NowNs() + 100'000'000;  // it was open 1.9 s ago: now is early
  policy.lease_until_ns = NowNs() + 30'000'000'000;
  file.Write(policy);
  policies_.Turn();
  TaskOf(*send_).Sweep({NowNs(), false});
  Request *receive = nullptr, *send = nullptr;
  ASSERT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess);
  ASSERT_TRUE(Eventually([&] {
    int done = 0;
    EXPECT_EQ(recv_->Test(receive, &done, nullptr), nccl::kSuccess);
    EXPECT_EQ(send_->Isend(source_.data(), 100, 0, source_handle_, &send), nccl::kSuccess);
    EXPECT_TRUE(!send || NowNs() >= policy.window_offset_ns) << "sent before its window opened";
    return send != nullptr || HasFailure();
  }));
  EXPECT_EQ(sender().gate_holds.load(), 1u);
  EXPECT_GT(sender().gate_held_ns.load(), 0u);
  EXPECT_LE(sender().gate_held_ns.load(), policy.window_period_ns);
}

TEST_F(RdmaFlow, MemoryOfAGpuIsFlushedByAReadAndTheHostsIsNot) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  void* gpu = nullptr;  // on this fabric a descriptor is as good as a GPU
  ASSERT_EQ(recv_->RegMrDmaBuf(target_.data(), kRoom, nccl::kPtrDmaBuf, 0, 1, &gpu), nccl::kSuccess);
  Request* request = nullptr;
  ASSERT_EQ(recv_->Iflush(target_.data(), 100, target_handle_, &request), nccl::kSuccess);
  EXPECT_EQ(request, nullptr);
  Request* flushes[3] = {};
  for (Request*& flush : flushes) {
    ASSERT_EQ(recv_->Iflush(target_.data() + 64, 100, gpu, &flush), nccl::kSuccess);
    ASSERT_NE(flush, nullptr);
  }
  for (Request* flush : flushes) {
    int done = 0, size = -1;
    ASSERT_TRUE(Eventually([&] {
      EXPECT_EQ(recv_->Test(flush, &done, &size), nccl::kSuccess);
      return done != 0 || HasFailure();
    }));
    EXPECT_EQ(size, 0);
  }
  EXPECT_EQ(fabric_.counts().reads, 3u);
  EXPECT_EQ(recv_->DeregMr(gpu), nccl::kSuccess);
}

TEST_F(RdmaFlow, ASendThatIsLongerThanItsReceiveIsAnError) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Request* receive = nullptr;
  Request* send = nullptr;
  ASSERT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess);
  int code = nccl::kSuccess;
  ASSERT_TRUE(Eventually([&] {
    int done = 0;
    recv_->Test(receive, &done, nullptr);
    code = send_->Isend(source_.data(), 101, 0, source_handle_, &send);
    return code != nccl::kSuccess;
  }));
  EXPECT_EQ(code, nccl::kInternalError);
  EXPECT_EQ(send, nullptr);
  std::vector<pollfd> fds;
  TaskOf(*recv_).Watch(&fds);
  EXPECT_EQ(fds.size(), 1u);
  TaskOf(*send_).Watch(&fds);
  EXPECT_EQ(fds.size(), 1u) << "nobody reads the connection of a flow that failed";
}

TEST_F(RdmaFlow, MemoryWithoutAHandleIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Request* request = nullptr;
  EXPECT_EQ(recv_->Irecv(target_.data(), 100, 0, nullptr, &request), nccl::kInvalidArgument);
  void* handle = nullptr;
  EXPECT_EQ(recv_->RegMr(target_.data(), 100, nccl::kPtrCuda, &handle), nccl::kInvalidUsage);
}

}  // namespace
}  // namespace weft::net::rdma

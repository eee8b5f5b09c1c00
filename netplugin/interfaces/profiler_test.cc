#include "netplugin/interfaces/profiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace weft::net {
namespace {

using abi::Operation;
using abi::ProfileLevel;
using abi::Wait;

constexpr uint64_t kMs = 1'000'000;

class ProfilerTest : public ::testing::Test {
 protected:
  ProfilerTest() { context_ = profiler_.Open({.comm = 7, .rank = 1, .ranks = 4, .nodes = 4, .name = "dp"}, &mask_); }
  ~ProfilerTest() override { profiler_.Close(context_); }

  uint64_t StartAllReduce(uint64_t sequence, uint64_t now) {
    return profiler_.Start(*context_, {.type = nccl::kEventColl, .operation = Operation::kAllReduce,
                                       .sequence = sequence, .bytes = 4096, .algorithm = 1, .protocol = 2,
                                       .channels = 2}, now);
  }
  uint64_t StartProxyOp(uint64_t parent, int peer, uint64_t now, int pid = getpid()) {
    return profiler_.Start(*context_, {.type = nccl::kEventProxyOp, .parent = parent, .peer = peer, .pid = pid}, now);
  }
  uint64_t StartStep(uint64_t parent, uint64_t now) {
    return profiler_.Start(*context_, {.type = nccl::kEventProxyStep, .parent = parent}, now);
  }
  void Sweep(uint64_t now) { profiler_.Sweep({now, true}); }
  abi::CommunicatorSlot& slot() { return observations_->communicators[0]; }
  abi::OperationCounters& counters() { return slot().operations[static_cast<int>(Operation::kAllReduce)]; }
  uint64_t Waited(Wait wait) { return slot().waits_ns[static_cast<int>(wait)].load(); }

  std::unique_ptr<abi::Observations> observations_ = std::make_unique<abi::Observations>();
  Observer observer_{observations_.get()};
  PolicyStore policies_;
  Profiler profiler_{observer_, policies_, ProfileLevel::kSteps};
  int mask_ = 0;
  Profiler::Context* context_ = nullptr;
};

TEST_F(ProfilerTest, ACollectiveIsOverWhenItsLastNetworkOperationIs) {
  const uint64_t coll = StartAllReduce(11, 100 * kMs);
  ASSERT_NE(coll, 0u);
  EXPECT_EQ(counters().started.load(), 1u);
  EXPECT_EQ(counters().last_started.load(), 11u);
  profiler_.Stop(coll, 101 * kMs);  // enqueued, no more
  const uint64_t first = StartProxyOp(coll, 0, 102 * kMs), second = StartProxyOp(coll, 2, 102 * kMs);
  profiler_.Stop(first, 110 * kMs);
  Sweep(200 * kMs);
  EXPECT_EQ(counters().finished.load(), 0u) << "one network operation lives";
  profiler_.Stop(second, 150 * kMs);
  Sweep(150 * kMs + Profiler::kQuietNs - 1);
  EXPECT_EQ(counters().finished.load(), 0u) << "another one may still start";
  Sweep(150 * kMs + Profiler::kQuietNs);
  EXPECT_EQ(counters().finished.load(), 1u);
  EXPECT_EQ(counters().last_finished.load(), 11u);
  EXPECT_EQ(counters().last_finished_ns.load(), 150 * kMs);
  EXPECT_EQ(counters().busy_ns.load(), 50 * kMs);
  EXPECT_EQ(counters().bytes.load(), 4096u);
  ASSERT_EQ(slot().recent_count.load(), 1u);
  const abi::OperationRecord& record = slot().recent[0];
  EXPECT_EQ(record.sequence.load(), 11u);
  EXPECT_EQ(record.start_ns.load(), 100 * kMs);
  EXPECT_EQ(record.end_ns.load(), 150 * kMs);
  EXPECT_EQ(record.algorithm.load(), 1u);
  EXPECT_EQ(record.protocol.load(), 2u);
  EXPECT_EQ(record.channels.load(), 2u);
}

TEST_F(ProfilerTest, StepsSayWhoWaitedForWhom) {
  const uint64_t coll = StartAllReduce(0, 0);
  profiler_.Stop(coll, 0);
  const uint64_t send = StartProxyOp(coll, 2, 0), receive = StartProxyOp(coll, 0, 0);
  const uint64_t out = StartStep(send, 10 * kMs), in = StartStep(receive, 10 * kMs);
  profiler_.State(out, nccl::kStateSendGpuWait, 0, 10 * kMs);
  profiler_.State(out, nccl::kStateSendPeerWait, 0, 13 * kMs);  // 3 ms for the own GPU
  profiler_.State(out, nccl::kStateSendWait, 0, 20 * kMs);      // 7 ms for the peer
  profiler_.Stop(out, 21 * kMs);                                // 1 ms on the wire
  profiler_.State(in, nccl::kStateRecvWait, 0, 10 * kMs);
  profiler_.State(in, nccl::kStateRecvFlushWait, 0, 15 * kMs);
  profiler_.State(in, nccl::kStateRecvGpuWait, 0, 16 * kMs);
  profiler_.Stop(in, 18 * kMs);
  EXPECT_EQ(Waited(Wait::kSendPeer), 0u) << "summed when the network operation ends";
  profiler_.Stop(send, 22 * kMs);
  profiler_.Stop(receive, 22 * kMs);
  EXPECT_EQ(Waited(Wait::kSendGpu), 3 * kMs);
  EXPECT_EQ(Waited(Wait::kSendPeer), 7 * kMs);
  EXPECT_EQ(Waited(Wait::kSendWire), 1 * kMs);
  EXPECT_EQ(Waited(Wait::kReceive), 5 * kMs);
  EXPECT_EQ(Waited(Wait::kReceiveFlush), 1 * kMs);
  EXPECT_EQ(Waited(Wait::kReceiveGpu), 2 * kMs);
  EXPECT_EQ(slot().peers[0].peer.load(), 2);
  EXPECT_EQ(slot().peers[0].send_ns.load(), 7 * kMs);
  EXPECT_EQ(slot().peers[1].peer.load(), 0);
  EXPECT_EQ(slot().peers[1].receive_ns.load(), 5 * kMs);
  Sweep(1000 * kMs);
  EXPECT_EQ(slot().recent[0].waits_ns[static_cast<int>(Wait::kSendPeer)].load(), 7 * kMs);
}

TEST_F(ProfilerTest, ACollectiveInsideTheNodeIsOverWhenItWasEnqueued) {
  const uint64_t coll = StartAllReduce(3, 10 * kMs);
  Sweep(5000 * kMs);
  EXPECT_EQ(counters().finished.load(), 0u) << "not even enqueued";
  profiler_.Stop(coll, 12 * kMs);
  Sweep(12 * kMs + Profiler::kAloneNs - 1);
  EXPECT_EQ(counters().finished.load(), 0u);
  Sweep(12 * kMs + Profiler::kAloneNs);
  EXPECT_EQ(counters().finished.load(), 1u);
  EXPECT_EQ(counters().busy_ns.load(), 2 * kMs);
}

TEST_F(ProfilerTest, AHangShowsAsStartedAndNotFinished) {
  const uint64_t coll = StartAllReduce(41, 10 * kMs);
  profiler_.Stop(coll, 10 * kMs);
  const uint64_t op = StartProxyOp(coll, 2, 11 * kMs);
  Sweep(3'600'000 * kMs);
  EXPECT_EQ(counters().started.load(), 1u);
  EXPECT_EQ(counters().finished.load(), 0u);
  EXPECT_EQ(counters().last_started.load(), 41u);
  EXPECT_EQ(counters().last_started_ns.load(), 10 * kMs);
  profiler_.Stop(op, 3'600'001 * kMs);
}

TEST_F(ProfilerTest, CollNetsNetworkOperationsWhichNcclNeverEndsAreNotFollowed) {
  const uint64_t coll = profiler_.Start(*context_, {.type = nccl::kEventColl, .operation = Operation::kAllReduce, .bytes = 4096,
                                                    .algorithm = AlgorithmOf("COLLNET_DIRECT")}, kMs);
  const uint64_t op = StartProxyOp(coll, 2, kMs);
  EXPECT_EQ(op, 0u);
  EXPECT_EQ(StartStep(op, kMs), 0u);
  profiler_.Stop(coll, kMs);
  Sweep(kMs + Profiler::kAloneNs - 1);
  EXPECT_EQ(counters().finished.load(), 0u);
  Sweep(kMs + Profiler::kAloneNs);
  EXPECT_EQ(counters().finished.load(), 1u);
}

TEST_F(ProfilerTest, WhatAnAbortedCommunicatorLeftOpenIsGivenUp) {
  Profiler::Context* aborted = profiler_.Open({.comm = 8, .rank = 1, .ranks = 4, .nodes = 4, .name = "tp"}, &mask_);
  std::vector<uint64_t> left;
  for (uint32_t i = 0; i < EventPool::kCapacity / 2; ++i) {
    const uint64_t coll = profiler_.Start(*aborted, {.type = nccl::kEventColl, .operation = Operation::kAllReduce}, kMs);
    left.push_back(profiler_.Start(*aborted, {.type = nccl::kEventProxyOp, .parent = coll, .pid = getpid()}, kMs));
    profiler_.Stop(coll, kMs);
  }
  EXPECT_EQ(StartAllReduce(0, kMs), 0u) << "no event is free";
  profiler_.Close(aborted);
  Sweep(2 * kMs);
  Sweep(2 * kMs + Profiler::kAbandonedNs - 1);
  EXPECT_EQ(StartAllReduce(1, kMs), 0u);
  Sweep(2 * kMs + Profiler::kAbandonedNs);
  const uint64_t coll = StartAllReduce(2, kMs);
  EXPECT_NE(coll, 0u);
  profiler_.Stop(left.front(), kMs);  // late after all
  EXPECT_NE(StartProxyOp(coll, 2, kMs), 0u);
}

TEST_F(ProfilerTest, LateAndDoubledCallsDoNothing) {
  const uint64_t coll = StartAllReduce(0, 0);
  const uint64_t op = StartProxyOp(coll, 2, 0), step = StartStep(op, 0);
  profiler_.State(step, nccl::kStateSendWait, 0, 0);
  profiler_.Stop(step, 5 * kMs);
  profiler_.Stop(step, 9 * kMs);                                // twice
  profiler_.State(step, nccl::kStateSendPeerWait, 0, 9 * kMs);  // after its stop
  profiler_.Stop(op, 10 * kMs);
  profiler_.Stop(op, 10 * kMs);
  profiler_.Stop(coll, 10 * kMs);
  profiler_.Stop(coll, 10 * kMs);
  EXPECT_EQ(Waited(Wait::kSendWire), 5 * kMs);
  Sweep(1000 * kMs);
  Sweep(2000 * kMs);
  EXPECT_EQ(counters().finished.load(), 1u);
  EXPECT_EQ(StartStep(op, 3000 * kMs), 0u) << "its parent is gone";
  for (const uint64_t nonsense : {uint64_t{0}, uint64_t{1}, UINT64_MAX, coll, op, uint64_t{0xDEADBEEFDEADBEEF}}) {
    profiler_.Stop(nonsense, 3000 * kMs);
    profiler_.State(nonsense, nccl::kStateSendWait, 0, 3000 * kMs);
  }
  EXPECT_EQ(counters().finished.load(), 1u);
}

TEST_F(ProfilerTest, AnotherProcessesParentIsNotFollowed) {
  const uint64_t coll = StartAllReduce(0, 0);
  profiler_.Stop(coll, 0);
  const uint64_t op = StartProxyOp(coll, 3, 0, getpid() + 1);  // PXN: the handle is of that process's pool
  ASSERT_NE(op, 0u);
  const uint64_t step = StartStep(op, 0);
  profiler_.State(step, nccl::kStateRecvWait, 0, 0);
  profiler_.Stop(step, 4 * kMs);
  profiler_.Stop(op, 5 * kMs);
  EXPECT_EQ(Waited(Wait::kReceive), 4 * kMs) << "what it waited for counts all the same";
  Sweep(Profiler::kAloneNs);
  EXPECT_EQ(counters().busy_ns.load(), 0u) << "the collective of this process had no part in it";
}

TEST_F(ProfilerTest, NorIsThatOfOneWithTheSamePidInAnotherContainer) {
  EventPool theirs, ours;
  const uint64_t handle = theirs.Handle(theirs.Take(EventKind::kOperation));
  const uint64_t own = ours.Handle(ours.Take(EventKind::kOperation));
  EXPECT_NE(ours.Find(own), nullptr);
  EXPECT_EQ(ours.AddChild(handle), nullptr) << "the first event of each, and yet not the same";
}

TEST_F(ProfilerTest, KernelsGiveTheTimeOnTheGpu) {
  const uint64_t coll = StartAllReduce(0, 0);
  profiler_.Stop(coll, 0);
  for (const uint64_t length : {300, 900, 500}) {
    const uint64_t kernel =
        profiler_.Start(*context_, {.type = nccl::kEventKernelCh, .parent = coll, .gpu_ns = 10'000}, kMs);
    profiler_.State(kernel, nccl::kStateKernelChStop, 10'000 + length, 2 * kMs);
    profiler_.Stop(kernel, 2 * kMs);
  }
  Sweep(100 * kMs);
  EXPECT_EQ(slot().recent[0].kernel_ns.load(), 900u);
}

TEST_F(ProfilerTest, AFullPoolDropsAndCounts) {
  std::vector<uint64_t> handles;
  for (uint32_t i = 0; i < EventPool::kCapacity; ++i) handles.push_back(StartAllReduce(i, kMs));
  EXPECT_EQ(std::set<uint64_t>(handles.begin(), handles.end()).size(), EventPool::kCapacity);
  EXPECT_EQ(StartAllReduce(99999, kMs), 0u);
  EXPECT_EQ(slot().events_dropped.load(), 1u);
  EXPECT_EQ(counters().last_started.load(), 99999u) << "the order is known all the same";
  EXPECT_EQ(counters().finished.load(), 1u) << "what is not followed must not look hung";
  profiler_.Stop(handles[5], 2 * kMs);
  Sweep(2 * kMs + Profiler::kAloneNs);
  EXPECT_NE(StartAllReduce(100000, kMs), 0u) << "one is free again";
}

TEST_F(ProfilerTest, MorePeersThanEntriesShareTheLastOne) {
  for (int peer = 0; peer < 40; ++peer) {
    const uint64_t op = StartProxyOp(0, peer, 0), step = StartStep(op, 0);
    profiler_.State(step, nccl::kStateRecvWait, 0, 0);
    profiler_.Stop(step, kMs);
    profiler_.Stop(op, kMs);
  }
  EXPECT_EQ(slot().peers[30].peer.load(), 30);
  EXPECT_EQ(slot().peers[31].peer.load(), -2);
  EXPECT_EQ(slot().peers[31].receive_ns.load(), 9 * kMs);
}

TEST_F(ProfilerTest, TheRingKeepsTheNewest) {
  for (uint64_t i = 0; i < 40; ++i) {
    profiler_.Stop(StartAllReduce(i, i * kMs), i * kMs + 1);
    Sweep(i * kMs + 1 + Profiler::kAloneNs);
  }
  EXPECT_EQ(slot().recent_count.load(), 40u);
  EXPECT_EQ(slot().recent[39 % abi::kRecentOperations].sequence.load(), 39u);
  EXPECT_EQ(slot().recent[8].sequence.load(), 8u);
  EXPECT_EQ(slot().recent[7].sequence.load(), 39u);
}

TEST_F(ProfilerTest, ThreadsStartAndStopAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t coll = StartAllReduce(i, kMs);
        const uint64_t op = StartProxyOp(coll, t, kMs);
        profiler_.Stop(coll, kMs);
        const uint64_t step = StartStep(op, kMs);
        profiler_.State(step, nccl::kStateSendPeerWait, 0, kMs);
        profiler_.Stop(step, kMs + 10);
        profiler_.Stop(op, kMs + 10);
        if (i % 100 == 0) Sweep(kMs + 20 + Profiler::kQuietNs);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Sweep(kMs + 20 + Profiler::kQuietNs);
  EXPECT_EQ(counters().started.load(), 6000u);
  EXPECT_EQ(counters().finished.load(), 6000u);
  EXPECT_EQ(Waited(Wait::kSendPeer), 60000u);
  EXPECT_EQ(slot().events_dropped.load(), 0u);
}

TEST_F(ProfilerTest, TheMaskFollowsTheLevel) {
  EXPECT_EQ(mask_, MaskOf(ProfileLevel::kSteps)) << "the process's own";
  EXPECT_EQ(slot().profile.load(), 2u);
  int other = 0;
  Profiler quiet(observer_, policies_, ProfileLevel::kOff);
  Profiler::Context* context = quiet.Open({.comm = 8, .rank = 0, .ranks = 2, .nodes = 2}, &other);
  EXPECT_EQ(other, 0);
  quiet.Close(context);
}

TEST(ProfileLevel, EachHoldsTheOnesBefore) {
  int before = 0;
  for (uint32_t level = 0; level <= 3; ++level) {
    const int mask = MaskOf(static_cast<ProfileLevel>(level));
    EXPECT_EQ(mask & before, before);
    before = mask;
  }
  EXPECT_EQ(MaskOf(ProfileLevel::kOff), 0);
  EXPECT_EQ(MaskOf(ProfileLevel::kKernels), 2 | 4 | 8 | 16 | 64);
}

TEST(ProfileLevel, TheAgentsWordLapsesAndNonsenseIsOff) {
  auto table = std::make_unique<abi::PolicyTable>();
  const auto level = [&](uint64_t now) { return LevelAt(*table, ProfileLevel::kCollectives, now); };
  EXPECT_EQ(level(1000 * kMs), ProfileLevel::kCollectives) << "no word";
  table->profile.store(3);
  table->profile_until_ns.store(2000 * kMs);
  EXPECT_EQ(level(1000 * kMs), ProfileLevel::kKernels);
  EXPECT_EQ(level(2000 * kMs), ProfileLevel::kCollectives) << "lapsed";
  table->profile.store(0);
  EXPECT_EQ(level(1000 * kMs), ProfileLevel::kOff) << "the agent may also switch it off";
  table->profile.store(77);
  EXPECT_EQ(level(1000 * kMs), ProfileLevel::kOff);
  table->profile.store(3);
  table->profile_until_ns.store(UINT64_MAX);
  EXPECT_EQ(level(1000 * kMs), ProfileLevel::kCollectives) << "no lease is that long";
}

TEST(ProfilerNames, AreNccls) {
  EXPECT_EQ(OperationOf("AllReduce"), Operation::kAllReduce);
  EXPECT_EQ(OperationOf("Broadcast"), Operation::kBroadcast);
  EXPECT_EQ(OperationOf("SendRecv"), Operation::kPointToPoint);
  EXPECT_EQ(OperationOf(nullptr), Operation::kPointToPoint);
  EXPECT_EQ(AlgorithmOf("NVLS_TREE"), 5u);
  EXPECT_EQ(AlgorithmOf("Ring"), UINT32_MAX);
  EXPECT_EQ(ProtocolOf("LL128"), 1u);
  EXPECT_EQ(ElementBytes("ncclBfloat16"), 2u);
  EXPECT_EQ(ElementBytes("ncclFloat8e4m3"), 1u);
  EXPECT_EQ(ElementBytes("ncclInt64"), 8u);
  EXPECT_EQ(ElementBytes(nullptr), 1u);
}

}  // namespace
}  // namespace weft::net

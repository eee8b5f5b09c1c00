// What RDMA flows do when queue pairs, paths, ports and peers fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "netplugin/rdma/testing/flow_fixture.h"
#include "netplugin/telemetry/watchdog.h"
#include "netplugin/testing/agent.h"
#include "netplugin/testing/fuzz.h"

namespace weft::net::rdma {
namespace {

using testing::Eventually;
using testing::FakeFabric;

using testing::kRoom;
using net::testing::LogCapture;
using ::testing::IsEmpty;
using ::testing::Not;

class RdmaFailures : public testing::FlowFixture {};

TEST_F(RdmaFailures, FailedQueuePairsLoseNothingAndTouchNoFreeBuffer) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  fabric_.FailWrites(80);
  Exchange(600, 32 << 10, 32);
  const auto counts = fabric_.counts();
  EXPECT_GT(counts.failures, 5u);
  EXPECT_GT(counts.lost_acknowledgements, 0u);
}

TEST_F(RdmaFailures, FailuresUnderAdaptiveRoutingLoseNothingEither) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.adaptive_routing = 1, rdma.queue_pairs = 3; }));
  fabric_.FailWrites(100);
  Exchange(400, 48 << 10, 32);
  EXPECT_GT(fabric_.counts().failures, 3u);
}

TEST_F(RdmaFailures, ABrokenPathIsLeftToTheOthers) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  const auto broken = static_cast<uint16_t>(sender().lanes[2].source_port.load());
  Exchange(100, 64 << 10, 16, [&](int sent) {
    if (sent == 30) fabric_.BreakPath(broken);
  });
  EXPECT_EQ(sender().lanes[2].weight.load(), 0u);
  for (const uint32_t lane : {0u, 1u, 3u}) EXPECT_EQ(sender().lanes[lane].weight.load(), 1u);
}

/// Plugs a cable in again when something has failed for want of it, some sweeps later.
class Restorer final : public BackgroundTask {
 public:
  explicit Restorer(FakeFabric& fabric) : fabric_(fabric) {}
  void Sweep(const Tick&) override {
    if (fabric_.counts().failures > 0 && ++sweeps_ == 5) fabric_.SetPort(0, true);
  }

 private:
  FakeFabric& fabric_;
  int sweeps_ = 0;
};

TEST_F(RdmaFailures, APortThatWasDownIsUsedAgain) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Restorer restorer(fabric_);
  background_.Add(&restorer);
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.SetPort(0, false);
  });
  background_.Remove(&restorer);
  EXPECT_GT(fabric_.counts().failures, 0u);
  for (uint32_t lane = 0; lane < 4; ++lane) EXPECT_EQ(sender().lanes[lane].weight.load(), 1u) << "no path is to blame";
}

TEST_F(RdmaFailures, ADeviceThatForgetsAPairIsReminded) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 8, rdma.retry_count = 0; }));
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.ForgetNextPair();
  });
  EXPECT_GT(fabric_.counts().writes, 60u);
}

TEST_F(RdmaFailures, ALaneThatGetsNoAnswerSaysSoLongBeforeItFails) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 14, rdma.retry_count = 7; }));
  uint32_t longest_ms = 0;
  for (int round = 0; round < 8 && longest_ms == 0; ++round) {  // now and then it is the pair for credits
    Exchange(40, 16 << 10, 8, [&](int sent) {
      if (sent == 20) fabric_.ForgetNextPair();
    }, [&] {
      for (const auto& silent_ms : sender().silent_ms) longest_ms = std::max(longest_ms, silent_ms.load());
    });
  }
  EXPECT_GE(longest_ms, 200u);
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::all_of(sender().silent_ms, [](const auto& silent_ms) { return silent_ms.load() == 0; });
  })) << "all is answered";
}

TEST_F(RdmaFailures, AWriteBeforeTheFirstSampleIsNoStandstill) {
  in_background_ = false;
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 1, rdma.retry_count = 0; }));
  fabric_.ForgetNextPair();  // so that the credit is in flight still
  Request* receive = nullptr;
  ASSERT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess);
  LogCapture::Clear();
  const uint64_t now = NowNs();
  TaskOf(*recv_).Sweep({now, true});
  EXPECT_THAT(LogCapture::Lines(), IsEmpty()) << "the flow is young, not stuck";
  TaskOf(*recv_).Sweep({now + 60'000'000'000, true});
  EXPECT_THAT(LogCapture::Lines(), Not(IsEmpty())) << "a minute later it is";
}

TEST_F(RdmaFailures, WhatArrivedBeforeTheSenderWentIsGivenOut) {
  in_background_ = false;
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.queue_pairs = 8; }));
  constexpr size_t kCount = 32, kBytes = 8 * 4096;
  Request* receives[kCount] = {};
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(recv_->Irecv(&target_[i * kBytes], kBytes, 0, target_handle_, &receives[i]), nccl::kSuccess);
    ASSERT_NE(receives[i], nullptr);
  }
  Request* sends[kCount] = {};
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(Eventually([&] {
      EXPECT_EQ(send_->Isend(&source_[i * kBytes], kBytes, 0, source_handle_, &sends[i]), nccl::kSuccess);
      return sends[i] != nullptr || HasFailure();
    }));
  }
  for (Request* send : sends) {
    int done = 0;
    ASSERT_TRUE(Eventually([&] {
      EXPECT_EQ(send_->Test(send, &done, nullptr), nccl::kSuccess);
      return done != 0 || HasFailure();
    }));
  }
  send_.reset();
  TaskOf(*recv_).Sweep({NowNs(), false});  // sees the end of the connection, takes no completion
  for (size_t i = kCount; i-- > 0;) {      // the last one is furthest back in the queue
    int done = 0, size = 0;
    EXPECT_EQ(recv_->Test(receives[i], &done, &size), nccl::kSuccess) << i;
    EXPECT_EQ(done, 1) << i;
    EXPECT_EQ(static_cast<size_t>(size), kBytes) << i;
  }
}

TEST_F(RdmaFailures, AReceiverThatIsGoneIsARemoteError) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  recv_.reset();
  int code = nccl::kSuccess;
  ASSERT_TRUE(Eventually([&] {
    Request* request = nullptr;
    code = send_->Isend(source_.data(), 10, 0, source_handle_, &request);
    return code != nccl::kSuccess;
  }));
  EXPECT_EQ(code, nccl::kRemoteError);
}

TEST_F(RdmaFailures, ASenderThatIsGoneIsARemoteError) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Request* request = nullptr;
  ASSERT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &request), nccl::kSuccess);
  ASSERT_NE(request, nullptr);
  send_.reset();
  int code = nccl::kSuccess, done = 0;
  ASSERT_TRUE(Eventually([&] {
    code = recv_->Test(request, &done, nullptr);
    return code != nccl::kSuccess;
  }));
  EXPECT_EQ(code, nccl::kRemoteError);
  EXPECT_EQ(done, 0);
}

TEST_F(RdmaFailures, ASlowDeviceIsStoppedInSeveralSweeps) {
  class Releaser final : public BackgroundTask {
   public:
    explicit Releaser(FakeFabric& fabric) : fabric_(fabric) {}
    void Sweep(const Tick&) override {
      if (fabric_.counts().failures > 0 && ++sweeps_ == 3) fabric_.HoldFlushes(false);
    }

   private:
    FakeFabric& fabric_;
    int sweeps_ = 0;
  };
  ASSERT_NO_FATAL_FAILURE(Connect());
  Releaser releaser(fabric_);
  background_.Add(&releaser);
  Exchange(80, 16 << 10, 16, [&](int sent) {
    if (sent == 20) fabric_.HoldFlushes(true);
    fabric_.FailWrites(sent >= 20 && fabric_.counts().failures == 0 ? 2 : 0);
  });
  background_.Remove(&releaser);
  EXPECT_GT(fabric_.counts().failures, 0u);
}

/// All at once, as many messages as WEFT_FIRE_MESSAGES asks for.
TEST_F(RdmaFailures, NothingIsLostUnderFire) {
  net::testing::PolicyFile file;
  std::string why;
  auto mapping = PolicyMapping::Map(file.fd(), &why);
  ASSERT_TRUE(mapping) << why;
  policies_.Offer(std::move(mapping));
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 8, rdma.retry_count = 0; }));
  std::mt19937_64 random(5);
  const char* wanted = std::getenv("WEFT_FIRE_MESSAGES");
  const int rounds = std::max(1, (wanted ? std::atoi(wanted) : 300) / 100);
  uint64_t down_since = 0;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    fabric_.FailWrites(random() % 2 ? 200 + static_cast<uint32_t>(random() % 2'000) : 0);
    Exchange(100, 24 << 10, 32, [&](int) {
      const auto port = static_cast<uint16_t>(sender().lanes[random() % 4].source_port.load());
      if (random() % 400 == 0) fabric_.BreakPath(port);
      if (random() % 100 == 0) fabric_.BreakPath(0);
      if (random() % 500 == 0) fabric_.ForgetNextPair();
      if (random() % 100 == 0) {
        const auto first = static_cast<uint16_t>(kFirstRocePort + 100 + random() % 6);
        const auto weight = static_cast<uint32_t>(random() % 5);
        const net::testing::WantedLane lanes[] = {{first, 1 + weight}, {static_cast<uint16_t>(first + 1), 4 - weight}};
        abi::FlowPolicy policy = net::testing::MakePolicy(sender().flow, lanes);
        policy.traffic_class = random() % 20 == 0 ? 104 : 0;
        policy.lease_until_ns = NowNs() + 50'000'000;
        file.Write(policy);
      }
      if (down_since == 0 && random() % 300 == 0) {
        fabric_.SetPort(0, false);
        down_since = NowNs();
      }
    }, [&] {
      if (down_since == 0 || NowNs() < down_since + 10'000'000) return;
      fabric_.SetPort(0, true);
      down_since = 0;
    });
  }
  EXPECT_GT(fabric_.counts().failures, 0u);
}

TEST_F(RdmaFailures, AFlushThatFailedIsDoneAgain) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  void* gpu = nullptr;
  ASSERT_EQ(recv_->RegMrDmaBuf(target_.data(), kRoom, nccl::kPtrDmaBuf, 0, 1, &gpu), nccl::kSuccess);
  for (const bool broken : {true, false}) {
    Request* flushes[3] = {};
    if (broken) fabric_.FailWrites(1);
    for (Request*& flush : flushes) {
      ASSERT_EQ(recv_->Iflush(target_.data() + 64, 100, gpu, &flush), nccl::kSuccess);
      ASSERT_NE(flush, nullptr);
    }
    for (Request* flush : flushes) {
      int done = 0;
      ASSERT_TRUE(Eventually([&] {
        EXPECT_EQ(recv_->Test(flush, &done, nullptr), nccl::kSuccess);
        if (fabric_.counts().failures > 2) fabric_.FailWrites(0);
        return done != 0 || HasFailure();
      }));
    }
  }
  EXPECT_GT(fabric_.counts().failures, 2u);
  EXPECT_EQ(recv_->DeregMr(gpu), nccl::kSuccess);
}

TEST_F(RdmaFailures, AFlushThatCannotBeDoneIsAnErrorInTheEnd) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.recovery_s = 1; }));
  void* gpu = nullptr;
  ASSERT_EQ(recv_->RegMrDmaBuf(target_.data(), kRoom, nccl::kPtrDmaBuf, 0, 1, &gpu), nccl::kSuccess);
  fabric_.FailWrites(1);
  Request* flush = nullptr;
  ASSERT_EQ(recv_->Iflush(target_.data(), 1, gpu, &flush), nccl::kSuccess);
  int code = nccl::kSuccess, done = 0;
  ASSERT_TRUE(Eventually([&] { return (code = recv_->Test(flush, &done, nullptr)) != nccl::kSuccess; }));
  EXPECT_EQ(code, nccl::kSystemError);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(recv_->DeregMr(gpu), nccl::kSuccess);
}

TEST_F(RdmaFailures, AWriteThatNobodyAnswersIsNamedAsSuchByTheWatchdog) {
  in_background_ = false;
  ASSERT_NO_FATAL_FAILURE(Connect());
  Request *receive = nullptr, *send = nullptr;
  ASSERT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess);
  ASSERT_TRUE(Eventually([&] {  // the credit arrives; the write is forgotten
    int done = 0;
    EXPECT_EQ(recv_->Test(receive, &done, nullptr), nccl::kSuccess);
    if (fabric_.counts().writes == 1) fabric_.ForgetNextPair();
    EXPECT_EQ(send_->Isend(source_.data(), 100, 0, source_handle_, &send), nccl::kSuccess);
    return send != nullptr || HasFailure();
  }));
  send_->in_flight.Posted(100);
  const auto observations = std::make_unique<abi::Observations>();
  Observer observer(observations.get());
  const StallEnvironment settings{.after_s = 3};  // before the flow itself takes the device for stuck
  Watchdog watchdog(observer, settings);
  watchdog.Add(send_.get());
  const uint64_t now = NowNs();
  for (const uint64_t seconds : {0, 1, 4}) {
    TaskOf(*send_).Sweep({now + seconds * 1'000'000'000, true});
    watchdog.Sweep({now + seconds * 1'000'000'000, true});
  }
  EXPECT_EQ(observations->stalls[0].state.load(), static_cast<uint32_t>(abi::SlotState::kOpen));
  EXPECT_EQ(observations->stalls[0].cause.load(), static_cast<uint32_t>(abi::StallCause::kNoAcknowledgement));
  watchdog.Remove(send_.get());
}

TEST_F(RdmaFailures, AConnectThatNobodyAsksForIsGivenUp) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Handle handle{};
  const auto listen = RdmaListenComm::Open(*services_, ends_[1], &handle);
  ASSERT_TRUE(listen);
  RdmaConnector connector(*services_);
  std::unique_ptr<Comm> comm;
  ASSERT_EQ(connector.Step(&handle, ends_[0], &comm), nccl::kSuccess);
  const uint64_t now = NowNs();
  EXPECT_EQ(connector.Collect(now + 299'000'000'000), 1u);
  EXPECT_EQ(connector.Collect(now + 301'000'000'000), 0u);
  EXPECT_EQ(connector.Step(&handle, ends_[0], &comm), nccl::kInvalidArgument) << "its ticket is void";
}

/// A peer that gets as far as it can with spoiled messages: whatever it says, the receiver's end comes to an end.
TEST_F(RdmaFailures, MutantControlMessagesAreAnErrorAtMost) {
  in_background_ = false;
  ASSERT_NO_FATAL_FAILURE(Connect());
  int accepted = 0;
  const int rounds = std::max(300, net::testing::FuzzRounds(0) / 20);
  for (int round = 0; round < rounds; ++round) {
    Handle handle{};
    const auto listen = RdmaListenComm::Open(*services_, ends_[1], &handle);
    ASSERT_TRUE(listen);
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Address address = net::testing::Loopback();
    address.port = handle.port;
    sockaddr_storage storage;
    const socklen_t length = address.ToSockaddr(&storage);
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
    const linger reset{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    std::string why;
    const auto pairs = QueuePairs::Make(ends_[0].port, 4, false, &why);
    ASSERT_TRUE(pairs) << why;
    std::unique_ptr<Comm> comm;
    void* region = nullptr;
    uint32_t generation = 0;
    using enum ControlType;
    for (const ControlType type : {kHello, kReady, kReset, kReady}) {
      ControlMessage message{};
      message.magic = kControlMagic;
      message.version = kRdmaWireVersion;
      message.cookie = handle.cookie;
      message.flow = 1 + random_() % 1000;
      pairs->Describe(&message);
      message.type = type;
      message.generation = type == ControlType::kReset ? ++generation : generation;
      // Now and then nothing is spoiled, or the mutants would never get past the first message.
      if (random_() % 3 == 0) net::testing::Spoil(&message, random_, 3, random_() % 2 ? 0 : 8);
      if (send(fd.get(), &message, sizeof message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof message)) break;
      if (!comm) {
        EXPECT_EQ(listen->Accept(&comm), nccl::kSuccess);
        if (!comm) continue;
        ++accepted;
        ASSERT_EQ(comm->RegMr(target_.data(), target_.size(), nccl::kPtrHost, &region), nccl::kSuccess);
        Request* request = nullptr;
        comm->Irecv(target_.data(), 100, 0, region, &request);
      }
      TaskOf(*comm).Sweep({NowNs(), true});
    }
    if (region) comm->DeregMr(region);
  }
  EXPECT_GT(accepted, rounds / 10);
}

}  // namespace
}  // namespace weft::net::rdma

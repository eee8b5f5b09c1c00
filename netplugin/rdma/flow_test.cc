// Whole RDMA flows over a fabric in memory that fails as hardware does. One thread plays NCCL on both ends; the
// plugin's background thread is real.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <cstring>
#include <functional>
#include <random>
#include <set>

#include "netplugin/log.h"
#include "netplugin/rdma/testing/fake_fabric.h"
#include "netplugin/rdma/transport.h"
#include "netplugin/testing/agent.h"

namespace weft::net::rdma {
namespace {

using testing::FakeFabric;
using net::testing::MakePolicy;
using net::testing::PolicyFile;
using net::testing::WantedLane;

constexpr size_t kRoom = 3 << 20;
constexpr char kUntouched = 0x5A;

bool Eventually(const std::function<bool()>& step) {
  const uint64_t deadline = NowNs() + 30'000'000'000;
  while (!step()) {
    if (NowNs() > deadline) return false;
    sched_yield();
  }
  return true;
}

/// Puts offered policies in force, as the agent's link does.
class Turner final : public BackgroundTask {
 public:
  explicit Turner(PolicyStore& store) : store_(store) {}
  void Sweep(const Tick&) override { store_.Turn(); }

 private:
  PolicyStore& store_;
};

class RdmaFlow : public ::testing::Test {
 protected:
  /// Rank 0 on device 0 sends to rank 1 on device 1.
  void Connect(const std::function<void(RdmaEnvironment&)>& change = [](RdmaEnvironment&) {}) {
    environment_.rdma.split_bytes = 4096;
    environment_.rdma.recovery_s = 20;
    change(environment_.rdma);
    telemetry_ = Telemetry::Create(environment_, 12);
    services_ = std::make_unique<Services>(Services{environment_, *telemetry_, policies_, background_});
    std::string why;
    for (uint32_t i = 0; i < 2; ++i) {
      auto port = fabric_.OpenPort(static_cast<int>(i), environment_.rdma, &why);
      ends_[i] = {.device = i, .port = port, .address = Loopback(), .comm_id = 1, .traffic_class = 0};
      ASSERT_TRUE(ends_[i].port) << why;
      ends_[i].port->set_path_probe(probe_);
      background_.Add(ends_[i].port.get());
    }
    background_.Add(&turner_);
    if (in_background_) background_.Start();
    Handle handle{};
    const auto listen = RdmaListenComm::Open(*services_, ends_[1], &handle);
    ASSERT_TRUE(listen);
    RdmaConnector connector(*services_);
    ASSERT_TRUE(Eventually([&] {
      if (!send_) { EXPECT_EQ(connector.Step(&handle, ends_[0], &send_), nccl::kSuccess); }
      if (!recv_) { EXPECT_EQ(listen->Accept(&recv_), nccl::kSuccess); }
      return (send_ && recv_) || ::testing::Test::HasFailure();
    }));
    source_.resize(kRoom);
    target_.assign(kRoom, kUntouched);
    ASSERT_EQ(send_->RegMr(source_.data(), source_.size(), nccl::kPtrHost, &source_handle_), nccl::kSuccess);
    ASSERT_EQ(recv_->RegMr(target_.data(), target_.size(), nccl::kPtrHost, &target_handle_), nccl::kSuccess);
  }

  ~RdmaFlow() override {
    send_.reset();
    recv_.reset();
    background_.Stop();
  }

  static Address Loopback() {
    Address address;
    address.family = AF_INET;
    address.bytes[0] = 127;
    address.bytes[3] = 1;
    return address;
  }

  /// `count` messages of up to `largest` bytes, `window` in flight, each into its own part of the target. A buffer is
  /// marked when its receive is done, and must keep the mark until it is used again.
  void Exchange(int count, size_t largest, int window, const std::function<void(int)>& meanwhile = [](int) {});

  static BackgroundTask& TaskOf(Comm& comm) { return dynamic_cast<BackgroundTask&>(comm); }

  const abi::FlowSlot& sender() { return *send_->slot(); }

  FakeFabric fabric_{2, 17};
  Environment environment_;
  std::unique_ptr<Telemetry> telemetry_;
  PolicyStore policies_;
  Background background_;
  bool in_background_ = true;  // false: the test sweeps itself
  Turner turner_{policies_};
  PathProbe probe_;
  std::unique_ptr<Services> services_;
  LocalEnd ends_[2];
  std::unique_ptr<Comm> send_, recv_;
  std::vector<char> source_, target_;
  void* source_handle_ = nullptr;
  void* target_handle_ = nullptr;
  std::mt19937_64 random_{23};
};

char ByteOf(int message, size_t place) { return static_cast<char>(message * 131 + place * 7 + (place >> 9)); }

void RdmaFlow::Exchange(int count, size_t largest, int window, const std::function<void(int)>& meanwhile) {
  struct Place {
    Request* send = nullptr;
    Request* receive = nullptr;
    int message = -1;
    size_t size = 0;
  };
  std::vector<Place> places(static_cast<size_t>(window));
  const size_t step = kRoom / places.size();
  ASSERT_LE(largest, step);
  std::vector<size_t> sizes(static_cast<size_t>(count));
  for (size_t& size : sizes) size = random_() % 8 == 0 ? random_() % 200 : random_() % (largest + 1);
  int posted = 0, sent = 0, done = 0;
  ASSERT_TRUE(Eventually([&] {
    if (posted < count) {
      Place& place = places[static_cast<size_t>(posted % window)];
      char* to = &target_[static_cast<size_t>(posted % window) * step];
      if (place.message < 0) {
        EXPECT_EQ(recv_->Irecv(to, step, 0, target_handle_, &place.receive), nccl::kSuccess);
        if (place.receive) {
          for (size_t i = 0; i < step; ++i) {
            if (to[i] != kUntouched) ADD_FAILURE() << "message " << posted << ": a free buffer was written to at " << i;
            if (to[i] != kUntouched) break;
          }
          place.message = posted++;
          place.size = sizes[static_cast<size_t>(place.message)];
        }
      }
    }
    if (sent < posted) {
      Place& place = places[static_cast<size_t>(sent % window)];
      char* from = &source_[static_cast<size_t>(sent % window) * step];
      if (!place.send) {
        for (size_t i = 0; i < place.size; ++i) from[i] = ByteOf(sent, i);
        EXPECT_EQ(send_->Isend(from, place.size, 0, source_handle_, &place.send), nccl::kSuccess);
        if (place.send) meanwhile(sent++);
      }
    }
    Place& oldest = places[static_cast<size_t>(done % window)];
    if (oldest.message == done && sent > done) {
      int finished = 0, size = 0;
      if (oldest.receive) {
        EXPECT_EQ(recv_->Test(oldest.receive, &finished, &size), nccl::kSuccess);
        if (finished) {
          oldest.receive = nullptr;
          EXPECT_EQ(static_cast<size_t>(size), oldest.size);
          char* to = &target_[static_cast<size_t>(done % window) * step];
          for (size_t i = 0; i < oldest.size; ++i) {
            if (to[i] != ByteOf(done, i)) ADD_FAILURE() << "message " << done << " is wrong at " << i;
            if (to[i] != ByteOf(done, i)) break;
          }
          std::memset(to, kUntouched, step);
        }
      }
      if (oldest.send) {
        EXPECT_EQ(send_->Test(oldest.send, &finished, &size), nccl::kSuccess);
        if (finished) oldest.send = nullptr;
      }
      if (!oldest.send && !oldest.receive) {
        oldest.message = -1;
        ++done;
      }
    }
    return done == count || ::testing::Test::HasFailure();
  })) << "stuck: " << posted << " posted, " << sent << " sent, " << done << " done of " << count;
  const auto counts = fabric_.counts();
  EXPECT_EQ(counts.access_errors, 0u);
  EXPECT_EQ(counts.overruns, 0u);
}

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

TEST_F(RdmaFlow, FailedQueuePairsLoseNothingAndTouchNoFreeBuffer) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  fabric_.FailWrites(80);
  Exchange(600, 32 << 10, 32);
  const auto counts = fabric_.counts();
  EXPECT_GT(counts.failures, 5u);
  EXPECT_GT(counts.lost_acknowledgements, 0u);
}

TEST_F(RdmaFlow, FailuresUnderAdaptiveRoutingLoseNothingEither) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.adaptive_routing = 1, rdma.queue_pairs = 3; }));
  fabric_.FailWrites(100);
  Exchange(400, 48 << 10, 32);
  EXPECT_GT(fabric_.counts().failures, 3u);
}

TEST_F(RdmaFlow, ABrokenPathIsLeftToTheOthers) {
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

TEST_F(RdmaFlow, APortThatWasDownIsUsedAgain) {
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

TEST_F(RdmaFlow, ADeviceThatForgetsAPairIsReminded) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 8, rdma.retry_count = 0; }));
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.ForgetNextPair();
  });
  EXPECT_GT(fabric_.counts().writes, 60u);
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

std::string g_warnings;

void KeepWarning(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level == nccl::kLogWarn) g_warnings += format;
}

TEST_F(RdmaFlow, AWriteBeforeTheFirstSampleIsNoStandstill) {
  in_background_ = false;
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 1, rdma.retry_count = 0; }));
  fabric_.ForgetNextPair();  // so that the credit is in flight still
  Request* receive = nullptr;
  ASSERT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess);
  g_warnings.clear();
  SetLogger(&KeepWarning);
  const uint64_t now = NowNs();
  TaskOf(*recv_).Sweep({now, true});
  EXPECT_EQ(g_warnings, "") << "the flow is young, not stuck";
  TaskOf(*recv_).Sweep({now + 60'000'000'000, true});
  SetLogger(nullptr);
  EXPECT_NE(g_warnings, "") << "a minute later it is";
}

TEST_F(RdmaFlow, WhatArrivedBeforeTheSenderWentIsGivenOut) {
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

TEST_F(RdmaFlow, MemoryWithoutAHandleIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Request* request = nullptr;
  EXPECT_EQ(recv_->Irecv(target_.data(), 100, 0, nullptr, &request), nccl::kInvalidArgument);
  void* handle = nullptr;
  EXPECT_EQ(recv_->RegMr(target_.data(), 100, nccl::kPtrCuda, &handle), nccl::kInvalidUsage);
}

TEST_F(RdmaFlow, AReceiverThatIsGoneIsARemoteError) {
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

TEST_F(RdmaFlow, ASenderThatIsGoneIsARemoteError) {
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

}  // namespace
}  // namespace weft::net::rdma

// A flow between two ends whose lanes fall silent one after the other, as behind a switch that takes packets and forwards none: nothing
// says so, and no path comes back. The bytes are taken from the kernel as the agent does it. Needs root.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "agent/unsent_bytes.h"
#include "netplugin/tcp/connector.h"
#include "netplugin/tcp/listener.h"
#include "netplugin/tcp/recv_comm.h"
#include "netplugin/testing/wire_fixture.h"
#include "testbed/require_fabric.h"
#include "tests/fire/cable.h"

namespace weft::net::fire {
namespace {

/// The agent's answer without its socket.
class Taker final : public UnsentBytes {
 public:
  enum class How { kAnswer, kHang, kLose };
  std::atomic<How> how{How::kAnswer};
  std::atomic<size_t> greeting{0};  // bytes in front that are none of the stream

  bool Ask(int fd, uint64_t token, uint64_t) override {
    const std::lock_guard lock(mutex_);
    if (how == How::kHang) return true;
    Result<agent::UnsentBytes> taken = agent::TakeUnsent(fd);
    Answer& answer = answers_[token];
    if (!taken) return true;
    ++taken_;
    if (how == How::kLose) return true;
    std::string all(greeting, 'g');
    all.resize(greeting + taken->bytes);
    EXPECT_EQ(pread(taken->file.get(), all.data() + greeting, taken->bytes, 0), static_cast<ssize_t>(taken->bytes));
    answer.file.Reset(memfd_create("unsent", MFD_CLOEXEC));
    EXPECT_EQ(write(answer.file.get(), all.data(), all.size()), static_cast<ssize_t>(all.size()));
    answer.bytes = all.size();
    return true;
  }
  std::optional<Answer> Take(uint64_t token) override {
    const std::lock_guard lock(mutex_);
    if (how == How::kHang) return std::nullopt;
    Answer answer = std::move(answers_[token]);
    answers_.erase(token);
    return answer;
  }
  void Forget(uint64_t token) override {
    const std::lock_guard lock(mutex_);
    answers_.erase(token);
  }
  int taken() {
    const std::lock_guard lock(mutex_);
    return taken_;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, Answer> answers_;
  int taken_ = 0;
};

int Shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()); }  // NOLINT(concurrency-mt-unsafe)

/// Drops what goes to and comes from a port of lane 0, in one direction or both.
bool Silence(uint16_t port, bool data, bool acknowledgements) {
  const std::string rule = "nft add rule inet silence in tcp ", drop = std::to_string(port) + " drop";
  return Shell("nft flush chain inet silence in") == 0 && (!data || Shell(rule + "sport " + drop) == 0) &&
         (!acknowledgements || Shell(rule + "dport " + drop) == 0);
}

class SilentLane : public ::testing::Test {
 protected:
  static constexpr size_t kMost = 300'000;
  static constexpr int kPosted = 8;

  void SetUp() override {
    if (!Cable::Isolate()) {
      if (testbed::IsRequired("fabric")) { FAIL() << "network namespaces are not permitted"; }
      GTEST_SKIP() << "fabric: network namespaces are not permitted";
    }
    ASSERT_EQ(Shell("ip link set lo up"), 0);
    ASSERT_EQ(Shell("nft 'add table inet silence; add chain inet silence in { type filter hook input priority 0 ; }'"), 0);
    telemetry_ = Telemetry::Create(environment_, 12);
    listener_ = Listener::Open(testing::Loopback(), background_);
    ASSERT_TRUE(listener_);
    background_.Start();
    Connector connector(services());
    Handle handle = MakeHandle(listener_->address(), listener_->cookie(), environment_);
    std::unique_ptr<Arrival> arrival;
    for (int tries = 0; tries < 10'000 && !arrival; ++tries) {
      const int code = send_ ? nccl::kSuccess : connector.Step(&handle, {.local = testing::Loopback()}, &send_);
      ASSERT_EQ(code, nccl::kSuccess);
      if (send_) arrival = listener_->TakeFlow();
    }
    ASSERT_TRUE(arrival);
    RecvComm::Setup setup;
    setup.identity.peer = arrival->peer;
    setup.identity.local = testing::Loopback();
    setup.identity.flow = arrival->hello.flow;
    setup.lane0 = std::move(arrival->fd);
    setup.listener = listener_;
    recv_ = std::make_unique<RecvComm>(services(), std::move(setup));
  }
  void TearDown() override {
    send_.reset();
    recv_.reset();
    listener_.reset();
    background_.Stop();
  }
  Services services() { return {environment_, *telemetry_, policies_, background_, &taker_}; }

  uint16_t Port() const { return static_cast<uint16_t>(send_->slot()->lanes[0].source_port.load()); }
  /// What is told of a lane from that port that failed, in ms.
  uint32_t SilentFor(uint16_t port) const {
    for (size_t i = 1; i < abi::kMaxLanes; ++i) {
      const abi::LaneTelemetry& lane = send_->slot()->lanes[i];
      const bool failed = lane.state.load() == static_cast<uint32_t>(abi::LaneState::kFailed);
      if (failed && lane.source_port.load() == port) return send_->slot()->silent_ms[i].load();
    }
    return 0;
  }
  static char Byte(uint32_t number, size_t at) { return static_cast<char>(number * 31 + at * 7 + (at >> 8)); }
  static int32_t TagOf(uint32_t number, bool tagged) { return tagged ? static_cast<int32_t>(number % 2) : 0; }

  struct Sent {
    std::vector<char> data;
    Request* request;
  };
  struct Received {
    uint32_t number;
    std::vector<char> data;
    Request* request;
  };

  /// A message more, if the flow takes it; what it has sent is overwritten.
  void Send(bool tagged) {
    if (sent_.size() < kPosted) {
      Sent next{std::vector<char>(random_() % kMost), nullptr};
      for (size_t i = 0; i < next.data.size(); ++i) next.data[i] = Byte(next_send_, i);
      ASSERT_EQ(send_->Send(next.data.data(), next.data.size(), TagOf(next_send_, tagged), &next.request), nccl::kSuccess);
      if (next.request) {
        ++next_send_;
        sent_.push_back(std::move(next));
      }
    }
    int done = 0;
    while (!sent_.empty()) {
      ASSERT_EQ(send_->Test(sent_.front().request, &done, nullptr), nccl::kSuccess);
      if (done == 0) return;
      std::ranges::fill(sent_.front().data, '!');
      sent_.pop_front();
    }
  }

  /// Where tagged, two of one tag are posted before two of the other.
  static uint32_t NumberOf(uint32_t receive, bool tagged) {
    constexpr uint32_t kOrder[] = {1, 3, 0, 2};
    return tagged ? receive / 4 * 4 + kOrder[receive % 4] : receive;
  }

  void Receive(bool tagged) {
    if (received_.size() < kPosted) {
      Received next{NumberOf(next_receive_, tagged), std::vector<char>(kMost), nullptr};
      ASSERT_EQ(recv_->Receive(next.data.data(), next.data.size(), TagOf(next.number, tagged), &next.request), nccl::kSuccess);
      if (next.request) {
        ++next_receive_;
        received_.push_back(std::move(next));
      }
    }
    while (!received_.empty()) {
      int done = 0, size = 0;
      Received& first = received_.front();
      ASSERT_EQ(recv_->Test(first.request, &done, &size), nccl::kSuccess);
      if (done == 0) return;
      for (size_t i = 0; i < static_cast<size_t>(size); ++i) ASSERT_EQ(first.data[i], Byte(first.number, i)) << first.number << " at " << i;
      received_.pop_front();
      ++whole_;
    }
  }

  /// Both ends, until `until` says so. False after 30 s.
  bool Run(bool tagged, const std::function<bool()>& until) {
    const uint64_t deadline = NowNs() + 30'000'000'000;
    while (!until() && NowNs() < deadline && !HasFatalFailure()) {
      Send(tagged);
      Receive(tagged);
    }
    return until();
  }

  void RunThroughSilences(bool tagged) {
    for (int round = 0; round < 6; ++round) {
      const uint16_t before = Port();
      const uint32_t whole = whole_;
      ASSERT_TRUE(Run(tagged, [&] { return whole_ >= whole + 50; }));
      ASSERT_TRUE(Silence(before, round % 3 != 1, round % 3 != 0));
      ASSERT_TRUE(Run(tagged, [&] { return Port() != before; })) << "round " << round;
      ASSERT_TRUE(Run(tagged, [&] { return SilentFor(before) >= 1000; })) << "it is told of the port that was left";
      const uint32_t then = whole_;
      ASSERT_TRUE(Run(tagged, [&] { return whole_ >= then + 50; })) << "round " << round;
    }
    EXPECT_GE(taker_.taken(), 6);
  }

  Environment environment_;
  std::unique_ptr<Telemetry> telemetry_;
  PolicyStore policies_;
  Taker taker_;
  Background background_;
  std::shared_ptr<Listener> listener_;
  std::unique_ptr<SendComm> send_;
  std::unique_ptr<RecvComm> recv_;
  std::mt19937 random_{7};
  std::deque<Sent> sent_;
  std::deque<Received> received_;
  uint32_t next_send_ = 0, next_receive_ = 0, whole_ = 0;
};

TEST_F(SilentLane, EveryMessageArrivesWholeOverAnotherPath) { RunThroughSilences(false); }
TEST_F(SilentLane, EveryMessageArrivesWholeWhereTagsDecideToo) { RunThroughSilences(true); }

/// How its connection began was not acknowledged either.
TEST_F(SilentLane, WhatComesBeforeTheStreamIsNotTakenForIt) {
  taker_.greeting = sizeof(LaneHello);
  const uint16_t before = Port();
  ASSERT_TRUE(Silence(before, true, true));
  ASSERT_TRUE(Run(false, [&] { return Port() != before; }));
  taker_.greeting = 0;
  const uint16_t next = Port();
  ASSERT_TRUE(Run(false, [&] { return whole_ >= 50; }));
  ASSERT_TRUE(Silence(next, true, true));
  ASSERT_TRUE(Run(false, [&] { return Port() != next; }));
  ASSERT_TRUE(Run(false, [&] { return whole_ >= 100; }));
}

TEST_F(SilentLane, AReceiverThatReadsNothingForLongGetsAllAfterwards) {
  ASSERT_TRUE(Run(false, [&] { return whole_ >= 20; }));
  const uint16_t before = Port();
  ASSERT_TRUE(Silence(before, true, true));
  for (const uint64_t until = NowNs() + 8'000'000'000; NowNs() < until && !HasFatalFailure();) {
    Send(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(Run(false, [&] { return whole_ >= 100; }));
  EXPECT_NE(Port(), before);
}

TEST_F(SilentLane, AnAgentThatHangsIsWaitedForAndThenThePath) {
  ASSERT_TRUE(Run(false, [&] { return whole_ >= 20; }));
  const uint16_t before = Port();
  taker_.how = Taker::How::kHang;
  ASSERT_TRUE(Silence(before, true, true));
  const uint64_t until = NowNs() + 3'000'000'000;
  ASSERT_TRUE(Run(false, [&] { return NowNs() >= until; }));
  ASSERT_TRUE(Silence(before, false, false));
  const uint32_t whole = whole_;
  ASSERT_TRUE(Run(false, [&] { return whole_ >= whole + 50; }));
  EXPECT_EQ(Port(), before);
}

TEST_F(SilentLane, BytesThatAreTakenAndLostFailTheFlow) {
  std::vector<char> data(20'000);
  ASSERT_TRUE(Silence(Port(), true, true));
  taker_.how = Taker::How::kLose;
  int code = nccl::kSuccess;
  for (const uint64_t until = NowNs() + 20'000'000'000; NowNs() < until && code == nccl::kSuccess;) {
    Request* request = nullptr;
    code = send_->Send(data.data(), data.size(), 0, &request);
    int done = 0;
    while (code == nccl::kSuccess && request && done == 0 && NowNs() < until) code = send_->Test(request, &done, nullptr);
  }
  EXPECT_EQ(code, nccl::kRemoteError);
}

/// The sender is done with its messages, and leaves, before anything is known of them.
TEST_F(SilentLane, WhatWasTakenFromTheKernelIsSentBeforeTheFlowEnds) {
  const uint16_t before = Port();
  ASSERT_TRUE(Silence(before, true, true));
  std::vector<char> data(20'000), got(20'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = Byte(0, i);
  Request *sent = nullptr, *received = nullptr;
  ASSERT_EQ(send_->Send(data.data(), data.size(), 0, &sent), nccl::kSuccess);
  ASSERT_EQ(recv_->Receive(got.data(), got.size(), 0, &received), nccl::kSuccess);
  int done = 0;
  ASSERT_EQ(send_->Test(sent, &done, nullptr), nccl::kSuccess);
  ASSERT_EQ(done, 1) << "the kernel has it";
  std::ranges::fill(data, '!');
  const uint64_t deadline = NowNs() + 30'000'000'000;
  while (taker_.taken() == 0 && NowNs() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  send_.reset();
  for (done = 0; done == 0 && NowNs() < deadline;) ASSERT_EQ(recv_->Test(received, &done, nullptr), nccl::kSuccess);
  ASSERT_EQ(done, 1);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], Byte(0, i)) << i;
}

}  // namespace
}  // namespace weft::net::fire

// The built library with an agent: policies over real shared memory while data flows, on loopback. For the tests of what
// a policy does; include after gtest.
#pragma once

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "netplugin/testing/agent.h"
#include "netplugin/testing/plugin.h"

namespace weft::net::testing {

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    char folder[] = "/tmp/weft-netplugin-XXXXXX";
    run_dir_ = mkdtemp(folder);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("WEFT_RUN_DIR", run_dir_.c_str(), 1);
    setenv("WEFT_JOB_ID", "job-7", 1);
    setenv("WEFT_RANK", "5", 1);
    setenv("WEFT_WORLD", "8", 1);
    setenv("WEFT_CHUNK_BYTES", "16384", 1);
    agent_ = std::make_unique<Agent>(run_dir_);
    plugin_ = std::make_unique<Plugin>(11);
    EXPECT_EQ(table().Init(&LogCapture::Logger), nccl::kSuccess);
    EXPECT_TRUE(agent_->Greet());
    pair_ = MakePair(table());
  }

  ~AgentTest() override {
    StopTraffic();
    ClosePair(table(), pair_);
    EXPECT_EQ(table().Finalize(), nccl::kSuccess);
    EXPECT_TRUE(plugin_->Unload());
    agent_.reset();
    std::filesystem::remove_all(run_dir_);
    unsetenv("WEFT_JOB_ID");
    unsetenv("WEFT_CHUNK_BYTES");
  }

  Table& table() { return **plugin_; }
  const abi::FlowSlot& flow() { return *FindFlow(agent_->telemetry(), abi::Direction::kSend); }

  /// A policy that leaves the flow with the lane that it began with.
  abi::FlowPolicy KeepFirstLane() {
    const WantedLane lanes[] = {{static_cast<uint16_t>(flow().lanes[0].source_port.load()), 1}};
    return MakePolicy(flow().flow, lanes);
  }

  /// Messages of changing size, up to four in flight, every byte checked, until StopTraffic().
  void StartTraffic() {
    sender_ = std::thread([this] { SendLoop(); });
    receiver_ = std::thread([this] { ReceiveLoop(); });
  }
  void StopTraffic() {
    if (!sender_.joinable()) return;
    stop_ = true;
    sender_.join();
    receiver_.join();
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(sent_, received_);
  }

  /// A message's number is its order: sizes and bytes follow from it, so a swapped pair is seen.
  static size_t SizeOf(uint64_t message) { return message % 7 == 3 ? 100 : 50000 + message % 5 * 40000; }

  void SendLoop() {
    std::array<std::vector<char>, 4> data;
    std::array<void*, 4> requests{};
    for (uint64_t m = 0;; ++m) {
      void*& request = requests[m % 4];
      int done = request == nullptr;
      if (!Eventually([&] { return done || table().Test(request, &done, nullptr) != nccl::kSuccess; }) || !done) break;
      request = nullptr;
      const bool last = stop_;
      Fill(&data[m % 4], last ? 0 : SizeOf(m), m);
      Eventually([&] {
        return table().Send(pair_.send, data[m % 4].data(), last ? 0 : SizeOf(m), &request) != nccl::kSuccess || request;
      });
      if (last) break;
      ++sent_;
    }
    for (void* request : requests) {
      int done = request == nullptr;
      EXPECT_TRUE(Eventually([&] { return done || table().Test(request, &done, nullptr) != nccl::kSuccess; }));
      EXPECT_TRUE(done);
    }
  }

  void ReceiveLoop() {
    std::vector<char> data(300000);
    for (uint64_t m = 0;; ++m) {
      int size = -1;
      const int result = ReceiveAll(table(), pair_.recv, data.data(), data.size(), &size);
      EXPECT_EQ(result, nccl::kSuccess);
      if (result != nccl::kSuccess || size == 0) return;
      const bool right = static_cast<size_t>(size) == SizeOf(m) && Check(data, SizeOf(m), m);
      if (!right) ++wrong_;
      ++received_;
    }
  }

  const abi::LaneTelemetry* LaneOf(uint16_t port) {
    for (const abi::LaneTelemetry& lane : flow().lanes) {
      const uint32_t state = lane.state.load(std::memory_order_acquire);
      if (state != static_cast<uint32_t>(abi::LaneState::kNone) && lane.source_port.load() == port) return &lane;
    }
    return nullptr;
  }
  bool InForce(std::span<const WantedLane> lanes) {
    for (const WantedLane& want : lanes) {
      const abi::LaneTelemetry* lane = LaneOf(want.port);
      if (!lane || lane->state.load() != static_cast<uint32_t>(abi::LaneState::kActive)) return false;
      if (lane->weight.load() != want.weight) return false;
    }
    return true;
  }
  /// The lanes as telemetry shows them, and the log: what to look at when one is missing.
  std::string Describe() {
    std::string text;
    for (const abi::LaneTelemetry& lane : flow().lanes) {
      text.append("\n  port ").append(std::to_string(lane.source_port.load()));
      text.append(" state ").append(std::to_string(lane.state.load()));
      text.append(" weight ").append(std::to_string(lane.weight.load()));
    }
    for (const std::string& line : LogCapture::Lines()) text.append("\n  ").append(line);
    return text;
  }
  /// Bytes per wanted lane while `total` more bytes flow.
  std::vector<uint64_t> Carried(std::span<const WantedLane> lanes, uint64_t total) {
    const auto bytes = [&] {
      std::vector<uint64_t> result;
      for (const WantedLane& want : lanes) result.push_back(LaneOf(want.port)->bytes.load());
      return result;
    };
    const std::vector<uint64_t> before = bytes();
    std::vector<uint64_t> carried;
    EXPECT_TRUE(Eventually([&] {
      carried = bytes();
      uint64_t sum = 0;
      for (size_t i = 0; i < carried.size(); ++i) sum += carried[i] -= before[i];
      return sum >= total;
    }));
    return carried;
  }
  /// TOS of the sockets of this process whose local (or remote) port is `port`.
  static int TosOf(uint16_t port, bool local) {
    for (int fd = 0; fd < 1024; ++fd) {
      const Address mine = LocalAddress(fd), other = PeerAddress(fd);
      if ((local ? mine : other).port != port || other.port == 0) continue;
      int tos = -1;
      socklen_t length = sizeof tos;
      getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &length);
      return tos;
    }
    return -1;
  }

  std::string run_dir_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Plugin> plugin_;
  Pair pair_;
  std::thread sender_, receiver_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> sent_{0}, received_{0};
  std::atomic<int> wrong_{0};
};

}  // namespace weft::net::testing

// Whole RDMA flows over a fabric in memory that fails as hardware does. One thread plays NCCL on both ends; the plugin's
// background thread is real. Include after gtest.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "netplugin/log.h"
#include "netplugin/rdma/testing/fake_fabric.h"
#include "netplugin/rdma/port_choice.h"
#include "netplugin/rdma/transport.h"
#include "netplugin/testing/log_capture.h"
#include "netplugin/testing/wire_fixture.h"

namespace weft::net::rdma::testing {

inline constexpr size_t kRoom = 3 << 20;
inline constexpr char kUntouched = 0x5A;

/// Repeats `step` until it returns true; false after 30 s.
inline bool Eventually(const std::function<bool()>& step) {
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

class FlowFixture : public ::testing::Test {
 protected:
  FlowFixture() {
    net::testing::LogCapture::Clear();
    SetLogger(&net::testing::LogCapture::Logger);
  }

  /// Rank 0 on device 0 sends to rank 1 on device 1. With `standbys_` they can move to devices 2 and 3, if
  /// `standby_of_` says so.
  void Connect(const std::function<void(RdmaEnvironment&)>& change = [](RdmaEnvironment&) {}) {
    environment_.rdma.split_bytes = 4096;
    environment_.rdma.recovery_s = 20;
    change(environment_.rdma);
    telemetry_ = Telemetry::Create(environment_, 12);
    services_ = std::make_unique<Services>(Services{environment_, *telemetry_, policies_, background_});
    std::string why;
    for (uint32_t i = 0; i < 2; ++i) {
      auto port = fabric_.OpenPort(static_cast<int>(i), environment_.rdma, &why);
      ends_[i] = {.device = i, .port = port, .address = net::testing::Loopback(), .comm_id = 1, .traffic_class = 0};
      ASSERT_TRUE(ends_[i].port) << why;
      ends_[i].port->set_path_probe(probe_);
      background_.Add(ends_[i].port.get());
      if (!standbys_ || !standby_of_[i]) continue;
      const auto standby = fabric_.OpenPort(static_cast<int>(i) + 2, environment_.rdma, &why);
      ASSERT_TRUE(standby) << why;
      SetStandbys({ends_[i].port, standby}, {"", ""});
      background_.Add(standby.get());
      standby_ports_.push_back(standby);
    }
    background_.Add(&turner_);
    if (in_background_) background_.Start();
    source_.resize(kRoom);
    target_.assign(kRoom, kUntouched);
    ASSERT_NO_FATAL_FAILURE(Meet());
  }

  /// The flow between the ends' ports.
  void Meet() {
    Handle handle{};
    const auto listen = RdmaListenComm::Open(*services_, ends_[1], &handle);
    ASSERT_TRUE(listen);
    RdmaConnector connector(*services_);
    ASSERT_TRUE(Eventually([&] {
      if (!send_) { EXPECT_EQ(connector.Step(&handle, ends_[0], &send_), nccl::kSuccess); }
      if (!recv_) { EXPECT_EQ(listen->Accept(&recv_), nccl::kSuccess); }
      return (send_ && recv_) || ::testing::Test::HasFailure();
    }));
    ASSERT_EQ(send_->RegMr(source_.data(), source_.size(), nccl::kPtrHost, &source_handle_), nccl::kSuccess);
    ASSERT_EQ(recv_->RegMr(target_.data(), target_.size(), nccl::kPtrHost, &target_handle_), nccl::kSuccess);
  }

  ~FlowFixture() override {
    send_.reset();
    recv_.reset();
    background_.Stop();
    SetLogger(nullptr);
    const auto lines = net::testing::LogCapture::Lines();
    for (size_t i = lines.size() < 20 ? 0 : lines.size() - 20; HasFailure() && i < lines.size(); ++i) {
      std::fprintf(stderr, "log: %s\n", lines[i].c_str());
    }
  }

  /// `count` messages of up to `largest` bytes, `window` in flight, each into its own part of the target. A buffer is
  /// marked when its receive is done, and must keep the mark until it is used again.
  /// `meanwhile` is told how many have been sent, `always` is called in every round.
  void Exchange(
      int count, size_t largest, int window, const std::function<void(int)>& meanwhile = [](int) {},
      const std::function<void()>& always = [] {});

  static BackgroundTask& TaskOf(Comm& comm) { return dynamic_cast<BackgroundTask&>(comm); }

  const abi::FlowSlot& sender() { return *send_->slot(); }

  FakeFabric fabric_{4, 17};
  Environment environment_;
  std::unique_ptr<Telemetry> telemetry_;
  PolicyStore policies_;
  Background background_;
  bool in_background_ = true;  // false: the test sweeps itself
  Turner turner_{policies_};
  PathProbe probe_;
  bool standbys_ = false;
  bool standby_of_[2] = {true, true};
  std::vector<std::shared_ptr<Port>> standby_ports_;
  std::unique_ptr<Services> services_;
  LocalEnd ends_[2];
  std::unique_ptr<Comm> send_, recv_;
  std::vector<char> source_, target_;
  void* source_handle_ = nullptr;
  void* target_handle_ = nullptr;
  std::mt19937_64 random_{23};
};

}  // namespace weft::net::rdma::testing

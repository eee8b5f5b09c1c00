// RDMA flows of which each end can have a second port. Include after gtest.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "netplugin/rdma/testing/flow_fixture.h"

namespace weft::net::rdma::testing {

class FailoverFixture : public FlowFixture {
 protected:
  FailoverFixture() { standbys_ = true; }

  void Connect(int failback_s = 3600) {
    FlowFixture::Connect([&](RdmaEnvironment& rdma) { rdma.failback_s = failback_s, rdma.recovery_s = recovery_s_; });
  }
  int recovery_s_ = 20;
  uint64_t WritesOf(int device) { return fabric_.counts().writes_by_device[device]; }
  /// Exchanges, and expects that some of the bytes left by `sender` and the credits by `receiver`.
  void ExchangeOver(int sender, int receiver) {
    const uint64_t sent = WritesOf(sender), announced = WritesOf(receiver);
    Exchange(40, 16 << 10, 8);
    EXPECT_GE(WritesOf(sender), sent + 40);
    EXPECT_GE(WritesOf(receiver), announced + 40);
  }
  /// One message of 100 bytes; `always` is called in every round.
  void SendOne(const void* data, void* handle, const std::function<void()>& always = [] {}) {
    Request *receive = nullptr, *send = nullptr;
    int done = 0;
    ASSERT_TRUE(Eventually([&] {
      always();
      if (!receive) { EXPECT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess); }
      if (receive) { EXPECT_EQ(recv_->Test(receive, &done, nullptr), nccl::kSuccess); }
      if (!send) { EXPECT_EQ(send_->Isend(data, 100, 0, handle, &send), nccl::kSuccess); }
      return (send && done != 0) || HasFailure();
    }));
  }
  /// Lines of the log that have `piece`.
  static size_t Logged(const char* piece) {
    const auto lines = net::testing::LogCapture::Lines();
    return static_cast<size_t>(std::ranges::count_if(
        lines, [&](const std::string& line) { return line.find(piece) != std::string::npos; }));
  }
};

}  // namespace weft::net::rdma::testing

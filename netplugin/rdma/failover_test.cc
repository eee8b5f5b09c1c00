// Flows whose port goes down while its host has another: they move there, and home again, and nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "netplugin/rdma/testing/flow_fixture.h"

namespace weft::net::rdma {
namespace {

using testing::Eventually;
using testing::kRoom;

class RdmaFailover : public testing::FlowFixture {
 protected:
  RdmaFailover() { standbys_ = true; }

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
};

TEST_F(RdmaFailover, TheSendersPortGoesDown) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.SetPort(0, false);
  });
  ExchangeOver(2, 1);
  EXPECT_EQ(fabric_.counts().access_errors, 0u);
}

TEST_F(RdmaFailover, TheReceiversPortGoesDown) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.SetPort(1, false);
  });
  ExchangeOver(0, 3);
  EXPECT_EQ(fabric_.counts().access_errors, 0u) << "no key of the former port is used on the new one";
}

TEST_F(RdmaFailover, BothGoDownAndComeBack) {
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.SetPort(0, false);
    if (sent == 22) fabric_.SetPort(1, false);
  });
  ExchangeOver(2, 3);
  fabric_.SetPort(0, true);
  fabric_.SetPort(1, true);
  const uint64_t before = WritesOf(0);
  ASSERT_TRUE(Eventually([&] {
    Exchange(5, 4096, 4);
    return WritesOf(0) > before || HasFailure();
  })) << "home again";
  ASSERT_TRUE(Eventually([&] {
    const uint64_t away = WritesOf(3);
    Exchange(5, 4096, 4);
    return WritesOf(3) == away || HasFailure();
  })) << "and so the receiver";
  ExchangeOver(0, 1);
  EXPECT_EQ(fabric_.counts().access_errors, 0u);
}

TEST_F(RdmaFailover, AStandbyThatGoesDownIsLeftToo) {
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  fabric_.SetPort(0, false);
  ExchangeOver(2, 1);
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.SetPort(0, true);
    if (sent == 21) fabric_.SetPort(2, false);
  });
  ExchangeOver(0, 1);
}

TEST_F(RdmaFailover, AFlowIsMadeWhereAPortIsUp) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  send_.reset();
  recv_.reset();
  fabric_.SetPort(0, false);
  fabric_.SetPort(1, false);
  ASSERT_TRUE(Eventually([&] { return ends_[0].port->down() && ends_[1].port->down(); }));
  ASSERT_NO_FATAL_FAILURE(Meet());
  ExchangeOver(2, 3);
}

TEST_F(RdmaFailover, PortsThatAreUpAndLeadNowhereAreLeftInTurn) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) {  // the two rails know nothing of each other any more, and the first one is dead
      fabric_.Cut(0, 1);
      fabric_.Cut(0, 3);
      fabric_.Cut(2, 1);
    }
  });
  ExchangeOver(2, 3);
}

TEST_F(RdmaFailover, WithoutAnotherPortItWaitsForItsOwn) {
  standbys_ = false;
  ASSERT_NO_FATAL_FAILURE(Connect());
  fabric_.SetPort(0, false);
  ASSERT_TRUE(Eventually([&] { return ends_[0].port->down(); }));
  fabric_.SetPort(0, true);
  ExchangeOver(0, 1);
}

TEST_F(RdmaFailover, AReceiveThatWaitsForLongerThanAFailureMayLastSurvivesBoth) {
  recovery_s_ = 1;
  ASSERT_NO_FATAL_FAILURE(Connect());
  Request *receive = nullptr, *send = nullptr;
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess);
    return receive != nullptr || HasFailure();
  }));
  int done = 0;
  for (const int down : {1, 3}) {
    fabric_.SetPort(down, false);
    const uint64_t until = NowNs() + 1'300'000'000;
    ASSERT_TRUE(Eventually([&] {
      EXPECT_EQ(recv_->Test(receive, &done, nullptr), nccl::kSuccess);
      return NowNs() > until || HasFailure();
    }));
    fabric_.SetPort(down, true);
  }
  source_[5] = 'x';
  ASSERT_TRUE(Eventually([&] {
    if (!send) { EXPECT_EQ(send_->Isend(source_.data(), 100, 0, source_handle_, &send), nccl::kSuccess); }
    EXPECT_EQ(recv_->Test(receive, &done, nullptr), nccl::kSuccess);
    return done != 0 || HasFailure();
  }));
  EXPECT_EQ(target_[5], 'x');
}

TEST_F(RdmaFailover, AGpusMemoryIsFlushedWhereItsDataArrive) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  void* gpu = nullptr;
  ASSERT_EQ(recv_->RegMrDmaBuf(target_.data(), kRoom, nccl::kPtrDmaBuf, 0, 1, &gpu), nccl::kSuccess);
  fabric_.SetPort(1, false);
  ExchangeOver(0, 3);
  Request* flush = nullptr;
  ASSERT_EQ(recv_->Iflush(target_.data() + 64, 100, gpu, &flush), nccl::kSuccess);
  ASSERT_NE(flush, nullptr);
  int done = 0;
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(recv_->Test(flush, &done, nullptr), nccl::kSuccess);
    return done != 0 || HasFailure();
  })) << "its own port is down: only through the other one can it be read";
  EXPECT_EQ(fabric_.counts().access_errors, 0u);
  EXPECT_EQ(recv_->DeregMr(gpu), nccl::kSuccess);
}

TEST_F(RdmaFailover, MessagesUnderFire) {
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  const char* wanted = std::getenv("WEFT_FIRE_MESSAGES");
  const int count = wanted ? std::atoi(wanted) : 1500;
  fabric_.FailWrites(400);
  std::vector<bool> up(4, true);
  Exchange(count, 32 << 10, 16, [&](int) {
    if (random_() % 20 != 0) return;
    // Each end keeps one port: what has no way at all is the other tests'.
    const auto device = random_() % 4;
    const auto other = device ^ 2;
    if (!up[other]) {
      up[other] = true;
      fabric_.SetPort(static_cast<int>(other), true);
    }
    up[device] = !up[device];
    fabric_.SetPort(static_cast<int>(device), up[device]);
  });
  for (int device = 0; device < 4; ++device) EXPECT_GT(WritesOf(device), 0u) << device;
  EXPECT_EQ(fabric_.counts().access_errors, 0u);
}

}  // namespace
}  // namespace weft::net::rdma

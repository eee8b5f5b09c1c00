// Flows whose port goes down while its host has another: they move there, and home again, and nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "netplugin/rdma/testing/failover_fixture.h"

namespace weft::net::rdma {
namespace {

using testing::Eventually;
using net::testing::LogCapture;
using testing::kRoom;

class RdmaFailover : public testing::FailoverFixture {};

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

TEST_F(RdmaFailover, APeerThatWaitsForItsOnlyPortIsWaitedFor) {
  standby_of_[1] = false;
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  LogCapture::Clear();
  uint64_t down_at = 0;
  bool up = true;
  Exchange(
      60, 16 << 10, 8,
      [&](int sent) {
        if (sent != 20) return;
        fabric_.SetPort(1, up = false);
        down_at = NowNs();
      },
      [&] {
        if (!up && NowNs() > down_at + 3'500'000'000) fabric_.SetPort(1, up = true);
      });
  const size_t moves = Logged("moves from");
  EXPECT_LE(moves, 2u);
  ASSERT_TRUE(Eventually([&] {
    const uint64_t before = WritesOf(0);
    Exchange(5, 4096, 4);
    return WritesOf(0) > before || HasFailure();
  })) << "at home again";
}

/// The other ports make no queue pairs, or register no memory.
class PortsWithoutRoom : public RdmaFailover, public ::testing::WithParamInterface<bool> {};

TEST_P(PortsWithoutRoom, AreTriedNowAndThenAndTheFlowWaitsForItsOwn) {
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  for (const int port : {2, 3}) fabric_.RunOut(port, GetParam(), !GetParam());
  bool up = true;
  uint64_t down_at = 0;
  LogCapture::Clear();
  Exchange(
      60, 16 << 10, 8,
      [&](int sent) {
        if (sent != 20) return;
        for (const int port : {0, 1}) fabric_.SetPort(port, up = false);
        down_at = NowNs();
      },
      [&] {
        if (up || NowNs() < down_at + 1'000'000'000) return;
        for (const int port : {0, 1}) fabric_.SetPort(port, up = true);
      });
  const size_t tries = Logged("cannot move");
  EXPECT_GE(tries, 1u);
  EXPECT_LE(tries, 2u) << "not in every sweep";
  ExchangeOver(0, 1);
}

INSTANTIATE_TEST_SUITE_P(Of, PortsWithoutRoom, ::testing::Bool(),
                         [](const auto& room) { return room.param ? "Pairs" : "Memory"; });

TEST_F(RdmaFailover, AHomeThatCannotBeReturnedToDisturbsNobody) {
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  fabric_.SetPort(0, false);
  ExchangeOver(2, 1);
  fabric_.RunOut(0, true, false);
  fabric_.SetPort(0, true);
  LogCapture::Clear();
  for (int i = 0; i < 20; ++i) ExchangeOver(2, 1);
  const size_t restarts = Logged("set up anew");
  EXPECT_LE(restarts, 2u);
}

TEST_F(RdmaFailover, MemoryThatIsFirstUsedElsewhereAndCannotBeRegisteredThereBringsTheFlowHome) {
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  std::vector<char> more(testing::FakeFabric::kLarge);
  void* handle = nullptr;
  ASSERT_EQ(send_->RegMr(more.data(), more.size(), nccl::kPtrHost, &handle), nccl::kSuccess);
  fabric_.SetPort(0, false);
  ExchangeOver(2, 1);
  fabric_.RunOut(2, false, true);
  fabric_.SetPort(0, true);
  ASSERT_TRUE(Eventually([&] { return !ends_[0].port->down(); }));
  SendOne(more.data(), handle);
  EXPECT_EQ(send_->DeregMr(handle), nccl::kSuccess);
}

TEST_F(RdmaFailover, MemoryThatCannotBeRegisteredAnywhereIsAnErrorInTheEnd) {
  recovery_s_ = 1;
  ASSERT_NO_FATAL_FAILURE(Connect());
  std::vector<char> more(testing::FakeFabric::kLarge);
  void* handle = nullptr;
  ASSERT_EQ(send_->RegMr(more.data(), more.size(), nccl::kPtrHost, &handle), nccl::kSuccess);
  fabric_.SetPort(0, false);
  ExchangeOver(2, 1);
  fabric_.RunOut(2, false, true);
  Request *receive = nullptr, *send = nullptr;
  int code = nccl::kSuccess;
  ASSERT_TRUE(Eventually([&] {
    if (!receive) { EXPECT_EQ(recv_->Irecv(target_.data(), 100, 0, target_handle_, &receive), nccl::kSuccess); }
    code = send_->Isend(more.data(), 100, 0, handle, &send);
    return code != nccl::kSuccess || send;
  }));
  EXPECT_EQ(code, nccl::kSystemError);
  EXPECT_EQ(send_->DeregMr(handle), nccl::kSuccess);
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

TEST_F(RdmaFailover, AFlushUnderWayIsDoneAgainWhereTheDataArriveNow) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  void* gpu = nullptr;
  ASSERT_EQ(recv_->RegMrDmaBuf(target_.data(), kRoom, nccl::kPtrDmaBuf, 0, 1, &gpu), nccl::kSuccess);
  fabric_.ForgetNextPair();
  Request* flush = nullptr;
  ASSERT_EQ(recv_->Iflush(target_.data(), 100, gpu, &flush), nccl::kSuccess);
  int done = 0;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(recv_->Test(flush, &done, nullptr), nccl::kSuccess);
  ASSERT_EQ(done, 0) << "its pair is forgotten";
  fabric_.SetPort(1, false);
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(recv_->Test(flush, &done, nullptr), nccl::kSuccess);
    return done != 0 || HasFailure();
  }));
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

#include "netplugin/telemetry/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "netplugin/log.h"
#include "netplugin/testing/log_capture.h"

namespace weft::net {
namespace {

using abi::StallCause;
using testing::LogCapture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

/// A communicator whose telemetry the test writes.
class FakeComm final : public Comm {
 public:
  explicit FakeComm(abi::Direction direction) {
    slot_.flow = 77;
    slot_.direction = static_cast<uint32_t>(direction);
    slot_.peer_rank = 3;
    slot_.family = 4;
    slot_.lanes[0].state.store(static_cast<uint32_t>(abi::LaneState::kActive));
    slot_.lanes[0].source_port.store(41001);
    slot_.lanes[2].state.store(static_cast<uint32_t>(abi::LaneState::kActive));
    slot_.lanes[2].source_port.store(41003);
  }
  int Test(Request*, int*, int*) override { return nccl::kSuccess; }
  const abi::FlowSlot* slot() const override { return &slot_; }
  abi::FlowSlot slot_{};
};

class WatchdogTest : public ::testing::Test {
 protected:
  void Sweep(double seconds) { watchdog_.Sweep({static_cast<uint64_t>(seconds * 1e9), true}); }
  const abi::StallSlot& stall(int index = 0) { return observations_->stalls[index]; }
  static uint32_t State(abi::SlotState state) { return static_cast<uint32_t>(state); }

  std::unique_ptr<abi::Observations> observations_ = std::make_unique<abi::Observations>();
  Observer observer_{observations_.get()};
  StallEnvironment settings_{.after_s = 10};
  Watchdog watchdog_{observer_, settings_};
};

TEST_F(WatchdogTest, AConnectionThatDoesNotMoveIsReportedOnceWithItsPathAndBytes) {
  FakeComm comm(abi::Direction::kSend);
  watchdog_.Add(&comm);
  comm.in_flight.Posted(1000);
  comm.in_flight.Posted(500);
  Sweep(100);
  Sweep(109.9);
  EXPECT_EQ(stall().state.load(), State(abi::SlotState::kFree));
  Sweep(110.1);
  Sweep(120);
  EXPECT_EQ(stall().state.load(), State(abi::SlotState::kOpen));
  EXPECT_EQ(stall(1).state.load(), State(abi::SlotState::kFree)) << "once";
  EXPECT_EQ(stall().flow, 77u);
  EXPECT_EQ(stall().peer_rank, 3);
  EXPECT_EQ(stall().ports[0], 41001);
  EXPECT_EQ(stall().ports[1], 0);
  EXPECT_EQ(stall().ports[2], 41003);
  EXPECT_EQ(stall().bytes_in_flight.load(), 1500u);
  EXPECT_EQ(stall().requests.load(), 2u);
  EXPECT_EQ(stall().since_ns, 100 * kSecond);
  EXPECT_EQ(stall().until_ns.load(), 120 * kSecond);
  EXPECT_EQ(stall().cause.load(), static_cast<uint32_t>(StallCause::kPeerDoesNotRead));
  comm.slot_.lanes[2].bytes.store(1);  // a byte moves
  Sweep(121);
  EXPECT_EQ(stall().state.load(), State(abi::SlotState::kClosed));
  EXPECT_EQ(stall().until_ns.load(), 121 * kSecond);
  Sweep(132);
  EXPECT_EQ(stall(1).state.load(), State(abi::SlotState::kOpen)) << "a new stall is a new report";
  watchdog_.Remove(&comm);
  EXPECT_EQ(stall(1).state.load(), State(abi::SlotState::kClosed));
}

TEST_F(WatchdogTest, AConnectionThatStallsAgainAndAgainIsLoggedOnceAMinute) {
  LogCapture::Clear();
  SetLogger(&LogCapture::Logger);
  FakeComm comm(abi::Direction::kSend);
  watchdog_.Add(&comm);
  comm.in_flight.Posted(1000);
  const auto stall_and_move = [&](double from) {
    comm.slot_.lanes[0].bytes.fetch_add(1);
    Sweep(from);
    Sweep(from + 10);
    comm.slot_.lanes[0].bytes.fetch_add(1);
    Sweep(from + 11);
  };
  for (const double from : {100.0, 115.0, 130.0, 145.0}) stall_and_move(from);
  EXPECT_THAT(LogCapture::Lines(), ElementsAre(HasSubstr("send to rank 3"), HasSubstr("moves again")));
  EXPECT_EQ(stall(3).state.load(), State(abi::SlotState::kClosed)) << "the agent is told of each";
  stall_and_move(160);  // the minute since 110 s is over
  stall_and_move(175);
  watchdog_.Remove(&comm);
  SetLogger(nullptr);
  EXPECT_THAT(LogCapture::Lines(), ElementsAre(HasSubstr("send to rank 3"), HasSubstr("moves again"),
                                   HasSubstr("41003; 3 times more before"), HasSubstr("moves again"),
                                   HasSubstr("stood still 1 times more than was logged")));
}

TEST_F(WatchdogTest, AnIdleConnectionIsNoStall) {
  FakeComm comm(abi::Direction::kReceive);
  watchdog_.Add(&comm);
  for (int second = 1; second < 1000; second += 5) Sweep(second);
  comm.in_flight.Posted(8);
  Sweep(1001);
  Sweep(1010);
  comm.in_flight.Done(8);
  for (int second = 1011; second < 2000; second += 5) Sweep(second);
  EXPECT_EQ(stall().state.load(), State(abi::SlotState::kFree));
  watchdog_.Remove(&comm);
}

TEST_F(WatchdogTest, MessagesThatFinishAreProgressThoughNewOnesAreInFlight) {
  FakeComm comm(abi::Direction::kSend);
  watchdog_.Add(&comm);
  comm.in_flight.Posted(8);
  for (int second = 1; second < 100; second += 5) {
    comm.in_flight.Posted(8);
    comm.in_flight.Done(8);
    comm.slot_.messages.fetch_add(1);  // both between two looks: only the count of finished ones tells
    Sweep(second);
  }
  EXPECT_EQ(stall().state.load(), State(abi::SlotState::kFree));
  watchdog_.Remove(&comm);
}

TEST_F(WatchdogTest, OnlyWhoAskedForItIsGivenUp) {
  FakeComm reported(abi::Direction::kSend);
  reported.in_flight.Posted(8);
  watchdog_.Add(&reported);
  Sweep(1);
  Sweep(100000);
  EXPECT_FALSE(reported.in_flight.given_up.load());
  watchdog_.Remove(&reported);

  const StallEnvironment failing{.after_s = 10, .action = StallAction::kError, .action_after_s = 20};
  Watchdog strict(observer_, failing);
  FakeComm comm(abi::Direction::kSend);
  comm.in_flight.Posted(8);
  strict.Add(&comm);
  strict.Sweep({1 * kSecond, true});
  strict.Sweep({20 * kSecond, true});
  EXPECT_FALSE(comm.in_flight.given_up.load());
  EXPECT_EQ(stall(1).aborted.load(), 0u);
  strict.Sweep({21 * kSecond, true});
  EXPECT_TRUE(comm.in_flight.given_up.load());
  EXPECT_EQ(stall(1).aborted.load(), 1u);
  strict.Remove(&comm);
}

TEST_F(WatchdogTest, AnErrorThatNcclForgetsEndsTheProcessWhereThatWasAskedFor) {
  const StallEnvironment fatal{.after_s = 100, .action = StallAction::kAbort, .action_after_s = 100};
  for (const bool dropped : {false, true}) {
    Watchdog strict(observer_, fatal);
    if (dropped) strict.ExpectDroppedErrors();
    FakeComm comm(abi::Direction::kSend);
    strict.Add(&comm);
    comm.in_flight.failed.store(true);
    strict.Sweep({kSecond, true});
    strict.Sweep({2 * kSecond, true});
    if (dropped) {
      EXPECT_DEATH(strict.Sweep({4 * kSecond, true}), "");
    } else {
      strict.Sweep({4 * kSecond, true});
    }
    strict.Remove(&comm);
  }
  watchdog_.ExpectDroppedErrors();
  FakeComm reported(abi::Direction::kSend);
  watchdog_.Add(&reported);
  reported.in_flight.failed.store(true);
  Sweep(1);
  Sweep(10);
  watchdog_.Remove(&reported);
}

TEST_F(WatchdogTest, AbortEndsTheProcess) {
  const StallEnvironment fatal{.after_s = 1, .action = StallAction::kAbort, .action_after_s = 1};
  Watchdog strict(observer_, fatal);
  FakeComm comm(abi::Direction::kSend);
  comm.in_flight.Posted(8);
  strict.Add(&comm);
  strict.Sweep({1 * kSecond, true});
  EXPECT_DEATH(strict.Sweep({3 * kSecond, true}), "");
  strict.Remove(&comm);
}

TEST_F(WatchdogTest, ZeroSecondsIsNoWatchdog) {
  const StallEnvironment off{.after_s = 0};
  Watchdog none(observer_, off);
  FakeComm comm(abi::Direction::kSend);
  comm.in_flight.Posted(8);
  none.Add(&comm);
  none.Sweep({1 * kSecond, true});
  none.Sweep({100000 * kSecond, true});
  EXPECT_EQ(stall().state.load(), State(abi::SlotState::kFree));
}

TEST_F(WatchdogTest, MoreStallsThanSlotsAreSurvived) {
  std::vector<std::unique_ptr<FakeComm>> comms;
  for (uint32_t i = 0; i < abi::kMaxStalls + 5; ++i) {
    comms.push_back(std::make_unique<FakeComm>(abi::Direction::kSend));
    comms.back()->in_flight.Posted(8);
    watchdog_.Add(comms.back().get());
  }
  Sweep(1);
  Sweep(100);
  for (const abi::StallSlot& each : observations_->stalls) EXPECT_EQ(each.state.load(), State(abi::SlotState::kOpen));
  for (const auto& comm : comms) watchdog_.Remove(comm.get());
  for (const abi::StallSlot& each : observations_->stalls) EXPECT_EQ(each.state.load(), State(abi::SlotState::kClosed));
}

TEST(StallCause, ComesFromTheCounters) {
  const StallEvidence before{.silent_ns = 0, .retransmits = 5, .wire_busy_ns = 100, .usable_lanes = 2};
  const uint64_t stalled = 10 * kSecond;
  const auto cause = [&](abi::Direction direction, const StallEvidence& now) {
    return CauseOf(direction, before, now, stalled);
  };
  using enum abi::Direction;
  EXPECT_EQ(cause(kSend, {11 * kSecond, 6, 100 + stalled, 2}), StallCause::kNoAcknowledgement);
  EXPECT_EQ(cause(kSend, {9 * kSecond, 6, 100, 2}), StallCause::kPeerDoesNotRead) << "its host answers";
  EXPECT_EQ(cause(kSend, {4 * kSecond, 5, 100 + stalled, 2}), StallCause::kUnknown);
  EXPECT_EQ(cause(kSend, {UINT64_MAX, 6, 100, 2}), StallCause::kNoAcknowledgement) << "a transport that cannot tell";
  EXPECT_EQ(cause(kSend, {UINT64_MAX, 5, 100, 2}), StallCause::kPeerDoesNotRead);
  EXPECT_EQ(cause(kReceive, {UINT64_MAX, 5, 100, 2}), StallCause::kPeerSendsNothing);
  EXPECT_EQ(cause(kReceive, {UINT64_MAX, 5, 100, 0}), StallCause::kNoLane);
}

}  // namespace
}  // namespace weft::net

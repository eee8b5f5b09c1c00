// Which port of its host a flow takes, on devices in memory that go down and come back.
#include <gtest/gtest.h>

#include "netplugin/rdma/port_choice.h"
#include "netplugin/rdma/testing/fake_fabric.h"

namespace weft::net::rdma {
namespace {

using Reason = PortChoice::Reason;

constexpr uint64_t kSecond = 1'000'000'000;

class PortChoices : public ::testing::Test {
 protected:
  /// The first is home. `pci`: of each.
  void Open(const std::vector<std::string>& pci) {
    std::string why;
    for (size_t i = 0; i < pci.size(); ++i) {
      ports_.push_back(fabric_.OpenPort(static_cast<int>(i), environment_, &why));
      ASSERT_TRUE(ports_.back()) << why;
    }
    SetStandbys(ports_, pci);
  }
  void Set(int port, bool up, uint64_t now) {
    fabric_.SetPort(port, up);
    ports_[static_cast<size_t>(port)]->Sweep({now, false});
  }
  /// Index of what is chosen, and used then, while `current` is used.
  long Chosen(PortChoice& choice, size_t current, uint64_t now, PortChoice::Reason reason = PortChoice::Reason::kOther) {
    const auto& port = choice.Choose(*ports_[current], reason, now);
    if (port != ports_[current]) choice.Moved(*ports_[current], *port, reason, now);
    return std::ranges::find(ports_, port) - ports_.begin();
  }

  RdmaEnvironment environment_;
  testing::FakeFabric fabric_{4, 5};
  std::vector<std::shared_ptr<Port>> ports_;
  uint64_t now_ = 1000 * kSecond;
};

TEST_F(PortChoices, HomeIsKeptWhileItIsUpOrNothingElseIs) {
  ASSERT_NO_FATAL_FAILURE(Open({"", ""}));
  PortChoice choice(ports_[0], 1);
  EXPECT_FALSE(choice.BetterThan(*ports_[0], now_));
  EXPECT_EQ(Chosen(choice, 0, now_), 0);
  Set(1, false, now_);
  Set(0, false, now_);
  EXPECT_EQ(choice.Others(*ports_[0], now_), 0u);
  EXPECT_FALSE(choice.BetterThan(*ports_[0], now_)) << "there is nowhere to go";
  EXPECT_EQ(Chosen(choice, 0, now_), 0);
}

TEST_F(PortChoices, HomeIsTakenAgainWhenItHasBeenUpForAWhile) {
  ASSERT_NO_FATAL_FAILURE(Open({"", ""}));
  PortChoice choice(ports_[0], 1);
  Set(0, false, now_);
  EXPECT_TRUE(choice.BetterThan(*ports_[0], now_));
  EXPECT_EQ(Chosen(choice, 0, now_), 1);
  EXPECT_FALSE(choice.BetterThan(*ports_[1], now_ + 30 * kSecond)) << "it is down still";
  Set(0, true, now_ + 30 * kSecond);
  EXPECT_FALSE(choice.BetterThan(*ports_[1], now_ + 34 * kSecond));
  EXPECT_TRUE(choice.BetterThan(*ports_[1], now_ + 35 * kSecond));
  EXPECT_EQ(Chosen(choice, 1, now_ + 32 * kSecond), 1);
  EXPECT_EQ(Chosen(choice, 1, now_ + 33 * kSecond), 0) << "set up anew for another reason, it goes home a little earlier";
}

TEST_F(PortChoices, AHomeThatFailsAgainAndAgainIsLeftForLongerAndLonger) {
  ASSERT_NO_FATAL_FAILURE(Open({"", ""}));
  PortChoice choice(ports_[0], 1);
  uint64_t least = 0;
  for (int round = 0; round < 4; ++round) {
    Set(0, false, now_);
    ASSERT_EQ(Chosen(choice, 0, now_), 1);
    Set(0, true, now_ + kSecond);
    uint64_t away = 0;
    while (!choice.BetterThan(*ports_[1], now_ + away)) away += kSecond;
    EXPECT_GT(away, least) << round;
    least = away;
    now_ += away;
    ASSERT_EQ(Chosen(choice, 1, now_), 0);
    now_ += kSecond;
  }
  EXPECT_GE(least, 40 * kSecond);
}

TEST_F(PortChoices, WhatLeadsNowhereIsLeftThoughItIsUpAndForAMinute) {
  ASSERT_NO_FATAL_FAILURE(Open({"", ""}));
  PortChoice choice(ports_[0], 1);
  EXPECT_EQ(Chosen(choice, 0, now_, Reason::kNothingGetsThrough), 1);
  EXPECT_FALSE(choice.BetterThan(*ports_[1], now_ + 59 * kSecond));
  EXPECT_TRUE(choice.BetterThan(*ports_[1], now_ + 60 * kSecond));
  EXPECT_EQ(Chosen(choice, 1, now_ + 10 * kSecond), 1) << "another reason to set the flow up anew changes nothing";
  EXPECT_EQ(Chosen(choice, 1, now_ + 10 * kSecond, Reason::kPeerGoesHome), 0) << "it may have been the peer's fault";
  EXPECT_EQ(Chosen(choice, 1, now_ + kSecond, Reason::kNothingGetsThrough), 0) << "nothing else is left";
}

TEST_F(PortChoices, EachIsTriedInTurnWhereNothingGetsThrough) {
  ASSERT_NO_FATAL_FAILURE(Open({"", "", ""}));
  PortChoice choice(ports_[0], 0);
  const auto first = static_cast<size_t>(Chosen(choice, 0, now_, Reason::kNothingGetsThrough));
  const auto second = static_cast<size_t>(Chosen(choice, first, now_, Reason::kNothingGetsThrough));
  EXPECT_EQ(first + second, 1u + 2u) << "each of the others once";
  EXPECT_EQ(Chosen(choice, second, now_, Reason::kNothingGetsThrough), 0);
}

TEST_F(PortChoices, AHomeThatLedNowhereIsTheLastToBeTakenWhenAnotherGoesDown) {
  ASSERT_NO_FATAL_FAILURE(Open({"", "", ""}));
  PortChoice choice(ports_[0], 0);
  const auto first = static_cast<size_t>(Chosen(choice, 0, now_, Reason::kNothingGetsThrough));
  Set(static_cast<int>(first), false, now_);
  const auto second = static_cast<size_t>(Chosen(choice, first, now_));
  EXPECT_EQ(first + second, 1u + 2u);
  Set(static_cast<int>(second), false, now_);
  EXPECT_EQ(Chosen(choice, second, now_), 0);
}

TEST_F(PortChoices, APortThatRefusesIsLeftAloneForAWhile) {
  ASSERT_NO_FATAL_FAILURE(Open({"", ""}));
  PortChoice choice(ports_[0], 1);
  Set(0, false, now_);
  choice.Refused(*ports_[1], now_);
  EXPECT_EQ(choice.Others(*ports_[0], now_), 0u);
  EXPECT_FALSE(choice.BetterThan(*ports_[0], now_ + 9 * kSecond));
  EXPECT_EQ(Chosen(choice, 0, now_), 0);
  EXPECT_TRUE(choice.BetterThan(*ports_[0], now_ + 10 * kSecond));
  ASSERT_EQ(Chosen(choice, 0, now_ + 10 * kSecond), 1);
  Set(0, true, now_ + 11 * kSecond);
  now_ += 16 * kSecond;
  for (const uint64_t pause : {10, 20, 40}) {
    choice.Refused(*ports_[0], now_);
    EXPECT_FALSE(choice.BetterThan(*ports_[1], now_ + (pause - 1) * kSecond)) << "home, too";
    now_ += pause * kSecond;
    EXPECT_TRUE(choice.BetterThan(*ports_[1], now_));
  }
}

TEST_F(PortChoices, TheNearestComesFirstAndEquallyNearOnesTakeTurns) {
  ASSERT_NO_FATAL_FAILURE(Open({"/pci0/b0/d0", "/pci1/b0/d0", "/pci0/b0/d1", "/pci1/b1/d0"}));
  Set(0, false, now_);
  PortChoice first(ports_[0], 1), second(ports_[0], 2);
  EXPECT_EQ(Chosen(first, 0, now_), 2);
  EXPECT_EQ(Chosen(second, 0, now_), 2);
  Set(2, false, now_);
  const long one = Chosen(first, 0, now_), other = Chosen(second, 0, now_);
  EXPECT_NE(one, other);
  EXPECT_EQ(one + other, 1 + 3);
}

TEST_F(PortChoices, NothingElseIsTakenWhereTheUserSaysSo) {
  environment_.failover = false;
  ASSERT_NO_FATAL_FAILURE(Open({"", ""}));
  PortChoice choice(ports_[0], 1);
  Set(0, false, now_);
  EXPECT_EQ(Chosen(choice, 0, now_), 0);
}

TEST_F(PortChoices, MemoryIsRegisteredOncePerPortAndGivenBackWithTheRegion) {
  ASSERT_NO_FATAL_FAILURE(Open({"", ""}));
  std::vector<char> memory(100);
  MemoryRegion* region = ports_[0]->Register(memory.data(), memory.size());
  ASSERT_TRUE(region);
  const ibv_mr* copy = ports_[0]->Copy(region, ports_[1]);
  ASSERT_TRUE(copy);
  EXPECT_NE(copy->rkey, region->mr->rkey);
  EXPECT_EQ(ports_[0]->Copy(region, ports_[1]), copy);
  EXPECT_EQ(fabric_.counts().registered, 2u);
  ports_[0]->Deregister(region);
  EXPECT_EQ(fabric_.counts().registered, 0u);
}

}  // namespace
}  // namespace weft::net::rdma

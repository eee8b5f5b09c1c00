// Flows whose ports are up and lead nowhere: the ends find the ports between which there is a way.
#include <gtest/gtest.h>

#include "netplugin/rdma/testing/failover_fixture.h"

namespace weft::net::rdma {
namespace {

using testing::Eventually;

class RdmaReach : public testing::FailoverFixture {};

TEST_F(RdmaReach, PortsThatAreUpAndLeadNowhereAreLeftInTurn) {
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

TEST_F(RdmaReach, APathThatDiesWhileNothingIsSentIsLeftToo) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Exchange(10, 4096, 4);
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 3}, {2, 1}}) fabric_.Cut(a, b);
  SendOne(source_.data(), source_handle_);  // its credit is all there is to be lost
  EXPECT_GT(WritesOf(2), 0u);
  EXPECT_GT(WritesOf(3), 0u);
}

/// One pair of ports works: the number says which of each end's two. The flag: whether who connects elsewhere is told.
class OnlyOnePair : public RdmaReach, public ::testing::WithParamInterface<std::tuple<int, bool>> {};

TEST_P(OnlyOnePair, IsFound) {
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  const auto [pair, seen] = GetParam();
  const int sender = pair / 2 * 2, receiver = pair % 2 * 2 + 1;
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent != 20) return;
    for (const auto& [a, b] : {std::pair{0, 1}, {0, 3}, {2, 1}, {2, 3}}) {
      if (a != sender || b != receiver) fabric_.Cut(a, b, seen);
    }
  });
  ExchangeOver(sender, receiver);
}

INSTANTIATE_TEST_SUITE_P(Of, OnlyOnePair, ::testing::Combine(::testing::Range(0, 4), ::testing::Bool()));

/// Both rails, with no way from one to the other: whoever connects across is told, or finds out.
class IsolatedRails : public RdmaReach, public ::testing::WithParamInterface<bool> {
 protected:
  void Isolate() {
    fabric_.Cut(0, 3, GetParam());
    fabric_.Cut(2, 1, GetParam());
  }
};

TEST_P(IsolatedRails, BothEndsMoveWhenOneMust) {
  for (const int down : {0, 1}) {
    SCOPED_TRACE(down);
    if (down == 0) {
      ASSERT_NO_FATAL_FAILURE(Connect(0));
      Isolate();
    }
    Exchange(60, 16 << 10, 8, [&](int sent) {
      if (sent == 20) fabric_.SetPort(down, false);
    });
    ExchangeOver(2, 3);
    fabric_.SetPort(down, true);
    const uint64_t before = WritesOf(1);
    ASSERT_TRUE(Eventually([&] {
      Exchange(5, 4096, 4);
      return WritesOf(1) > before || HasFailure();
    })) << "home again";
    ExchangeOver(0, 1);
  }
}

TEST_P(IsolatedRails, AnEndWithOnePortWaitsForTheOtherToComeBack) {
  standby_of_[1] = false;
  ASSERT_NO_FATAL_FAILURE(Connect(0));
  Isolate();
  const uint64_t begin = NowNs();
  bool up = true;
  Exchange(
      60, 16 << 10, 8,
      [&](int sent) {
        if (sent == 20) fabric_.SetPort(0, up = false);
      },
      [&] {
        if (!up && NowNs() > begin + 1'500'000'000) fabric_.SetPort(0, up = true);
      });
  ExchangeOver(0, 1);
}

INSTANTIATE_TEST_SUITE_P(Rails, IsolatedRails, ::testing::Bool(),
                         [](const auto& rails) { return rails.param ? "Seen" : "Unseen"; });

TEST_F(RdmaReach, TheEndThatHasAnotherPortMovesAlone) {
  standby_of_[1] = false;
  ASSERT_NO_FATAL_FAILURE(Connect());
  Exchange(60, 16 << 10, 8, [&](int sent) {
    if (sent == 20) fabric_.Cut(0, 1);
  });
  ExchangeOver(2, 1);
}

TEST_F(RdmaReach, APeerOutOfReachForAWhileIsForgotten) {
  standbys_ = false;
  ASSERT_NO_FATAL_FAILURE(Connect());
  uint64_t cut_at = 0;
  Exchange(
      60, 16 << 10, 8,
      [&](int sent) {
        if (sent != 20) return;
        fabric_.Cut(0, 1, true);
        cut_at = NowNs();
      },
      [&] {
        if (cut_at != 0 && NowNs() > cut_at + 1'600'000'000) fabric_.Mend();
      });
  // Later only a credit is lost: the receiver must ask again.
  const uint64_t failures = fabric_.counts().failures;
  fabric_.FailWrites(1);
  SendOne(source_.data(), source_handle_, [&] {
    if (fabric_.counts().failures > failures) fabric_.FailWrites(0);
  });
}

}  // namespace
}  // namespace weft::net::rdma

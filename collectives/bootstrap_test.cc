#include "collectives/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <thread>

#include "collectives/bootstrap_wire.h"

namespace weft::collectives {
namespace {

using ::testing::HasSubstr;

/// Joins ranks [0, present) of `world` at once and hands each one to `body`.
template <typename Body>
void JoinRanks(int present, int world, Seconds timeout, const Body& body) {
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous) << rendezvous.error().message();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < present; ++rank) {
    const int listener = rank == 0 ? rendezvous->listener.release() : -1;
    threads.emplace_back([&, rank, listener] {
      body(rank, Bootstrap::Join({.rank = RankId(rank), .world = world, .address = rendezvous->address,
                                  .timeout = timeout, .listener = listener}));
    });
  }
}

std::vector<uint8_t> BlobOf(int rank) { return std::vector<uint8_t>(static_cast<size_t>(rank) * 1000, uint8_t(rank)); }

TEST(Bootstrap, EveryRankGetsEveryBlobInOrder) {
  JoinRanks(5, 5, Seconds(20), [](int rank, Result<std::unique_ptr<Bootstrap>> joined) {
    ASSERT_TRUE(joined) << joined.error().message();
    EXPECT_EQ((*joined)->rank(), RankId(rank));
    EXPECT_EQ((*joined)->world(), 5);
    for (int round = 0; round < 3; ++round) {
      const auto all = (*joined)->AllGather(BlobOf(rank));
      ASSERT_TRUE(all) << all.error().message();
      ASSERT_EQ(all->size(), 5u);
      for (int other = 0; other < 5; ++other) EXPECT_EQ((*all)[static_cast<size_t>(other)], BlobOf(other));
    }
  });
}

TEST(Bootstrap, LargestIsOfEveryPlace) {
  JoinRanks(3, 3, Seconds(20), [](int rank, Result<std::unique_ptr<Bootstrap>> joined) {
    ASSERT_TRUE(joined) << joined.error().message();
    const std::vector<double> mine{1.0 * rank, -1.0 * rank};
    const auto largest = (*joined)->Largest(mine);
    ASSERT_TRUE(largest) << largest.error().message();
    EXPECT_THAT(*largest, ::testing::ElementsAre(2, 0));
    const std::vector<double> uneven(rank == 1 ? 1 : 2, 0.0);
    const auto wrong = (*joined)->Largest(uneven);
    ASSERT_FALSE(wrong);
    EXPECT_THAT(wrong.error().message(), ::testing::HasSubstr("bytes of numbers"));
  });
}

TEST(Bootstrap, OneRankNeedsNoAddress) {
  const auto alone = Bootstrap::Join({});
  ASSERT_TRUE(alone) << alone.error().message();
  const auto all = (*alone)->AllGather(BlobOf(1));
  ASSERT_TRUE(all);
  EXPECT_THAT(*all, ::testing::ElementsAre(BlobOf(1)));
}

TEST(Bootstrap, RanksThatDidNotJoinAreNamedByAll) {
  JoinRanks(2, 4, Seconds(0.2), [](int, Result<std::unique_ptr<Bootstrap>> joined) {
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code(), Code::kDeadlineExceeded);
    // A member's own wait may end a moment before rank 0's word arrives.
    EXPECT_THAT(joined.error().message(), ::testing::AnyOf(HasSubstr("rank 2, 3 did not join within 0.2 s"),
                                                           HasSubstr("rank 0 did not have all 4 ranks")));
  });
}

/// A rank 1 of two that speaks the protocol by hand, so that it can misbehave.
class RawMember {
 public:
  explicit RawMember(const std::string& address, wire::Hello hello = {1, 2}) {
    const wire::Deadline deadline(Seconds(20));
    auto socket = wire::Connect(*wire::ParseAddress(address), deadline);
    EXPECT_TRUE(socket);
    socket_ = std::move(*socket);
    EXPECT_TRUE(wire::SendFrame(socket_.get(), wire::HelloFrame(hello), deadline));
  }
  Result<wire::Frame> Next() { return wire::ReceiveFrame(socket_.get(), wire::Deadline(Seconds(20))); }
  void Say(const wire::Frame& frame) {
    EXPECT_TRUE(wire::SendFrame(socket_.get(), frame, wire::Deadline(Seconds(20))));
  }
  void Die() { socket_.reset(); }

 private:
  UniqueFd socket_;
};

/// Rank 0 of two, and its raw member.
struct RawPair {
  std::unique_ptr<Bootstrap> root;
  std::optional<RawMember> member;
};

RawPair JoinRaw() {
  RawPair pair;
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  EXPECT_TRUE(rendezvous);
  pair.member.emplace(rendezvous->address);
  auto root = Bootstrap::Join({.rank = RankId(0), .world = 2, .listener = rendezvous->listener.release()});
  EXPECT_TRUE(root);
  pair.root = std::move(*root);
  EXPECT_EQ(pair.member->Next()->kind, wire::FrameKind::kWelcome);
  return pair;
}

TEST(Bootstrap, ARankThatDiesIsNamedByTheNextExchange) {
  RawPair pair = JoinRaw();
  pair.member->Die();
  const auto all = pair.root->AllGather(BlobOf(0));
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code(), Code::kUnavailable);
  EXPECT_EQ(all.error().message(), "rank 1 is gone");
}

TEST(Bootstrap, ARankThatDiesIsFoundWithoutAnExchange) {
  RawPair pair = JoinRaw();
  EXPECT_TRUE(pair.root->CheckPeers(Seconds(0)));
  pair.member->Die();
  const auto status = pair.root->CheckPeers(Seconds(20));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), Code::kUnavailable);
  EXPECT_EQ(status.error().message(), "rank 1 is gone");
}

TEST(Bootstrap, ARankThatLeavesInOrderIsNoFailure) {
  RawPair pair = JoinRaw();
  pair.member->Say({wire::FrameKind::kGoodbye, {}});
  pair.member->Die();
  EXPECT_TRUE(pair.root->CheckPeers(Seconds(20)));
}

TEST(Bootstrap, AReportedFailureReachesTheOthers) {
  JoinRanks(3, 3, Seconds(20), [](int rank, Result<std::unique_ptr<Bootstrap>> joined) {
    ASSERT_TRUE(joined) << joined.error().message();
    if (rank == 2) {
      (*joined)->ReportFailure(Error(Code::kInternal, "the disk is on fire"));
      return;
    }
    const auto status = (*joined)->CheckPeers(Seconds(20));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message(), "rank 2 failed: the disk is on fire");
  });
}

TEST(Bootstrap, ARankThatWasToldOfAnotherWorldIsRefused) {
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous);
  RawMember stranger(rendezvous->address, {1, 3});
  std::jthread root([listener = rendezvous->listener.release()] {
    EXPECT_FALSE(Bootstrap::Join({.rank = RankId(0), .world = 2, .timeout = Seconds(0.2), .listener = listener}));
  });
  const auto reply = stranger.Next();
  ASSERT_TRUE(reply);
  ASSERT_EQ(reply->kind, wire::FrameKind::kFailed);
  EXPECT_EQ(wire::FailureOf(*reply).code(), Code::kInvalidArgument);
  EXPECT_THAT(wire::FailureOf(*reply).message(), HasSubstr("was told of 3 ranks, rank 0 of 2"));
}

TEST(Bootstrap, GarbageClosesOnlyItsOwnConnection) {
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous);
  auto stranger = wire::Connect(*wire::ParseAddress(rendezvous->address), wire::Deadline(Seconds(20)));
  ASSERT_TRUE(stranger);
  ASSERT_EQ(send(stranger->get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
  RawMember member(rendezvous->address);
  const auto root = Bootstrap::Join({.rank = RankId(0), .world = 2, .listener = rendezvous->listener.release()});
  EXPECT_TRUE(root) << root.error().message();
}

TEST(Bootstrap, AnExchangeFromAnUntrustedRankIsBounded) {
  EXPECT_FALSE(wire::DecodeGathered({1, 2}, 1));
  EXPECT_FALSE(wire::DecodeGathered({255, 255, 255, 255, 1}, 1));
  EXPECT_TRUE(wire::DecodeGathered({1, 0, 0, 0, 7}, 1));
}

TEST(Bootstrap, AMalformedAddressIsRefused) {
  for (const char* address : {"", "host", "host:", ":123", "host:port", "host:70000", "a:b:1", "host:-1"}) {
    const auto joined = Bootstrap::Join({.rank = RankId(1), .world = 2, .address = address});
    ASSERT_FALSE(joined) << address;
    EXPECT_EQ(joined.error().code(), Code::kInvalidArgument) << address;
    EXPECT_THAT(joined.error().message(), HasSubstr("expected HOST:PORT")) << address;
  }
  const auto zero = Bootstrap::Join({.rank = RankId(1), .world = 2, .address = "127.0.0.1:0"});
  ASSERT_FALSE(zero);
  EXPECT_THAT(zero.error().message(), HasSubstr("port 0"));
}

TEST(Bootstrap, ARankOutOfRangeIsRefused) {
  const auto joined = Bootstrap::Join({.rank = RankId(2), .world = 2, .address = "127.0.0.1:1"});
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(joined.error().message(), HasSubstr("rank 2 of 2 ranks"));
}

TEST(Bootstrap, APortInUseIsNamed) {
  const auto first = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(first);
  const auto second = Bootstrap::Join({.rank = RankId(0), .world = 2, .address = first->address});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr(first->address));
}

TEST(Bootstrap, NobodyListeningIsADeadline) {
  const auto gone = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(gone);
  const std::string address = gone->address;
  const_cast<UniqueFd&>(gone->listener).reset();
  const auto joined =
      Bootstrap::Join({.rank = RankId(1), .world = 2, .address = address, .timeout = Seconds(0.05)});
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(joined.error().message(), HasSubstr("rank 0 cannot be reached at " + address));
}

}  // namespace
}  // namespace weft::collectives

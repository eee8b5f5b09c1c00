// The receiver of a lane that another connection takes over: nothing is lost, nothing comes twice, and nonsense fails the flow.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "netplugin/testing/lanes.h"

namespace weft::net {
namespace {

using testing::Chunk;
using testing::Lanes;
using RecvMoveTest = testing::WireTest;

/// A message of two chunks, as the stream of one lane.
std::string Stream() {
  std::string stream;
  for (const uint64_t offset : {0, 100}) {
    const ChunkHeader header = Chunk(0, 100, offset, 200);
    stream.append(reinterpret_cast<const char*>(&header), sizeof header);
    for (int i = 0; i < 100; ++i) stream.push_back(static_cast<char>(offset + static_cast<uint64_t>(i)));
  }
  return stream;
}

/// Its two ends.
std::pair<Fd, Fd> Connection() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

class Receiver {
 public:
  explicit Receiver(Lanes& lanes) : lanes_(lanes) { EXPECT_EQ(lanes.comm().Receive(data_, sizeof data_, 0, &request_), nccl::kSuccess); }

  int Test() { return lanes_.comm().Test(request_, &done_, &size_); }
  /// What comes of a few calls.
  int Turns() {
    int code = nccl::kSuccess;
    for (int i = 0; i < 8 && code == nccl::kSuccess && done_ == 0; ++i) code = Test();
    return code;
  }
  bool done() const { return done_ != 0; }
  bool IsRight() const {
    for (size_t i = 0; i < sizeof data_; ++i) {
      if (data_[i] != static_cast<char>(i)) return false;
    }
    return true;
  }

 private:
  Lanes& lanes_;
  char data_[200] = {};
  Request* request_ = nullptr;
  int done_ = 0, size_ = 0;
};

TEST_F(RecvMoveTest, GoesOnFromEveryByteWhateverHadCome) {
  const std::string stream = Stream();
  for (size_t came = 0; came < stream.size(); came += 7) {
    for (size_t from = 0; from <= came; from += 13) {
      Lanes lanes(services_, listener_);
      Receiver receiver(lanes);
      lanes.Send(0, stream.data(), came);
      const int code = came % 2 == 0 ? receiver.Turns() : nccl::kSuccess;  // it is read before or after the other one is there
      ASSERT_EQ(code, nccl::kSuccess);
      ASSERT_TRUE(lanes.Move(0, from));
      lanes.Send(0, stream.data() + from, stream.size() - from);
      ASSERT_EQ(receiver.Turns(), nccl::kSuccess) << came << " " << from;
      ASSERT_TRUE(receiver.done() && receiver.IsRight()) << came << " " << from;
    }
  }
}

TEST_F(RecvMoveTest, WhatIsNotPostedYetWaitsAndIsThereAfterwards) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  lanes.AddLane(1);
  lanes.Send(1, stream.data(), stream.size() / 2);
  ASSERT_TRUE(lanes.Move(1, 10));
  lanes.Send(1, stream.data() + 10, stream.size() - 10);
  Receiver receiver(lanes);
  EXPECT_EQ(receiver.Turns(), nccl::kSuccess);
  EXPECT_TRUE(receiver.done() && receiver.IsRight());
}

TEST_F(RecvMoveTest, TheOldConnectionMayEndOnceTheNewOneIsThere) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  Receiver receiver(lanes);
  lanes.Send(0, stream.data(), 120);
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  ASSERT_TRUE(lanes.Move(0, 100));
  lanes.old_end().Reset();
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  lanes.Send(0, stream.data() + 100, stream.size() - 100);
  EXPECT_EQ(receiver.Turns(), nccl::kSuccess);
  EXPECT_TRUE(receiver.done() && receiver.IsRight());
}

TEST_F(RecvMoveTest, ANewConnectionThatIsGivenUpChangesNothing) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  Receiver receiver(lanes);
  lanes.Send(0, stream.data(), 120);
  auto [offered, other] = Connection();
  ASSERT_TRUE(lanes.comm().Offer(0, &offered));
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  other.Reset();
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  lanes.Send(0, stream.data() + 120, stream.size() - 120);
  EXPECT_EQ(receiver.Turns(), nccl::kSuccess);
  EXPECT_TRUE(receiver.done() && receiver.IsRight());
}

TEST_F(RecvMoveTest, TheNewestOfSeveralCounts) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  Receiver receiver(lanes);
  lanes.Send(0, stream.data(), 120);
  for (const size_t position : {100, 100, 90}) {
    ASSERT_TRUE(lanes.Move(0, position));
    ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  }
  lanes.Send(0, stream.data() + 90, stream.size() - 90);
  EXPECT_EQ(receiver.Turns(), nccl::kSuccess);
  EXPECT_TRUE(receiver.done() && receiver.IsRight());
}

TEST_F(RecvMoveTest, OneThatHasBegunIsFollowedBeforeThereIsAnother) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  lanes.AddLane(1);
  lanes.Send(1, stream.data(), 100);
  ASSERT_TRUE(lanes.Move(1, 100));
  lanes.Send(1, stream.data() + 100, 50);  // acknowledged: they come over no other one
  auto [offered, other] = Connection();
  EXPECT_FALSE(lanes.comm().Offer(1, &offered));
  Receiver receiver(lanes);
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  ASSERT_TRUE(lanes.Move(1, 150));
  lanes.Send(1, stream.data() + 150, stream.size() - 150);
  EXPECT_EQ(receiver.Turns(), nccl::kSuccess);
  EXPECT_TRUE(receiver.done() && receiver.IsRight());
}

TEST_F(RecvMoveTest, ASenderThatEndsWithItsNewConnectionIsSeenToEnd) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  Receiver receiver(lanes);
  lanes.Send(0, stream.data(), 120);
  auto [offered, other] = Connection();
  ASSERT_TRUE(lanes.comm().Offer(0, &offered));
  lanes.Close(0);
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess) << "the new one may go on";
  other.Reset();
  EXPECT_EQ(receiver.Turns(), nccl::kRemoteError);
}

TEST_F(RecvMoveTest, ALaneThatIsNotThereIsNotTakenOver) {
  Lanes lanes(services_, listener_);
  EXPECT_FALSE(lanes.Move(3, 0));
}

TEST_F(RecvMoveTest, AHoleFailsTheFlowOnlyWhenNothingCanFillIt) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  Receiver receiver(lanes);
  lanes.Send(0, stream.data(), 50);
  ASSERT_TRUE(lanes.Move(0, 80));
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess) << "the old one may bring it";
  EXPECT_FALSE(receiver.done());
  lanes.old_end().Reset();
  EXPECT_EQ(receiver.Turns(), nccl::kRemoteError);
}

TEST_F(RecvMoveTest, AWrongMagicNumberFailsTheFlow) {
  Lanes lanes(services_, listener_);
  Receiver receiver(lanes);
  auto [offered, other] = Connection();
  ASSERT_TRUE(lanes.comm().Offer(0, &offered));
  const LaneResume resume{kChunkMagic, 0, 0};
  ASSERT_EQ(write(other.get(), &resume, sizeof resume), static_cast<ssize_t>(sizeof resume));
  EXPECT_EQ(receiver.Turns(), nccl::kInternalError);
}

TEST_F(RecvMoveTest, WhatIsRepeatedWithoutEndIsPassedOverPieceByPiece) {
  const std::string stream = Stream();
  Lanes lanes(services_, listener_);
  Receiver receiver(lanes);
  lanes.Send(0, stream.data(), stream.size() - 1);
  ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  ASSERT_TRUE(lanes.Move(0, 0));
  for (const char byte : stream) {
    ASSERT_FALSE(receiver.done());
    lanes.Send(0, &byte, 1);
    ASSERT_EQ(receiver.Turns(), nccl::kSuccess);
  }
  EXPECT_TRUE(receiver.done() && receiver.IsRight());
}

}  // namespace
}  // namespace weft::net

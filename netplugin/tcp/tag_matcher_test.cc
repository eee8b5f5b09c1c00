// The matcher's rules one by one, where the counters turn over.
#include "netplugin/tcp/tag_matcher.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "netplugin/tcp/socket.h"

namespace weft::net {
namespace {

constexpr uint32_t kFirst = 0xFFFFFFFE;  // two messages before the counter turns over

struct Buffer {
  explicit Buffer(int32_t tag, uint64_t size = 100) {
    part.owner = &request;
    part.Post(bytes.data(), size, tag);
  }
  RecvRequest request;
  std::array<char, 100> bytes{};
  RecvPart part;
};

ChunkHeader Chunk(uint32_t sequence, int32_t tag, uint32_t length = 10, uint64_t total = 10) {
  return {kChunkMagic, kChunkTagged, 0, 0, sequence, length, 0, total, tag, 0};
}

class TagMatcherTest : public ::testing::Test {
 protected:
  /// Writes a whole message to where the matcher wants it. The buffer that is complete by that.
  RecvPart* Arrive(const ChunkHeader& header, char byte) {
    RecvPart* part = nullptr;
    EXPECT_EQ(matcher_.Find(header, &part), TagMatcher::Found::kPart);
    std::memset(part->data, byte, header.total);
    part->total = part->received = header.total;
    return matcher_.Complete(part);
  }

  TagMatcher matcher_{1, kFirst, kFirst};
};

TEST_F(TagMatcherTest, AnEarlyMessageIsGivenOutAcrossTheTurnOfTheCounter) {
  Buffer one(1), two(2), again(1);
  EXPECT_EQ(matcher_.Post(&two.part), TagMatcher::Posted::kWaits);
  EXPECT_EQ(Arrive(Chunk(kFirst, 1), 'a'), nullptr) << "taken in";
  EXPECT_EQ(Arrive(Chunk(kFirst + 1, 1), 'b'), nullptr);
  EXPECT_EQ(Arrive(Chunk(kFirst + 2, 2), 'c'), &two.part);
  EXPECT_EQ(two.bytes[9], 'c');
  EXPECT_EQ(matcher_.Post(&one.part), TagMatcher::Posted::kComplete);
  EXPECT_EQ(matcher_.Post(&again.part), TagMatcher::Posted::kComplete);
  EXPECT_EQ(one.bytes[9], 'a');
  EXPECT_EQ(again.bytes[9], 'b');
  RecvPart* part = nullptr;
  EXPECT_EQ(matcher_.Find(Chunk(kFirst, 1), &part), TagMatcher::Found::kWrong) << "it is complete";
}

TEST_F(TagMatcherTest, NothingIsTakenInWhereNobodyWaitsOrATagIsUnknown) {
  RecvPart* part = nullptr;
  EXPECT_EQ(matcher_.Find(Chunk(kFirst, 1), &part), TagMatcher::Found::kNotYet);
  EXPECT_FALSE(matcher_.MayTake(kFirst));
  Buffer two(2);
  matcher_.Post(&two.part);
  EXPECT_EQ(matcher_.Find(Chunk(kFirst + 1, 2), &part), TagMatcher::Found::kNotYet) << "the message before may be tag 2";
  EXPECT_TRUE(matcher_.MayTake(kFirst));
  EXPECT_FALSE(matcher_.MayTake(kFirst + 1));
}

TEST_F(TagMatcherTest, ABufferTooSmallForWhatCameEarlyIsRefused) {
  Buffer two(2), small(1, 9);
  matcher_.Post(&two.part);
  EXPECT_EQ(Arrive(Chunk(kFirst, 1), 'a'), nullptr);
  EXPECT_EQ(matcher_.Post(&small.part), TagMatcher::Posted::kTooLong);
  EXPECT_EQ(small.part.total, 10u);
  EXPECT_EQ(small.bytes[0], 0);
}

TEST_F(TagMatcherTest, WhatNobodyCanHoldIsRefused) {
  Buffer two(2);
  matcher_.Post(&two.part);
  RecvPart* part = nullptr;
  const uint64_t total = TagMatcher::kMostEarlyBytes + 1;
  EXPECT_EQ(matcher_.Find(Chunk(kFirst, 1, 10, total), &part), TagMatcher::Found::kTooMuch);
}

TEST_F(TagMatcherTest, TheSenderIsToldOnceMuchCameEarlyAndEachReceiveFromThenOn) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd mine(ends[0]), theirs(ends[1]);
  const auto told = [&] {
    std::vector<PostedNotice> notices(8);
    matcher_.Notify(mine.get());
    const ssize_t got = recv(theirs.get(), notices.data(), notices.size() * sizeof(PostedNotice), MSG_DONTWAIT);
    notices.resize(got > 0 ? static_cast<size_t>(got) / sizeof(PostedNotice) : 0);
    return notices;
  };
  Buffer two(2);
  matcher_.Post(&two.part);
  EXPECT_EQ(Arrive(Chunk(kFirst, 1, 10, TagMatcher::kEarlyBytes), 'a'), nullptr);
  EXPECT_TRUE(told().empty()) << "so much is chance";
  EXPECT_EQ(Arrive(Chunk(kFirst + 1, 1), 'b'), nullptr);
  auto notices = told();
  ASSERT_EQ(notices.size(), 2u);
  for (const PostedNotice& notice : notices) {
    EXPECT_EQ(notice.magic, kPostedMagic);
    EXPECT_EQ(notice.count, notice.tag == 1 ? kFirst : 1);
  }
  Buffer three(3);
  matcher_.Post(&three.part);
  notices = told();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].tag, 3);
  EXPECT_EQ(notices[0].count, 1u);
}

}  // namespace
}  // namespace weft::net

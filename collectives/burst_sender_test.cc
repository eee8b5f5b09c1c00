#include "collectives/burst_sender.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace weft::collectives {
namespace {

TEST(BurstSender, SendsWhatIsReleasedInOrderAndNothingElse) {
  std::vector<size_t> sent;  // of the sender's thread; read after Await()
  BurstSender sender(3, [&](size_t b) {
    sent.push_back(b);
    return Ok();
  });
  for (int iteration = 0; iteration < 100; ++iteration) {
    sent.clear();
    sender.Begin();
    sender.Release(0);
    ASSERT_TRUE(sender.Await(0));
    EXPECT_EQ(sent, std::vector<size_t>({0}));
    sender.Release(2);
    ASSERT_TRUE(sender.Await(2));
    EXPECT_EQ(sent, std::vector<size_t>({0, 1, 2}));
  }
}

TEST(BurstSender, AFailureIsEverybodysAndTheLast) {
  std::atomic<int> calls = 0;
  BurstSender sender(3, [&](size_t b) -> Status {
    ++calls;
    if (b == 1) return Fail(Code::kUnavailable, "peer is gone");
    return Ok();
  });
  sender.Begin();
  sender.Release(2);
  EXPECT_EQ(sender.Await(2).error().code(), Code::kUnavailable);
  EXPECT_EQ(sender.Await(0).error().code(), Code::kUnavailable);
  EXPECT_EQ(calls, 2);
}

TEST(BurstSender, EndsWhileNothingIsReleased) {
  BurstSender sender(1, [](size_t) { return Ok(); });
  sender.Begin();
}

}  // namespace
}  // namespace weft::collectives

#include "runtime/execute/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <string>

#include "runtime/execute/liveness.h"

namespace weft::runtime {
namespace {

TEST(Streams, RunEachStreamInOrderAndWaitForWhatATaskNames) {
  Streams streams(2);
  std::mutex mutex;
  std::string order;
  const auto note = [&](char c) {
    return [&, c]() -> Status {
      const std::lock_guard lock(mutex);
      order += c;
      return Ok();
    };
  };
  for (int step = 0; step < 50; ++step) {
    order.clear();
    streams.Begin(4);
    streams.Enqueue(0, 0, {3}, note('a'));   // begun first, and waits for the last one
    streams.Enqueue(0, 1, {}, note('b'));
    streams.Enqueue(1, 2, {}, note('c'));
    streams.Enqueue(1, 3, {2}, note('d'));
    ASSERT_TRUE(streams.Wait(1));
    ASSERT_TRUE(streams.WaitForAll());
    ASSERT_EQ(order, "cdab");
  }
}

TEST(Streams, OverlapWithTheCallerAndWithEachOther) {
  Streams streams(2);
  std::latch all(3);  // nobody passes before both tasks and the caller are there
  streams.Begin(2);
  for (const int32_t i : {0, 1}) {
    streams.Enqueue(static_cast<size_t>(i), i, {}, [&]() -> Status {
      all.arrive_and_wait();
      return Ok();
    });
  }
  all.arrive_and_wait();
  EXPECT_TRUE(streams.WaitForAll());
}

TEST(Streams, AnErrorReachesWhoeverWaits) {
  Streams streams(2);
  streams.Begin(2);
  streams.Enqueue(0, 0, {}, []() -> Status { return Fail(Code::kUnavailable, "rank 3 is gone"); });
  streams.Enqueue(1, 1, {0}, []() -> Status { return Ok(); });
  const Status status = streams.Wait(1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), Code::kUnavailable);
  EXPECT_FALSE(streams.WaitForAll());
}

// 0 writes a; 1 reads a and writes b, c; 2 reads b; 3 sums the loss. a goes after 1, c (read by nobody) too, b after 2.
TEST(Liveness, AValueGoesAfterItsLastReader) {
  using planner::StepAction;
  planner::RankClass list;
  list.values.resize(4);
  list.instructions = {{.action = StepAction::kForward, .outputs = {0}},
                       {.action = StepAction::kForward, .inputs = {0}, .outputs = {1, 2}},
                       {.action = StepAction::kForward, .inputs = {1}},
                       {.action = StepAction::kLossSum, .outputs = {3}}};
  const Liveness live = LivenessOf(list);
  EXPECT_EQ(live.loss, 3);
  EXPECT_THAT(live.writer, testing::ElementsAre(0, 1, 1, 3));
  using testing::ElementsAre;
  EXPECT_THAT(live.free_after, ElementsAre(testing::IsEmpty(), ElementsAre(0, 2), ElementsAre(1), testing::IsEmpty()));
}

}  // namespace
}  // namespace weft::runtime

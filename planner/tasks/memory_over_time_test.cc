#include "planner/tasks/memory_over_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "planner/tasks/pipeline.h"
#include "planner/tasks/testing/reference_pipeline.h"

namespace weft::planner::inline tasks {
namespace {

using ::testing::HasSubstr;
using testing::Order;
using testing::Step;

/// A pipeline whose stages all hold `memory`.
OperationList List(ScheduleKind schedule, int64_t p, int64_t m, int64_t v, std::vector<Holding> memory) {
  StageOperations all{.stages = {}, .operations = {}, .memory = std::move(memory)};
  for (int64_t i = 0; i < p; ++i) all.stages.push_back(i);
  return {.schedule = schedule, .stages = p, .chunks = v, .micro_batches = m, .classes = {std::move(all)}};
}

Holding Piece(HoldingSpan span, int64_t bytes, HoldingChunks chunks = HoldingChunks::kAll, HoldingPart part = HoldingPart::kTransient) {
  return {.what = "piece", .part = part, .span = span, .chunks = chunks, .bytes = Bytes(bytes)};
}

struct Shape {
  ScheduleKind kind;
  int64_t p, m, v;
  std::string name() const {
    return std::string(ScheduleName(kind)) + " p " + std::to_string(p) + " m " + std::to_string(m) + " v " + std::to_string(v);
  }
};

/// A shape of any schedule that has an order.
Shape RandomShape(std::mt19937& random) {
  const auto draw = [&](int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random); };
  Shape shape{.kind = kAllSchedules[static_cast<size_t>(draw(0, 6))], .p = draw(1, 8), .m = draw(1, 40), .v = 1};
  if (shape.kind == ScheduleKind::kZbV) shape.v = 2;
  if (shape.kind == ScheduleKind::kInterleaved) shape.v = draw(1, 5);
  if (shape.v > 1) shape.p = std::max<int64_t>(2, shape.p);  // no chunks without a pipeline
  if (shape.kind == ScheduleKind::kInterleaved && shape.v > 1) shape.m = shape.p * draw(1, 6);
  return shape;
}

// p = 2, m = 2 under 1F1B, first stage: F0 F1 B0 B1. All the time 100; 10 per micro-batch, 3 in a pass, 5 in a backward pass, and a
// tenth of what is not held all the time in fragments: of the most, 10 + 10 + 3 + 5 = 28, that is 2.
TEST(MemoryOfStage, OfTwoStagesByHand) {
  OperationList list = List(ScheduleKind::k1F1B, 2, 2, 1,
                            {Piece(HoldingSpan::kIteration, 100, HoldingChunks::kAll, HoldingPart::kParameters),
                             Piece(HoldingSpan::kMicroBatch, 10), Piece(HoldingSpan::kPass, 3), Piece(HoldingSpan::kBackward, 5)});
  list.classes.front().fragmentation = 0.1;
  const MemoryOverTime first = MemoryOfStage(list, 0).value();
  EXPECT_EQ(first.constant, Bytes(102));
  EXPECT_EQ(first.peak, Bytes(130));
  const std::pair<int, int> expected[] = {{115, 112}, {125, 122}, {130, 112}, {120, 102}};
  ASSERT_EQ(first.passes.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(first.passes[i].during, Bytes(expected[i].first)) << i;
    EXPECT_EQ(first.passes[i].after, Bytes(expected[i].second)) << i;
  }
  EXPECT_EQ(MemoryOfStage(list, 1)->peak, Bytes(100 + 18 + 1)) << "the last stage holds one micro-batch";
}

// What is held while pass n runs: the micro-batches whose forward pass is not after it and whose last pass is not before it.
TEST(MemoryOfStage, IsWhatTheWrittenOutOrderHolds) {
  std::mt19937 random(71);
  for (int round = 0; round < 1000; ++round) {
    const Shape s = RandomShape(random);
    const auto draw = [&] { return static_cast<int64_t>(random() % 1000); };
    const int64_t constant = draw(), all = draw(), first = draw(), last = draw(), pass = draw(), backward = draw();
    const OperationList list =
        List(s.kind, s.p, s.m, s.v,
             {Piece(HoldingSpan::kIteration, constant), Piece(HoldingSpan::kMicroBatch, all),
              Piece(HoldingSpan::kMicroBatch, first, HoldingChunks::kFirst), Piece(HoldingSpan::kPass, last, HoldingChunks::kLast),
              Piece(HoldingSpan::kPass, pass), Piece(HoldingSpan::kBackward, backward)});
    for (int64_t i = 0; i < s.p; ++i) {
      const MemoryOverTime memory = MemoryOfStage(list, i).value();
      const std::vector<Step> steps = Order(s.kind, i, s.p, s.m, s.v);
      ASSERT_EQ(memory.passes.size(), steps.size()) << s.name();
      std::set<std::pair<int64_t, int64_t>> in_flight;
      int64_t most = constant;
      for (size_t n = 0; n < steps.size(); ++n) {
        const std::pair<int64_t, int64_t> work{steps[n].chunk, steps[n].micro_batch};
        in_flight.insert(work);
        int64_t held = constant + pass + (steps[n].kind == 'D' ? backward : 0) + (work.first == s.v - 1 ? last : 0);
        for (const auto& [chunk, micro_batch] : in_flight) held += all + (chunk == 0 ? first : 0);
        most = std::max(most, held);
        ASSERT_EQ(memory.passes[n].during, Bytes(held)) << s.name() << " stage " << i << " pass " << n;
        if (steps[n].kind == (SplitsBackward(s.kind) ? 'W' : 'D')) in_flight.erase(work);
      }
      ASSERT_TRUE(in_flight.empty()) << s.name();
      ASSERT_EQ(memory.peak, Bytes(most)) << s.name();
      ASSERT_EQ(memory.passes.back().after, memory.constant) << s.name();
    }
  }
}

// The closed forms of what is in flight are what the walk holds at its peak, to the pass.
TEST(InFlight, IsTheMostThatTheOrderHolds) {
  std::mt19937 random(72);
  for (int round = 0; round < 3000; ++round) {
    const Shape s = RandomShape(random);
    const OperationList chunks = List(s.kind, s.p, s.m, s.v, {Piece(HoldingSpan::kMicroBatch, 1)});
    for (int64_t i = 0; i < s.p; ++i) {
      ASSERT_EQ(MemoryOfStage(chunks, i)->peak, Bytes(InFlight(s.kind, i, s.p, s.m, s.v))) << s.name() << " stage " << i;
    }
    const OperationList first = List(s.kind, s.p, s.m, s.v, {Piece(HoldingSpan::kMicroBatch, 1, HoldingChunks::kFirst)});
    ASSERT_EQ(MemoryOfStage(first, 0)->peak, Bytes(FirstChunkInFlight(s.kind, s.p, s.m, s.v))) << s.name();
    // Both are reached in one backward pass: what exists in it comes on top.
    const OperationList both =
        List(s.kind, s.p, s.m, s.v, {Piece(HoldingSpan::kMicroBatch, 1000), Piece(HoldingSpan::kMicroBatch, 1, HoldingChunks::kFirst),
                                     Piece(HoldingSpan::kBackward, 1'000'000)});
    ASSERT_EQ(MemoryOfStage(both, 0)->peak,
              Bytes(1'000'000 + 1000 * InFlight(s.kind, 0, s.p, s.m, s.v) + FirstChunkInFlight(s.kind, s.p, s.m, s.v)))
        << s.name();
  }
}

// 2^50 bytes for each of 2^16 micro-batches are more than an integer has.
TEST(MemoryOfStage, RefusesMoreThanAnyStageHolds) {
  OperationList list = List(ScheduleKind::kGpipe, 1, int64_t{1} << 16, 1, {Piece(HoldingSpan::kMicroBatch, int64_t{1} << 50)});
  EXPECT_THAT(MemoryOfStage(list, 0).error().message(), HasSubstr("memory over time: 7.38e+19 bytes in all passes, expected at most 1.15e+18"));
  list = List(ScheduleKind::kGpipe, 1, 1, 1, {Piece(HoldingSpan::kMicroBatch, 1)});
  list.classes[0].fragmentation = 1e300;
  EXPECT_FALSE(MemoryOfStage(list, 0));
}

TEST(MemoryOfStage, RefusesChunksWithoutAnOrder) {
  const Result<MemoryOverTime> memory = MemoryOfStage(List(ScheduleKind::kInterleaved, 4, 6, 2, {}), 0);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(memory.error().message(), "memory over time: interleaved pipeline: 6 micro-batches, expected a multiple of 4 stages");
  EXPECT_THAT(MemoryOfStage(List(ScheduleKind::kZbV, 4, 8, 1, {}), 0).error().message(), HasSubstr("1 chunks, expected 2"));
  EXPECT_THAT(MemoryOfStage(List(ScheduleKind::k1F1B, 4, int64_t{1} << 40, 1, {}), 0).error().message(), HasSubstr("268435456 passes"));
}

}  // namespace
}  // namespace weft::planner::tasks

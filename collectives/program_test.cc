#include "collectives/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/collectives/ring.h"

namespace weft::collectives {
namespace {

using planner::BufferKind;
using planner::Collective;
using planner::Schedule;
using planner::StepKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Program Compiled(const Schedule& schedule, int rank, int64_t count, int64_t slice = 1 << 20, bool in_place = false) {
  auto program = CompileProgram(
      schedule, {.rank = RankId(rank), .count = count, .slice_elements = slice, .in_place = in_place});
  EXPECT_TRUE(program) << program.error().message();
  return program ? std::move(*program) : Program{};
}

TEST(Program, ChunkBoundsAreFloorsWithoutOverflow) {
  EXPECT_EQ(ChunkBegin(0, 10, 4), 0);
  EXPECT_EQ(ChunkBegin(1, 10, 4), 2);
  EXPECT_EQ(ChunkBegin(3, 10, 4), 7);
  EXPECT_EQ(ChunkBegin(4, 10, 4), 10);
  const int64_t huge = int64_t{1} << 60;
  EXPECT_EQ(ChunkBegin(1023, huge, 1024), huge / 1024 * 1023);
}

// 10 elements in 4 chunks: [0,2) [2,5) [5,7) [7,10). A sum in scratch is as long as the chunk that it is of.
TEST(Program, AChunkInScratchIsAsLongAsWhatWasPutThere) {
  const auto schedule = *planner::RingSchedule(Collective::kReduceScatter, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const Program program = Compiled(schedule, rank, 10);
    EXPECT_EQ(program.input_elements, 10);
    EXPECT_EQ(program.output_elements, rank % 2 == 0 ? 2 : 3);
    std::vector<int64_t> received;
    for (const ProgramStep& step : program.steps) {
      if (step.kind == StepKind::kRecv) received.push_back(step.elements);
    }
    // Rank r receives chunks r-2, r-3, r-4: even ranks 2, 3, 2.
    if (rank % 2 == 0) EXPECT_THAT(received, ElementsAre(2, 3, 2));
    else EXPECT_THAT(received, ElementsAre(3, 2, 3));
  }
}

TEST(Program, TheGatheredPiecesHaveTheLengthsOfTheirPlaces) {
  const auto schedule = *planner::RingSchedule(Collective::kAllGather, 4);
  EXPECT_EQ(Compiled(schedule, 0, 10).input_elements, 2);
  EXPECT_EQ(Compiled(schedule, 1, 10).input_elements, 3);
  EXPECT_EQ(Compiled(schedule, 1, 10).output_elements, 10);
}

TEST(Program, SlicesCoverTheLongestChunk) {
  const auto schedule = *planner::RingSchedule(Collective::kAllReduce, 3);
  EXPECT_EQ(Compiled(schedule, 0, 0).slices, 0);
  EXPECT_EQ(Compiled(schedule, 0, 1).slices, 1);
  EXPECT_EQ(Compiled(schedule, 0, 10, 4).slices, 1);
  EXPECT_EQ(Compiled(schedule, 0, 13, 4).slices, 2);
}

TEST(Program, PairsAreThoseThatTalk) {
  const auto schedule = *planner::RingSchedule(Collective::kAllReduce, 3);
  EXPECT_THAT(Compiled(schedule, 0, 9).pairs, ElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{2, 0}));
}

TEST(Program, InPlaceAllToAllAsksForACopyOfItsInput) {
  const auto schedule = *planner::RingSchedule(Collective::kAllToAll, 4);
  EXPECT_TRUE(Compiled(schedule, 0, 8, 1 << 20, true).stage_input);
  EXPECT_FALSE(Compiled(schedule, 0, 8).stage_input);
}

TEST(Program, InPlaceAllReduceAndBroadcastNeedNoCopy) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast}) {
    EXPECT_FALSE(Compiled(*planner::RingSchedule(collective, 4), 0, 8, 1 << 20, true).stage_input);
  }
}

// In place, a receive into the chunk that a send still reads must wait for the send.
TEST(Program, InPlaceAWriteWaitsForEarlierReadsOfItsChunk) {
  Schedule exchange{.collective = Collective::kAllReduce, .algorithm = "swap", .chunk_count = 1};
  exchange.ranks.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    exchange.ranks[static_cast<size_t>(rank)] = {
        {.kind = StepKind::kSend, .peer = RankId(1 - rank), .source = {BufferKind::kInput, 0}},
        {.kind = StepKind::kRecv, .peer = RankId(1 - rank), .destination = {BufferKind::kOutput, 0}}};
  }
  EXPECT_THAT(Compiled(exchange, 0, 4, 4, true).steps[1].needs, ElementsAre(0));
  EXPECT_THAT(Compiled(exchange, 0, 4, 4, true).steps[0].dependents, ElementsAre(1));
  EXPECT_TRUE(Compiled(exchange, 0, 4, 4, false).steps[1].needs.empty());
}

TEST(Program, SumsIntoOneChunkAreOrderedEvenWhereTheScheduleIsSilent) {
  Schedule sum{.collective = Collective::kAllReduce, .algorithm = "local", .chunk_count = 2};
  sum.ranks = {
      {{.kind = StepKind::kReduce, .source = {BufferKind::kInput, 0}, .destination = {BufferKind::kOutput, 0}},
       {.kind = StepKind::kReduce, .source = {BufferKind::kInput, 1}, .destination = {BufferKind::kOutput, 0}}}};
  EXPECT_THAT(Compiled(sum, 0, 4).steps[1].needs, ElementsAre(0));
}

TEST(Program, EndsOfDifferentLengthAreNamed) {
  // 3 elements in 2 chunks: 1 and 2.
  Schedule skewed{.collective = Collective::kAllReduce, .algorithm = "skewed", .chunk_count = 2};
  skewed.ranks = {{{.kind = StepKind::kSend, .peer = RankId(1), .source = {BufferKind::kInput, 0}}},
                  {{.kind = StepKind::kRecv, .peer = RankId(0), .destination = {BufferKind::kOutput, 1}}}};
  const auto program = CompileProgram(skewed, {.rank = RankId(1), .count = 3});
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(program.error().message(), HasSubstr("rank 1 step 0: 1 elements into a chunk of 2"));
}

TEST(Program, ScratchThatNothingFilledIsNamed) {
  Schedule hollow{.collective = Collective::kAllReduce, .algorithm = "hollow", .chunk_count = 2, .scratch_chunks = 1};
  hollow.ranks = {{{.kind = StepKind::kCopy, .source = {BufferKind::kScratch, 0},
                    .destination = {BufferKind::kOutput, 0}}}};
  const auto program = CompileProgram(hollow, {.rank = RankId(0), .count = 3});
  ASSERT_FALSE(program);
  EXPECT_THAT(program.error().message(), HasSubstr("reads scratch chunk 0"));
}

TEST(Program, AllToAllWantsAMultipleOfItsChunks) {
  const auto program =
      CompileProgram(*planner::RingSchedule(Collective::kAllToAll, 4), {.rank = RankId(0), .count = 6});
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(program.error().message(), HasSubstr("6 elements: expected a multiple of 4"));
}

}  // namespace
}  // namespace weft::collectives

#include "planner/collectives/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::planner::inline collectives {
namespace {

using testing::HasSubstr;

ChunkRef In(int32_t chunk) { return {BufferKind::kInput, chunk}; }
ChunkRef Out(int32_t chunk) { return {BufferKind::kOutput, chunk}; }

Step Send(int32_t peer, ChunkRef source, std::vector<StepId> needs = {}) {
  return {.kind = StepKind::kSend, .peer = RankId(peer), .source = source, .needs = std::move(needs)};
}
Step Receive(int32_t peer, ChunkRef destination, std::vector<StepId> needs = {}) {
  return {.kind = StepKind::kRecv, .peer = RankId(peer), .destination = destination, .needs = std::move(needs)};
}

// Two ranks that exchange one chunk each.
Schedule Exchange() {
  Schedule schedule{.collective = Collective::kAllReduce, .algorithm = "test", .chunk_count = 1};
  schedule.ranks = {{Send(1, In(0)), Receive(1, Out(0))}, {Send(0, In(0)), Receive(0, Out(0))}};
  return schedule;
}

TEST(Collective, EveryNameIsReadBack) {
  for (const char* name : {"sendrecv", "allreduce", "allgather", "reducescatter", "alltoall", "broadcast"}) {
    const Result<Collective> collective = ParseCollective(name);
    ASSERT_TRUE(collective) << name;
    EXPECT_EQ(CollectiveName(*collective), name);
  }
}

TEST(Collective, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Result<Collective> collective = ParseCollective("allredcue");
  ASSERT_FALSE(collective);
  EXPECT_EQ(collective.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(collective.error().message(), HasSubstr("\"allredcue\""));
  EXPECT_THAT(collective.error().message(), HasSubstr("reducescatter"));
}

TEST(Schedule, BufferSizesFollowTheCollective) {
  Schedule schedule{.chunk_count = 8};
  schedule.ranks.resize(4);
  schedule.collective = Collective::kAllGather;
  EXPECT_EQ(schedule.input_chunks(), 2);
  EXPECT_EQ(schedule.output_chunks(), 8);
  schedule.collective = Collective::kReduceScatter;
  EXPECT_EQ(schedule.input_chunks(), 8);
  EXPECT_EQ(schedule.output_chunks(), 2);
}

TEST(ValidateSchedule, AcceptsSendsBeforeReceives) { EXPECT_TRUE(ValidateSchedule(Exchange())); }

TEST(ValidateSchedule, FindsTheDeadlockOfTwoThatReceiveBeforeTheySend) {
  Schedule schedule = Exchange();
  for (int32_t rank = 0; rank < 2; ++rank) {
    schedule.ranks[static_cast<size_t>(rank)] = {Receive(1 - rank, Out(0)), Send(1 - rank, In(0), {StepId(0)})};
  }
  const Status status = ValidateSchedule(schedule);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("rank 0, step 0: deadlock: it and 3 other steps"));
}

TEST(ValidateSchedule, FindsTheDeadlockOfTransfersOutOfOrder) {
  // Rank 0 sends x then y and needs nothing; rank 1's first receive needs its second.
  Schedule schedule{.collective = Collective::kBroadcast, .chunk_count = 2};
  schedule.ranks = {{Send(1, In(0)), Receive(1, Out(0)), Send(1, In(1), {StepId(1)})},
                    {Receive(0, Out(0)), Receive(0, Out(1)), Send(0, Out(1), {StepId(1)})}};
  const Status status = ValidateSchedule(schedule);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("deadlock"));
}

struct Fault {
  const char* message;
  void (*make)(Schedule*);
};

TEST(ValidateSchedule, NamesRankAndStepOfEachFault) {
  const Fault faults[] = {
      {"no ranks", [](Schedule* s) { s->ranks.clear(); }},
      {"0 chunks", [](Schedule* s) { s->chunk_count = 0; }},
      {"rank 1, step 0: input chunk 1 of 1", [](Schedule* s) { s->ranks[1][0].source = In(1); }},
      {"rank 0, step 1: output chunk -1 of 1", [](Schedule* s) { s->ranks[0][1].destination = Out(-1); }},
      {"scratch chunk 0 of 0", [](Schedule* s) { s->ranks[0][1].destination = {BufferKind::kScratch, 0}; }},
      {"rank 0, step 1: writes to its input", [](Schedule* s) { s->ranks[0][1].destination = In(0); }},
      {"rank 1, step 0: peer 1", [](Schedule* s) { s->ranks[1][0].peer = RankId(1); }},
      {"peer 2", [](Schedule* s) { s->ranks[1][0].peer = RankId(2); }},
      {"rank 0, step 0: needs step 0", [](Schedule* s) { s->ranks[0][0].needs = {StepId(0)}; }},
      {"rank 0 sends 1 times to rank 1, which receives 0 times", [](Schedule* s) { s->ranks[1].pop_back(); }},
      {"1 chunks, expected a multiple of the 2 ranks", [](Schedule* s) { s->collective = Collective::kAllToAll; }},
  };
  for (const Fault& fault : faults) {
    Schedule schedule = Exchange();
    fault.make(&schedule);
    const Status status = ValidateSchedule(schedule);
    ASSERT_FALSE(status) << fault.message;
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(status.error().message(), HasSubstr(fault.message));
  }
}

}  // namespace
}  // namespace weft::planner::collectives

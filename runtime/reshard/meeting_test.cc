#include "runtime/reshard/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "planner/parallelism/program/testing/small_models.h"

namespace weft::runtime {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;

/// One thread per rank, over a real rendezvous.
void OnRanks(const std::function<void(int rank, collectives::Bootstrap* bootstrap)>& body) {
  auto rendezvous = collectives::OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous) << rendezvous.error().message();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    const int listener = rank == 0 ? rendezvous->listener.release() : -1;
    threads.emplace_back([&, rank, listener] {
      auto bootstrap = collectives::Bootstrap::Join({.rank = RankId(rank),
                                                     .world = kRanks,
                                                     .address = rendezvous->address,
                                                     .timeout = Seconds(20),
                                                     .listener = listener});
      ASSERT_TRUE(bootstrap) << bootstrap.error().message();
      body(rank, bootstrap->get());
    });
  }
}

// 0.5 s between two meetings, whatever an iteration takes, and never more than 1000 steps.
TEST(Meetings, AreHalfASecondApart) {
  EXPECT_EQ(StepsBetween(Seconds(0.125)), 4);
  EXPECT_EQ(StepsBetween(Seconds(0.2)), 3) << "2.5, and never sooner";
  EXPECT_EQ(StepsBetween(Seconds(0.5)), 1);
  EXPECT_EQ(StepsBetween(Seconds(3600)), 1);
  EXPECT_EQ(StepsBetween(Seconds(0.0005)), 1000);
  EXPECT_EQ(StepsBetween(Seconds(1e-300)), 1000);
}

// Some would go on and others end the run, if one rank's error were of another kind than the others take for a refusal.
TEST(Meetings, ARankThatCannotFollowHasAllRefuseWhateverItsError) {
  const planner::JobSpec job{.name = "j",
                             .model = planner::SmallLlama(),
                             .global_batch = 24,
                             .sequence = 32,
                             .precision = planner::Precision::kFp32,
                             .gpus = 4};
  const auto program = planner::ExpandProgram(job, {.dp = 4}, planner::ElementType::kFloat32);
  ASSERT_TRUE(program) << program.error().message();
  OnRanks([&](int rank, collectives::Bootstrap* bootstrap) {
    EXPECT_TRUE(AgreeToFollow(bootstrap, program));
    for (const Code code : {Code::kInternal, Code::kUnavailable, Code::kInvalidArgument}) {
      const Status all = AgreeToFollow(bootstrap, rank == 1 ? Result<planner::StepProgram>(Fail(code, "no room")) : program);
      ASSERT_FALSE(all);
      EXPECT_EQ(all.error().code(), Code::kInvalidArgument) << "rank " << rank;
      EXPECT_THAT(all.error().message(), HasSubstr("no room"));
    }
  });
}

// Rank 0's clock alone counts, and without a word nobody does anything else.
TEST(Meetings, AllRanksComeToTheSameOnes) {
  const planner::StepProgram running;
  const planner::ModelSpec model = planner::SmallLlama();
  OnRanks([&](int rank, collectives::Bootstrap* bootstrap) {
    Meetings meetings({.socket_path = "/nowhere/agent.sock", .job = "j", .host = ""}, model, bootstrap, rank, kRanks, 1);
    for (int64_t step = 0; step < 40; ++step) {
      const auto next = meetings.Meet(step, Seconds(0.1 * static_cast<double>(step) * (1 + rank)), running);
      ASSERT_TRUE(next) << next.error().message();
      EXPECT_FALSE(next->has_value());
    }
    EXPECT_FALSE(meetings.TakeRefusal().has_value());
  });
}

}  // namespace
}  // namespace weft::runtime

#include "agent/observation_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "agent/profile_switch.h"
#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

using abi::ProfileLevel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;

void Set(std::atomic<uint32_t>& state, abi::SlotState value) { state.store(static_cast<uint32_t>(value)); }

struct ObservationsTest : ::testing::Test {
  abi::StallSlot& Stall(uint32_t index) {
    abi::StallSlot& stall = observations->stalls[index];
    stall.generation.fetch_add(2);
    stall.flow = 77;
    stall.rank = 1;
    stall.peer_rank = 2;
    stall.family = 4;
    stall.peer_address[0] = 10;
    stall.peer_address[3] = 9;
    stall.peer_port = 4000;
    stall.ports[0] = 41001;
    stall.ports[5] = 41006;
    stall.since_ns = 100 * kSecond;
    stall.until_ns.store(160 * kSecond);
    stall.bytes_in_flight.store(4096);
    stall.requests.store(2);
    stall.cause.store(1);
    Set(stall.state, abi::SlotState::kOpen);
    return stall;
  }

  std::unique_ptr<abi::Observations> observations = std::make_unique<abi::Observations>();
  ObservationReader reader{observations.get()};
};

TEST(Silence, IsToldWhenItBeginsAndWhenItIsOver) {
  abi::BackgroundSlot slot{};
  ObservationReader reader(nullptr, &slot);
  const auto set = [&](abi::BackgroundState state, uint64_t swept_ns) {
    slot.state.store(static_cast<uint32_t>(state));
    slot.swept_ns.store(swept_ns);
  };
  EXPECT_FALSE(reader.TakeSilence(1000 * kSecond)) << "not started yet";
  set(abi::BackgroundState::kRuns, 0);
  EXPECT_FALSE(reader.TakeSilence(1000 * kSecond)) << "its first round is to come";
  set(abi::BackgroundState::kRuns, 991 * kSecond);
  EXPECT_FALSE(reader.TakeSilence(1000 * kSecond));
  const auto begins = reader.TakeSilence(1001 * kSecond);
  ASSERT_TRUE(begins);
  EXPECT_TRUE(begins->begins);
  EXPECT_FALSE(begins->failed);
  EXPECT_DOUBLE_EQ(begins->silent_s, 10);
  EXPECT_TRUE(reader.silent());
  EXPECT_FALSE(reader.TakeSilence(1002 * kSecond)) << "once";
  set(abi::BackgroundState::kRuns, 1003 * kSecond);
  const auto over = reader.TakeSilence(1002 * kSecond);  // a round after the agent took the time is no silence
  ASSERT_TRUE(over);
  EXPECT_FALSE(over->begins);
  set(abi::BackgroundState::kNone, 1);
  EXPECT_FALSE(reader.TakeSilence(2000 * kSecond)) << "joined on purpose";
  set(abi::BackgroundState::kFailed, 1999 * kSecond);
  const auto failed = reader.TakeSilence(2000 * kSecond);
  ASSERT_TRUE(failed);
  EXPECT_TRUE(failed->failed);
  EXPECT_FALSE(ObservationReader(nullptr).TakeSilence(kSecond)) << "a plugin that does not say";
}

TEST_F(ObservationsTest, AStallIsToldOnceWhenItBeginsAndOnceWhenItIsOver) {
  EXPECT_THAT(reader.TakeStalls(), IsEmpty());
  abi::StallSlot& stall = Stall(3);
  std::vector<StallNews> news = reader.TakeStalls();
  ASSERT_EQ(news.size(), 1u);
  EXPECT_TRUE(news[0].begins);
  EXPECT_TRUE(news[0].send);
  EXPECT_EQ(news[0].peer, "10.0.0.9:4000");
  EXPECT_THAT(news[0].ports, ElementsAre(41001, 41006));
  EXPECT_EQ(news[0].bytes, 4096u);
  EXPECT_EQ(news[0].cause, "peer does not read");
  EXPECT_DOUBLE_EQ(news[0].stalled_s, 60);
  EXPECT_THAT(reader.TakeStalls(), IsEmpty());
  stall.until_ns.store(200 * kSecond);
  Set(stall.state, abi::SlotState::kClosed);
  news = reader.TakeStalls();
  ASSERT_EQ(news.size(), 1u);
  EXPECT_FALSE(news[0].begins);
  EXPECT_DOUBLE_EQ(news[0].stalled_s, 100);
  EXPECT_THAT(reader.TakeStalls(), IsEmpty());
  Stall(3);
  EXPECT_EQ(reader.TakeStalls().size(), 1u) << "the slot is used again";
}

TEST_F(ObservationsTest, NonsenseInTheSegmentIsSurvived) {
  abi::StallSlot& stall = Stall(0);
  stall.cause.store(99);
  stall.family = 1234;
  stall.direction = 77;
  stall.until_ns.store(0);
  const std::vector<StallNews> news = reader.TakeStalls();
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].cause, "unknown");
  EXPECT_EQ(news[0].stalled_s, 0);
  Stall(1).generation.fetch_add(1);  // identity is being written
  observations->stalls[2].state.store(4711);
  EXPECT_THAT(reader.TakeStalls(), IsEmpty());
  EXPECT_THAT(ObservationReader(nullptr).TakeStalls(), IsEmpty());
}

TEST_F(ObservationsTest, ProgressIsOfCommunicatorsWhoseRankIsKnown) {
  abi::CommunicatorSlot& slot = observations->communicators[5];
  slot.generation.store(2);
  slot.comm = 0xABC;
  slot.rank = 3;
  slot.ranks = 8;
  slot.operations[4].started.store(12);
  slot.operations[4].last_started.store(11);
  Set(slot.state, abi::SlotState::kOpen);
  observations->communicators[6].rank = -1;  // a tuner without a profiler
  Set(observations->communicators[6].state, abi::SlotState::kOpen);
  std::vector<RankProgress> progress;
  reader.AppendProgress(&progress);
  ASSERT_EQ(progress.size(), 5u);
  EXPECT_EQ(progress[4].operation, "allreduce");
  EXPECT_EQ(progress[4].rank, 3);
  EXPECT_EQ(progress[4].started, 12u);
  EXPECT_EQ(progress[4].last_started, 11u);
}

RankProgress Rank(int rank, uint64_t started, uint64_t finished, uint64_t last, uint64_t at_s) {
  return {.comm = 7, .operation = "allreduce", .rank = rank, .ranks = 4, .started = started, .finished = finished,
          .last_started = last, .last_started_ns = at_s * kSecond};
}

TEST(Straggles, NameWhoWaitsAndWhoHasNotCome) {
  const std::vector<RankProgress> progress = {Rank(2, 11, 10, 10, 100), Rank(0, 11, 10, 10, 95), Rank(1, 10, 10, 9, 80),
                                              Rank(3, 0, 0, 0, 0)};
  EXPECT_THAT(FindStraggles(progress, 104 * kSecond, 10), IsEmpty()) << "not yet";
  const std::vector<Straggle> found = FindStraggles(progress, 110 * kSecond, 10);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].operation, "allreduce");
  EXPECT_EQ(found[0].sequence, 10u);
  EXPECT_THAT(found[0].waiting, ElementsAre(0, 2));
  EXPECT_THAT(found[0].behind, ElementsAre(1, 3));
  EXPECT_DOUBLE_EQ(found[0].waited_s, 15);
}

TEST(Straggles, AllInsideMeansThatTheCauseIsElsewhere) {
  const std::vector<Straggle> found = FindStraggles({Rank(0, 5, 4, 4, 1), Rank(1, 5, 4, 4, 2)}, 100 * kSecond, 10);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].behind, IsEmpty());
  EXPECT_EQ(found[0].ranks, 4);
}

TEST(Straggles, FinishedAndIdleRanksAreNone) {
  EXPECT_THAT(FindStraggles({Rank(0, 5, 5, 4, 1), Rank(1, 5, 5, 4, 2), Rank(2, 0, 0, 0, 0)}, 1000 * kSecond, 10),
              IsEmpty());
}

TEST(ProfileSwitch, TheFileDecidesAndIsReadOncePerSecond) {
  TempDir folder;
  const std::string path = folder.path + "/profile";
  ProfileSwitch profile(path);
  EXPECT_TRUE(profile.Due(kSecond));
  EXPECT_EQ(profile.Level("job", kSecond), std::nullopt) << "no file: the process's own level";
  std::ofstream(path) << " collectives\n";
  EXPECT_FALSE(profile.Due(2 * kSecond - 1));
  EXPECT_TRUE(profile.Due(2 * kSecond));
  EXPECT_EQ(profile.Level("job", 2 * kSecond), ProfileLevel::kCollectives);
  std::ofstream(path) << "everything";
  EXPECT_TRUE(profile.Due(3 * kSecond));
  EXPECT_EQ(profile.Level("job", 3 * kSecond), std::nullopt);
  std::filesystem::remove(path);
}

TEST(ProfileSwitch, TroubleRaisesOneJobForAWhile) {
  TempDir folder;
  const std::string path = folder.path + "/profile";
  ProfileSwitch profile(path);
  profile.Trouble("job", 10 * kSecond);
  EXPECT_EQ(profile.Level("job", 11 * kSecond), ProfileLevel::kSteps);
  EXPECT_EQ(profile.Level("other", 11 * kSecond), std::nullopt);
  EXPECT_EQ(profile.Level("job", 40 * kSecond), std::nullopt);
  std::ofstream(path) << "kernels";
  profile.Due(11 * kSecond);
  EXPECT_EQ(profile.Level("job", 11 * kSecond), ProfileLevel::kKernels) << "never less than the file says";
  std::ofstream(path) << "off";
  profile.Due(13 * kSecond);
  EXPECT_EQ(profile.Level("job", 13 * kSecond), ProfileLevel::kOff) << "who says off means it";
}

}  // namespace
}  // namespace weft::agent

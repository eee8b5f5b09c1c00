#include "collectives/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "collectives/bootstrap.h"

namespace weft::collectives {
namespace {

using ::testing::HasSubstr;

/// Three ranks of one job as threads; what rank 0 printed.
std::string RunJob(ReplayOptions options) {
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  EXPECT_TRUE(rendezvous);
  options.world = 3;
  options.rendezvous = rendezvous->address;
  options.plugin = WEFT_LOOPBACK_PLUGIN;
  ::testing::internal::CaptureStdout();
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ReplayOptions mine = options;
      mine.rank = RankId(rank);
      mine.listener = rank == 0 ? rendezvous->listener.release() : -1;
      ranks.emplace_back([mine] {
        const auto status = RunReplay(mine);
        EXPECT_TRUE(status) << status.error().message();
      });
    }
  }
  return ::testing::internal::GetCapturedStdout();
}

TEST(Replay, EveryStepAndASummaryAreReported) {
  const std::string out = RunJob({.compute = Seconds(0), .bytes = Bytes(3000), .bucket = Bytes(1024), .steps = 4});
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 5);
  EXPECT_THAT(out, HasSubstr("{\"step\":0,\"iteration_s\":"));
  EXPECT_THAT(out, HasSubstr("{\"step\":3,\"iteration_s\":"));
  // 750 elements; rank 0 sends 2/3 of each bucket twice: 4 · 3000 · 4/3, and chunks are cut at whole elements.
  EXPECT_THAT(out, HasSubstr("{\"summary\":{\"steps\":4,\"ranks\":3,\"gradient_bytes\":3000,\"bytes_sent\":160"));
}

TEST(Replay, WithADurationAllRanksEndAtTheSameStep) {
  const std::string out = RunJob({.compute = Seconds(0.001), .bytes = Bytes(64), .duration = Seconds(0.02)});
  EXPECT_THAT(out, HasSubstr("{\"summary\":{\"steps\":"));
}

TEST(Replay, IdleCommunicatorsChangeNoSum) {
  const std::string out =
      RunJob({.compute = Seconds(0), .bytes = Bytes(3000), .bucket = Bytes(1024), .steps = 2, .idle_communicators = 3});
  EXPECT_THAT(out, HasSubstr("{\"summary\":{\"steps\":2,\"ranks\":3,\"gradient_bytes\":3000,\"bytes_sent\":80"));
}

TEST(Replay, OptionsThatMeanNothingAreRefused) {
  const std::pair<ReplayOptions, const char*> cases[] = {
      {{}, "one of --steps and --duration"},
      {{.steps = 1, .duration = Seconds(1)}, "one of --steps and --duration"},
      {{.steps = 0}, "--steps 0"},
      {{.bytes = Bytes(3), .steps = 1}, "--bytes 3"},
      {{.bucket = Bytes(0), .steps = 1}, "--bucket 0"},
      {{.steps = 1, .idle_communicators = -1}, "--idle-communicators -1"},
      {{.steps = 1, .idle_communicators = 65}, "--idle-communicators 65"},
  };
  for (const auto& [options, message] : cases) {
    const auto status = RunReplay(options);
    ASSERT_FALSE(status) << message;
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(status.error().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace weft::collectives

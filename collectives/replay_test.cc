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

// 250 and 500 elements, of which every rank sends 4/3: 4 · (1000 + 2000) · 4/3, and chunks are cut at whole elements.
TEST(Replay, BurstsAreSummedWhileTheComputationGoesOn) {
  const std::string out = RunJob({.compute = Seconds(0.01), .bucket = Bytes(1024),
                                  .bursts = {{Seconds(0.002), Seconds(0.004), Bytes(1000)}, {Seconds(0.004), Seconds(0.01), Bytes(2000)}},
                                  .steps = 4});
  EXPECT_THAT(out, HasSubstr("{\"summary\":{\"steps\":4,\"ranks\":3,\"gradient_bytes\":3000,\"bytes_sent\":160"));
}

TEST(Replay, ABurstIsReleaseBytesAndNeed) {
  const ReplayBurst burst = ParseReplayBurst("40ms:1MiB:60ms", Seconds(0.1)).value();
  EXPECT_EQ(burst.release, Seconds(0.04));
  EXPECT_EQ(burst.bytes, Bytes(1 << 20));
  EXPECT_EQ(burst.needed, Seconds(0.06));
  EXPECT_EQ(ParseReplayBurst("0s:4B", Seconds(0.1)).value().needed, Seconds(0.1));
  for (const char* text : {"", "40ms", "40ms:", ":1MiB", "1MiB:40ms", "40ms:1MiB:", "40ms:1MiB:60ms:1", "x:1MiB"}) {
    const auto parsed = ParseReplayBurst(text, Seconds(0.1));
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr(std::string("--burst \"") + text + "\": expected RELEASE:BYTES"));
  }
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
      {{.compute = Seconds(1), .bursts = {{Seconds(0.5), Seconds(0.4), Bytes(8)}}, .steps = 1}, "number 1: needed 0.4 s, expected 0.5 s to"},
      {{.compute = Seconds(1), .bursts = {{Seconds(0.5), Seconds(1.1), Bytes(8)}}, .steps = 1}, "to the compute of 1 s"},
      {{.compute = Seconds(1), .bursts = {{Seconds(0.5), Seconds(1), Bytes(3)}}, .steps = 1}, "number 1: 3 bytes"},
      {{.compute = Seconds(1), .bursts = {{Seconds(0.5), Seconds(1), Bytes(8)}, {Seconds(0.4), Seconds(1), Bytes(8)}}, .steps = 1},
       "number 2: release 0.4 s, expected at least the 0.5 s"},
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

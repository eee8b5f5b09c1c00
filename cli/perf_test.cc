#include "cli/perf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "cli/perf_data.h"
#include "cli/perf_plan.h"
#include "cli/perf_report.h"
#include "cli/rank_processes.h"
#include "common/exit_code.h"
#include "planner/collectives/algorithm.h"

namespace weft::cli {
namespace {

using planner::Collective;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> SizesOf(const std::string& text) {
  std::vector<int64_t> counts;
  const auto sizes = ParseSizes(text);
  EXPECT_TRUE(sizes) << sizes.error().message();
  if (sizes) {
    for (const Bytes size : *sizes) counts.push_back(size.count());
  }
  return counts;
}

TEST(PerfSizes, ARangeGoesByFactorsOfTwo) {
  EXPECT_THAT(SizesOf("1KiB"), ElementsAre(1024));
  EXPECT_THAT(SizesOf("1KiB:8KiB"), ElementsAre(1024, 2048, 4096, 8192));
  EXPECT_THAT(SizesOf("3KiB:8KiB"), ElementsAre(3072, 6144));
  EXPECT_THAT(SizesOf("0"), ElementsAre(0));
}

TEST(PerfSizes, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", "12", "1KiB:", ":1KiB", "1XB", "2KiB:1KiB", "0:1KiB", "-1KiB", "1KiB:2KiB:4KiB"}) {
    const auto sizes = ParseSizes(text);
    ASSERT_FALSE(sizes) << text;
    EXPECT_EQ(sizes.error().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(sizes.error().message(), HasSubstr("--bytes")) << text;
  }
}

TEST(PerfPlan, WhatCannotBeRunIsRefusedByTheNameOfItsOption) {
  const std::pair<PerfOptions, const char*> cases[] = {
      {{.collective = "sum"}, "--collective: collective \"sum\""},
      {{.ranks = 0}, "--ranks 0: expected 1 to 1024"},
      {{.collective = "sendrecv", .ranks = 3}, "--ranks: ring sendrecv: 3 ranks"},
      {{.iterations = 0}, "--iterations 0"},
      {{.warmup = -1}, "--warmup -1"},
      {{.algorithm = "star"}, "--algorithm: algorithm \"star\": expected one of ring, tree"},
      {{.collective = "alltoall", .algorithm = "tree"}, "--algorithm: algorithm \"tree\" for alltoall: expected one of"},
      {{.slice = "1B"}, "--slice \"1B\""},
      {{.net_version = 13}, "--net-version 13: expected 6 to 12"},
      {{.transport = "udp"}, "--transport \"udp\": expected tcp, rdma or auto"},
      {{.output = "xml"}, "--output \"xml\": expected table or json"},
      {{.timeout = "0s"}, "--timeout \"0s\""},
      {{.rank = 2, .world = 2, .rendezvous = "h:1"}, "--rank 2 --world 2"},
      {{.rank = 0, .world = 2}, "expected all three"},
  };
  for (const auto& [options, message] : cases) {
    const auto plan = CheckPerfOptions(options);
    ASSERT_FALSE(plan) << message;
    EXPECT_EQ(plan.error().code(), Code::kInvalidArgument) << message;
    EXPECT_THAT(plan.error().message(), HasSubstr(message));
  }
}

TEST(PerfPlan, AllToAllIsRoundedToWholeBlocks) {
  const auto plan = CheckPerfOptions({.collective = "alltoall", .ranks = 3, .bytes = "4B:1KiB"});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->counts.front(), 3);
  EXPECT_EQ(plan->counts.back(), 255);
}

/// All ranks' inputs of one run.
std::vector<std::vector<float>> Inputs(Collective collective, int ranks, int64_t count, uint32_t iteration) {
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    const PerfRun run{collective, ranks, rank, count, iteration};
    inputs.emplace_back(static_cast<size_t>(InputElements(run)));
    FillInput(run, inputs.back());
  }
  return inputs;
}

/// The right output of `run`, put together from the inputs.
std::vector<float> OutputOf(const PerfRun& run) {
  const auto inputs = Inputs(run.collective, run.ranks, run.count, run.iteration);
  std::vector<float> full;
  switch (run.collective) {
    case Collective::kBroadcast:
    case Collective::kSendRecv: return inputs[0];
    case Collective::kAllGather:
      for (const auto& input : inputs) full.insert(full.end(), input.begin(), input.end());
      return full;
    case Collective::kAllToAll: {
      const auto block = run.count / run.ranks;
      for (const auto& input : inputs) {
        full.insert(full.end(), input.begin() + run.rank * block, input.begin() + (run.rank + 1) * block);
      }
      return full;
    }
    case Collective::kAllReduce:
    case Collective::kReduceScatter: break;
  }
  full.assign(static_cast<size_t>(run.count), 0);
  for (const auto& input : inputs) {
    for (size_t i = 0; i < full.size(); ++i) full[i] += input[i];
  }
  if (run.collective == Collective::kAllReduce) return full;
  return {full.begin() + run.rank * run.count / run.ranks, full.begin() + (run.rank + 1) * run.count / run.ranks};
}

class PerfData : public ::testing::TestWithParam<Collective> {};
INSTANTIATE_TEST_SUITE_P(All, PerfData,
                         ::testing::Values(Collective::kSendRecv, Collective::kAllReduce, Collective::kAllGather,
                                           Collective::kReduceScatter, Collective::kAllToAll, Collective::kBroadcast));

TEST_P(PerfData, EveryWrongElementCountsAndNoRightOne) {
  const int ranks = GetParam() == Collective::kSendRecv ? 2 : 3;
  const int64_t count = GetParam() == Collective::kAllToAll ? 102 : 101;
  for (int rank = 0; rank < ranks; ++rank) {
    const PerfRun run{GetParam(), ranks, rank, count, 7};
    std::vector<float> output = OutputOf(run);
    ASSERT_EQ(static_cast<int64_t>(output.size()), OutputElements(run));
    EXPECT_EQ(CountWrong(run, output), 0);
    if (GetParam() == Collective::kSendRecv && rank == 0) continue;  // rank 0 receives nothing
    output.front() += 1;
    output.back() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(CountWrong(run, output), 2);
    // The same data of another iteration are (almost) all wrong.
    EXPECT_GT(CountWrong({GetParam(), ranks, rank, count, 8}, OutputOf(run)), OutputElements(run) * 9 / 10);
  }
}

TEST(PerfReport, PercentilesAreOfTheNearestRank) {
  EXPECT_EQ(Percentile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(Percentile({1, 2, 3, 4}, 0.99), 4);
  EXPECT_EQ(Percentile({5}, 0.01), 5);
}

TEST(RankProcesses, AllThatSucceedAreDone) {
  const auto outcome = RunRankProcesses(3, [](int) { return RankOutcome{}; });
  EXPECT_EQ(outcome.exit_code, kExitDone);
}

TEST(RankProcesses, TheFirstFailureEndsAllAndLeavesNoChild) {
  const auto outcome = RunRankProcesses(4, [](int rank) -> RankOutcome {
    if (rank == 2) return {kExitUsage, "rank 2 has had enough"};
    while (true) pause();
  });
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_EQ(outcome.message, "rank 2 has had enough");
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(RankProcesses, ADeathBySignalIsNamedBeforeWhatTheOthersSay) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto outcome = RunRankProcesses(2, [&](int rank) -> RankOutcome {
    close(ends[1 - rank]);
    char byte;
    if (rank == 0) return read(ends[0], &byte, 1) == 0 ? RankOutcome{kExitFailed, "rank 1 is gone"} : RankOutcome{};
    close(ends[0]);
    raise(SIGKILL);
    return {};
  });
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(outcome.exit_code, kExitFailed);
  EXPECT_EQ(outcome.message, "rank 1 was killed by signal 9 (Killed)");
}

/// RunPerf with what it wrote.
struct Ran {
  int exit_code;
  std::string out, err;
};

Ran Perf(const PerfOptions& options) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int exit_code = RunPerf(options);
  return {exit_code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(Perf, TheJsonHasTheAgreedKeysAndNothingIsWrong) {
  const Ran ran = Perf({.collective = "reducescatter", .ranks = 3, .bytes = "1KiB:4KiB", .iterations = 2, .warmup = 1,
                        .check = true, .plugin = WEFT_LOOPBACK_PLUGIN, .net_version = 8, .output = "json"});
  ASSERT_EQ(ran.exit_code, kExitDone) << ran.err;
  EXPECT_EQ(ran.err, "");
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["plugin"]["name"], "loopback8");
  EXPECT_EQ(json["plugin"]["path"], WEFT_LOOPBACK_PLUGIN);
  EXPECT_EQ(json["plugin"]["net_version"], 8);
  ASSERT_EQ(json["results"].size(), 3u);
  for (const auto& row : json["results"]) {
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_GT(row["time_us_median"], 0);
    // (n-1)/n
    EXPECT_NEAR(row["busbw_bps"].get<double>(), row["algbw_bps"].get<double>() * 2 / 3, 1);
    EXPECT_NEAR(row["algbw_bps"].get<double>() * row["time_us_median"].get<double>() / 8e6,
                row["bytes"].get<double>(), 1e-3);
  }
  EXPECT_EQ(json["results"][2]["bytes"], 4096);
}

TEST(Perf, TheTableHasARowPerSize) {
  const Ran ran = Perf({.collective = "alltoall", .bytes = "8B:16B", .iterations = 1, .warmup = 0,
                        .plugin = WEFT_LOOPBACK_PLUGIN});
  ASSERT_EQ(ran.exit_code, kExitDone) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("# alltoall (pairwise), 2 ranks, 1 runs after 0, plugin loopback12 (net v12)"));
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 4);
}

TEST(Perf, AMissingPluginIsOneLineAndWrongUsage) {
  const Ran ran = Perf({.ranks = 4, .plugin = "/nonexistent/libnccl-net-x.so"});
  EXPECT_EQ(ran.exit_code, kExitUsage);
  EXPECT_EQ(ran.err, "weft perf: net plugin \"/nonexistent/libnccl-net-x.so\": no such file\n");
  EXPECT_EQ(ran.out, "");
}

TEST(Perf, AWrongSizeIsOneLineAndWrongUsage) {
  const Ran ran = Perf({.bytes = "12"});
  EXPECT_EQ(ran.exit_code, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("weft perf: --bytes: size \"12\""));
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1);
}

// Real runs of every algorithm: forked ranks, a strict plugin, odd sizes, every element compared.
TEST(PerfAlgorithms, EveryOneIsRightOverThePluginWithFourAndFiveRanks) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                      Collective::kAllToAll, Collective::kBroadcast}) {
    for (const planner::Algorithm algorithm : planner::AlgorithmsFor(collective)) {
      for (const int ranks : {4, 5}) {
        const std::string name(planner::AlgorithmName(algorithm));
        const Ran ran = Perf({.collective = std::string(planner::CollectiveName(collective)), .ranks = ranks,
                              .bytes = "40004B", .iterations = 1, .warmup = 0, .check = true,
                              .plugin = WEFT_LOOPBACK_PLUGIN, .algorithm = name, .slice = "4KiB", .output = "json"});
        ASSERT_EQ(ran.exit_code, kExitDone) << name << " " << planner::CollectiveName(collective) << ": " << ran.err;
        const auto json = nlohmann::json::parse(ran.out);
        EXPECT_EQ(json["results"][0]["wrong"], 0);
        const bool renamed = algorithm == planner::Algorithm::kRing;  // a ring all-to-all is called pairwise
        EXPECT_TRUE(renamed || json["algorithm"] == name) << json["algorithm"];
      }
    }
  }
}

TEST(PerfAlgorithms, AParameterIsGivenBehindAColon) {
  const Ran ran = Perf({.ranks = 6, .bytes = "4KiB", .iterations = 1, .warmup = 0, .check = true,
                        .plugin = WEFT_LOOPBACK_PLUGIN, .algorithm = "torus:3"});
  EXPECT_EQ(ran.exit_code, kExitDone) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("# allreduce (torus)"));
}

}  // namespace
}  // namespace weft::cli

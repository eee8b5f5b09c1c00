#include "cli/perf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/perf_data.h"
#include "cli/perf_flows.h"
#include "cli/perf_plan.h"
#include "cli/perf_report.h"
#include "cli/rank_processes.h"
#include "collectives/bootstrap.h"
#include "collectives/net_plugin.h"
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
  EXPECT_THAT(SizesOf("8B,1KiB:2KiB,1MiB"), ElementsAre(8, 1024, 2048, 1048576));
}

TEST(PerfSizes, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", "12", "1KiB:", ":1KiB", "1XB", "2KiB:1KiB", "0:1KiB", "-1KiB", "1KiB:2KiB:4KiB", "8B,",
                           "8B,8B", "1KiB:4KiB,2KiB"}) {
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
      {{.collective = "sendrecv", .ranks = 3}, "--ranks 3: sendrecv goes in pairs, expected an even number"},
      {{.collective = "sendrecv", .connections = 0}, "--connections 0: expected 1 to 1024"},
      {{.collective = "sendrecv", .messages = 0}, "--messages 0: expected at least 1"},
      {{.collective = "sendrecv", .bidirectional = true, .ping_pong = true}, "--bidirectional and --ping-pong"},
      {{.collective = "alltoall", .messages = 2}, "--collective alltoall: --connections, --messages"},
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

TEST(PerfData, ASendrecvIsComparedWithItsOwnSender) {
  const PerfRun sender{Collective::kSendRecv, 4, 2, 50, 1, 2}, receiver{Collective::kSendRecv, 4, 3, 50, 1, 2};
  std::vector<float> data(50);
  FillInput(sender, data);
  EXPECT_EQ(CountWrong(receiver, data), 0);
  EXPECT_EQ(CountWrong({Collective::kSendRecv, 4, 2, 50, 1, 3}, data), 50);
  EXPECT_EQ(CountWrong(sender, std::vector<float>(50)), 0);  // nothing comes to it
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
  EXPECT_THAT(ran.out, HasSubstr("max us"));
  EXPECT_THAT(ran.out, HasSubstr("CPU s/GB"));
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

/// A sendrecv over the strict plugin, every element of every run compared.
nlohmann::json Exchange(PerfOptions options) {
  options.collective = "sendrecv";
  options.iterations = 2;
  options.warmup = 1;
  options.check = true;
  options.plugin = WEFT_LOOPBACK_PLUGIN;
  options.slice = "4KiB";
  options.output = "json";
  const Ran ran = Perf(options);
  EXPECT_EQ(ran.exit_code, kExitDone) << ran.err;
  return ran.exit_code == kExitDone ? nlohmann::json::parse(ran.out) : nlohmann::json();
}

// What was sent is 2 timed runs of messages × bytes, in as many directions, connections and pairs as were asked for.
TEST(PerfFlows, EveryPatternDeliversEachConnectionItsOwnData) {
  const struct {
    const char* name;
    PerfOptions options;
    int64_t flows, directions;
  } cases[] = {
      {"one way", {.ranks = 2, .bytes = "40004B"}, 1, 1},
      {"one way", {.ranks = 6, .bytes = "4B", .messages = 20}, 3, 1},
      {"one way", {.ranks = 2, .bytes = "20004B", .connections = 9, .messages = 3}, 9, 1},
      {"both ways", {.ranks = 4, .bytes = "40004B", .bidirectional = true, .connections = 2}, 8, 1},
      {"ping-pong", {.ranks = 4, .bytes = "8B", .ping_pong = true}, 2, 2},
      {"ping-pong", {.ranks = 2, .bytes = "40004B", .ping_pong = true, .connections = 3, .messages = 3}, 3, 2},
  };
  for (const auto& [name, options, flows, directions] : cases) {
    const auto json = Exchange(options);
    ASSERT_EQ(json["results"].size(), 1u) << name;
    const auto& row = json["results"][0];
    EXPECT_EQ(json["pattern"], name);
    EXPECT_EQ(json["connections"], options.connections);
    EXPECT_EQ(row["wrong"], 0) << name;
    EXPECT_EQ(row["sent_bytes"], 2 * options.messages * row["bytes"].get<int64_t>() * flows * directions) << name;
    EXPECT_NEAR(row["busbw_bps"].get<double>(), row["algbw_bps"].get<double>() * static_cast<double>(flows), 1);
    EXPECT_GE(row["time_us_max"], row["time_us_p99"]);
    EXPECT_GE(row["time_us_p99"], row["time_us_median"]);
    EXPECT_GT(row["cpu_s_per_gb"], 0);
  }
}

TEST(PerfFlows, PinnedRanksDeliverTheSame) {
  const auto json = Exchange({.ranks = 4, .bytes = "8B,4KiB", .pin = true, .bidirectional = true});
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][1]["wrong"], 0);
  EXPECT_EQ(json["results"][1]["sent_bytes"], 2 * 4096 * 4);
}

TEST(PerfFlows, NothingIsSentOfNoBytes) {
  const auto json = Exchange({.bytes = "0", .ping_pong = true});
  ASSERT_EQ(json["results"].size(), 1u);
  EXPECT_EQ(json["results"][0]["sent_bytes"], 0);
  EXPECT_EQ(json["results"][0]["cpu_s_per_gb"], nullptr);
}

/// A communicator's other half: rank 1 of two threads leaves after the connections are made.
TEST(PerfFlows, APeerThatLeavesIsNamed) {
  auto rendezvous = collectives::OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous);
  const auto rank = [&](int number, auto&& body) {
    auto plugin = collectives::NetPlugin::Load(WEFT_LOOPBACK_PLUGIN);
    ASSERT_TRUE(plugin);
    auto bootstrap = collectives::Bootstrap::Join(
        {.rank = RankId(number), .world = 2, .address = rendezvous->address,
         .listener = number == 0 ? rendezvous->listener.release() : -1});
    ASSERT_TRUE(bootstrap);
    FlowExchange flows(**plugin, **bootstrap, {.pattern = FlowPattern::kPingPong, .connections = 2});
    ASSERT_TRUE(flows.Open());
    ASSERT_TRUE((*bootstrap)->AllGather({}));  // one that leaves earlier makes the other's Open fail
    body(flows);
  };
  const std::jthread leaver([&] { rank(1, [](FlowExchange&) {}); });
  rank(0, [](FlowExchange& flows) {
    std::byte input[2], output[2];
    const Status status = flows.Run(input, output, 1, 1);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), Code::kUnavailable);
    EXPECT_THAT(status.error().message(), HasSubstr("rank 0: with rank 1: "));
  });
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

// Who holds the others up, from what connections wait.
#include "controller/late_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

/// Looks of a second each at four ranks.
struct Looks {
  LateRanks finder;
  double now_s = 0;
  std::vector<std::string> lines;

  void Pass(int seconds, const std::vector<double>& peer, double wire = 0, int32_t at = -1) {
    for (int i = 0; i < seconds; ++i) {
      JobWaits waits;
      for (size_t rank = 0; rank < peer.size(); ++rank) {
        const auto number = static_cast<int32_t>(rank);
        waits[number] = {.host = "h" + std::to_string(rank), .peer_s = peer[rank], .wire_s = at == -2 || number == at ? wire : 0.1, .flows = 1};
      }
      now_s += 1;
      if (auto line = finder.Look("j", waits, Seconds(1), Seconds(0.5), Seconds(now_s))) lines.push_back(*line);
    }
  }
};

TEST(LateRanks, TheOneThatDoesNotWaitWhereAllOthersDoIsNamedWithinTenSeconds) {
  Looks looks;
  looks.Pass(30, {0.1, 0.12, 0.1, 0.3});  // pipelines wait unevenly
  looks.Pass(10, {0.4, 0.42, 0.1, 0.6});
  ASSERT_EQ(looks.lines.size(), 1U);
  EXPECT_THAT(looks.lines[0], HasSubstr("rank 2 (h2) holds the others up: of 4 ranks the median waits 30 % of the time longer"));
  looks.Pass(40, {0.4, 0.42, 0.1, 0.6});
  EXPECT_EQ(looks.lines.size(), 1U) << "said once a minute";
  looks.Pass(30, {0.4, 0.42, 0.1, 0.6});
  EXPECT_EQ(looks.lines.size(), 2U);
}

TEST(LateRanks, NobodyIsNamedWhereAllWaitOrTheWireDoes) {
  Looks looks;
  looks.Pass(30, {0.1, 0.1, 0.1, 0.1});
  looks.Pass(20, {0.4, 0.4, 0.4, 0.4});
  EXPECT_TRUE(looks.lines.empty()) << "a slow network keeps all waiting";
  Looks slow;
  slow.Pass(30, {0.1, 0.1, 0.1, 0.1});
  slow.Pass(20, {0.4, 0.4, 0.1, 0.4}, 0.5, 2);
  EXPECT_TRUE(slow.lines.empty()) << "bytes come to it all the time, slowly";
}

TEST(LateRanks, APauseTeachesNothing) {
  Looks looks;
  looks.Pass(30, {0.4, 0.4, 0.02, 0.4});
  looks.Pass(60, {0, 0, 0, 0}, 0, -2);
  looks.Pass(30, {0.4, 0.4, 0.02, 0.4});
  EXPECT_TRUE(looks.lines.empty());
}

TEST(LateRanks, WhatWasSoFromTheStartIsUsual) {
  Looks looks;
  looks.Pass(60, {0.4, 0.4, 0.0, 0.4});
  EXPECT_TRUE(looks.lines.empty());
}

TEST(LateRanks, ASlowHostIsNamedAndItsPathsAreLeftAlone) {
  CoreOptions options;
  options.mode = v1::MODE_ENFORCE;
  Core core(options);
  testing::FakeCluster cluster(core, 2, 2, 2);
  cluster.measures_periods = true;
  cluster.RegisterAll();
  cluster.Start({.id = "a", .ring = {"h1", "h3", "h2", "h4"}}, 0);
  cluster.Run(0.3);
  cluster.Probe("a");
  cluster.Run(40);
  const std::vector<double> shares = cluster.Shares("a", "h1");
  cluster.SetLate("a", "h3", 0.5);
  const double from_s = cluster.now();
  cluster.Run(12);
  std::vector<std::string> named;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == "straggler") named.push_back(decision.reason());
    EXPECT_FALSE(decision.kind() == "replan" && decision.time_s() > from_s) << decision.reason();
  }
  ASSERT_EQ(named.size(), 1U);
  EXPECT_THAT(named[0], HasSubstr("(h3) holds the others up"));
  EXPECT_EQ(cluster.Shares("a", "h1"), shares);
}

}  // namespace
}  // namespace weft::controller

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

/// Of RankSlowed (tests/support/faults.py): a job that waits for the network most of the time anyway. Iterations that take more than twice
/// as long leave less than half of what usually goes over the wires, which was taken for a pause of the job: nobody was named.
TEST(LateRanks, ARankThatMakesIterationsMoreThanTwiceAsLongIsNamedWhereAllWaitForTheNetworkAnyway) {
  LateRanks finder;
  std::vector<std::string> lines;
  // Seconds in a second: receives wait 0.9, bytes are on their way 0.75. Then iterations take 2.2 times as long: 0.75 / 2.2 = 0.34; the
  // others wait 0.95, 0.61 of it while nothing is on its way; what rank 1 waits for is there when it looks.
  const auto pass = [&](double from_s, double to_s, bool late, Seconds period) {
    for (double now_s = from_s + 1; now_s <= to_s; ++now_s) {
      JobWaits waits;
      for (int32_t rank = 0; rank < 4; ++rank) {
        const bool slow = late && rank == 1;
        waits[rank] = {.host = "h" + std::to_string(rank + 1), .peer_s = slow ? 0.25 : late ? 0.95 : 0.9, .wire_s = late ? 0.34 : 0.75,
                       .flows = 1, .held_s = slow ? 0 : late ? 0.61 : 0.15};
      }
      // The period is not known while steps look like iterations, which with slow networks is most of the time.
      if (auto line = finder.Look("j", waits, Seconds(1), period, Seconds(now_s))) lines.push_back(*line);
    }
  };
  pass(0, 30, false, Seconds(0));
  EXPECT_TRUE(lines.empty());
  pass(30, 40, true, Seconds(0.05));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("rank 1 (h2) holds the others up: of 4 ranks the median waits 46 % of the time longer"));
}

/// A rank that gets a fifth of its processor makes iterations of computation five times as long: a fifth of the usual goes over the wires,
/// which was taken for a pause of the job.
TEST(LateRanks, ARankThatLeavesTheWiresAFifthOfTheirWorkIsNamed) {
  Looks looks;
  looks.Pass(30, {0.1, 0.1, 0.1, 0.1}, 0.4, -2);
  looks.Pass(10, {0.8, 0.8, 0.05, 0.8}, 0.08, -2);
  ASSERT_EQ(looks.lines.size(), 1U);
  EXPECT_THAT(looks.lines[0], HasSubstr("rank 2 (h2) holds the others up"));
}

TEST(LateRanks, WhatNobodyIsFoundForTeachesNothing) {
  Looks looks;
  looks.Pass(30, {0.1, 0.1, 0.1, 0.1});
  looks.Pass(20, {0.4, 0.4, 0.35, 0.4});  // rank 2 is late, and its own waits do not show it yet
  EXPECT_TRUE(looks.lines.empty());
  looks.Pass(10, {0.4, 0.4, 0.1, 0.4});
  ASSERT_EQ(looks.lines.size(), 1U) << "0.4 has not become usual";
  EXPECT_THAT(looks.lines[0], HasSubstr("rank 2 (h2) holds the others up: of 4 ranks the median waits 30 % of the time longer"));
}

/// Where the network is what is short already, a slower path shows in what is waited for while nothing is on its way, but for who receives
/// over it: that one waits as long as all do.
TEST(LateRanks, WhoReceivesOverASlowPathIsNotNamed) {
  LateRanks finder;
  for (int now_s = 1; now_s <= 60; ++now_s) {
    const bool slow = now_s > 30;
    JobWaits waits;
    for (int32_t rank = 0; rank < 4; ++rank) {  // rank 0 sends to rank 1 over it
      waits[rank] = {.host = "h", .peer_s = slow ? 0.97 : 0.9, .wire_s = !slow ? 0.75 : rank == 0 ? 0.98 : 0.28, .flows = 1,
                     .held_s = !slow ? 0.15 : rank == 1 ? 0 : 0.69};
    }
    EXPECT_FALSE(finder.Look("j", waits, Seconds(1), Seconds(0.2), Seconds(now_s)));
  }
}

/// A rank that saves the job's state alone keeps the others waiting for two looks at most that are not a pause as a whole.
TEST(LateRanks, WhoSavesStateIsNotNamed) {
  Looks looks;
  looks.Pass(30, {0.1, 0.1, 0.1, 0.1});
  looks.Pass(1, {0.1, 0.1, 0.1, 0.1});
  looks.Pass(4, {0.02, 1, 1, 1}, 0, -2);  // its first second and its last are of looks in which the job works too
  looks.Pass(30, {0.1, 0.1, 0.1, 0.1});
  EXPECT_TRUE(looks.lines.empty());
}

TEST(LateRanks, NobodyIsNamedWhereAllComputeLonger) {
  Looks looks;
  looks.Pass(30, {0.4, 0.4, 0.1, 0.4});
  looks.Pass(30, {0.1, 0.1, 0.03, 0.1}, 0.03, -2);  // four times as long
  EXPECT_TRUE(looks.lines.empty());
}

TEST(LateRanks, APauseTeachesNothing) {
  Looks looks;
  looks.Pass(30, {0.4, 0.4, 0.02, 0.4});
  looks.Pass(60, {0, 0, 0, 0}, 0, -2);
  looks.Pass(30, {0.4, 0.4, 0.02, 0.4});
  EXPECT_TRUE(looks.lines.empty());
}

/// Two ranks on each of three hosts, over a network that is short, as measured with every process of the second host at a tenth of its
/// speed: the others wait 12 % of the time longer, which a noisy job does now and then, and those of the slow host 15 to 25 % less.
struct HostLooks {
  LateRanks finder;
  double now_s = 0;
  std::vector<std::string> lines;

  void Pass(int seconds, const std::vector<double>& peer) {
    for (int i = 0; i < seconds; ++i) {
      JobWaits waits;
      for (size_t rank = 0; rank < peer.size(); ++rank) {
        // Longer and shorter from look to look, the same for all.
        const double noise = static_cast<int>(now_s / 2) % 2 == 0 ? 0.04 : -0.04;
        waits[static_cast<int32_t>(rank)] = {.host = "h" + std::to_string(rank / 2 + 1), .peer_s = peer[rank] + noise, .wire_s = 0.4, .flows = 1};
      }
      now_s += 1;
      if (auto line = finder.Look("j", waits, Seconds(1), Seconds(0.2), Seconds(now_s))) lines.push_back(*line);
    }
  }
};

TEST(LateRanks, AHostIsNamedAllOfWhoseRanksWaitLessWhereTheOthersWaitALittleLonger) {
  HostLooks looks;
  looks.Pass(30, {0.75, 0.75, 0.75, 0.75, 0.75, 0.75});
  looks.Pass(10, {0.87, 0.86, 0.6, 0.5, 0.87, 0.86});
  ASSERT_EQ(looks.lines.size(), 1U);
  EXPECT_THAT(looks.lines[0], HasSubstr("host h2 (all 2 of its ranks: 2, 3) holds the others up: of 6 ranks the median waits "));
}

TEST(LateRanks, NoHostIsNamedForOneOfItsRanksNorWhereAllWaitLess) {
  HostLooks one;
  one.Pass(30, {0.75, 0.75, 0.75, 0.75, 0.75, 0.75});
  one.Pass(20, {0.87, 0.86, 0.87, 0.3, 0.87, 0.86});
  for (const std::string& line : one.lines) EXPECT_THAT(line, HasSubstr("rank 3 (h2)"));
  HostLooks all;
  all.Pass(30, {0.75, 0.75, 0.75, 0.75, 0.75, 0.75});
  all.Pass(20, {0.7, 0.7, 0.4, 0.4, 0.7, 0.7});
  EXPECT_TRUE(all.lines.empty());
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

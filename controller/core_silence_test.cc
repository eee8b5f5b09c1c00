// Paths that take bytes and give no answer, against a simulated cluster.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::HasSubstr;

const FakeJob kJobA{.id = "a", .ring = {"h1", "h3"}};
const FakeJob kJobB{.id = "b", .ring = {"h2", "h4"}};
constexpr double kPromise = 3;  // seconds after which a silent path carries nothing

CoreOptions Options() {
  CoreOptions options;
  options.mode = v1::MODE_ENFORCE;
  options.rates.line_rate = MegabitsPerSecond(100);
  options.monitor.lossy_links = true;
  return options;
}

std::vector<v1::Decision> DecisionsOf(const Core& core, const std::string& kind) {
  std::vector<v1::Decision> found;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == kind) found.push_back(decision);
  }
  return found;
}

double AvailableOf(const Core& core, const std::string& from, const std::string& to) {
  for (const v1::LinkStatus& link : core.Links()) {
    if (link.from() == from && link.to() == to) return link.available_bps();
  }
  return -1;
}

/// The spine over which the job's flow from h1 goes whole, from 0.
size_t SpineOf(const FakeCluster& cluster, const std::string& job, const std::string& host) {
  const std::vector<double> shares = cluster.Shares(job, host);
  return static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
}

class CoreSilence : public ::testing::Test {
 protected:
  void Start(bool both) {
    cluster_.RegisterAll();
    cluster_.Run(0.5);
    cluster_.Start(kJobA, 0);
    if (both) cluster_.Start(kJobB, 0);
    cluster_.Run(0.3);
    cluster_.Probe("a");
    if (both) cluster_.Probe("b");
    cluster_.Run(8);
  }

  Core core_{Options()};
  FakeCluster cluster_{core_, 2, 2, 2};
};

TEST_F(CoreSilence, ABlackHoledSpineLosesItsWeightWithinThreeSeconds) {
  Start(/*both=*/true);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  const std::string name = fmt::format("spine{}", spine + 1);
  cluster_.SetBlackHole("leaf1", name, true);
  cluster_.Run(0.96 + kPromise);  // it may compute just now
  EXPECT_EQ(cluster_.Shares("a", "h1")[spine], 0);
  EXPECT_EQ(cluster_.Shares("b", "h2")[spine], 0);
  EXPECT_LT(AvailableOf(core_, "leaf1", name), 5e6);
  EXPECT_EQ(AvailableOf(core_, name, "leaf1"), 100e6) << "the other direction answers";
  ASSERT_FALSE(DecisionsOf(core_, "silent").empty());
  EXPECT_THAT(DecisionsOf(core_, "silent")[0].reason(), HasSubstr(fmt::format("over leaf1,{},leaf2", name)));
  EXPECT_EQ(DecisionsOf(core_, "silent")[0].job_id(), "a");
  EXPECT_TRUE(std::ranges::any_of(cluster_.actions, [](const Action& action) { return std::holds_alternative<PushProbeAgain>(action); }));
  cluster_.Run(12);
  EXPECT_LT(cluster_.Iteration("a", 6), 2.6) << "both on the one spine that is left";
}

TEST_F(CoreSilence, ItsWeightComesBackOnceItAnswersAndLaterEachTime) {
  Start(/*both=*/true);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  const std::string name = fmt::format("spine{}", spine + 1);
  double last_s = 0;
  for (int round = 0; round < 3; ++round) {
    const std::string job = SpineOf(cluster_, "a", "h1") == spine ? "a" : "b";
    const std::string host = job == "a" ? "h1" : "h2";
    ASSERT_GT(cluster_.Shares(job, host)[spine], 0);
    cluster_.SetBlackHole("leaf1", name, true);
    cluster_.Run(5);
    ASSERT_EQ(cluster_.Shares(job, host)[spine], 0) << round;
    cluster_.SetBlackHole("leaf1", name, false);
    const double good_s = cluster_.now();
    while (cluster_.Shares("a", "h1")[spine] + cluster_.Shares("b", "h2")[spine] == 0 && cluster_.now() - good_s < 400) cluster_.Run(0.5);
    const double away_s = cluster_.now() - good_s;
    EXPECT_LT(away_s, 400);
    EXPECT_GT(away_s, 1.5 * last_s) << "a path that flaps is left alone for longer each time";
    last_s = away_s;
    cluster_.Run(5);
  }
  EXPECT_EQ(AvailableOf(core_, "leaf1", name), 100e6);
}

TEST_F(CoreSilence, APathThatOthersAreAnsweredOverIsLeftByTheOneThatIsNot) {
  Start(/*both=*/true);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  cluster_.SetBlackHole(fmt::format("spine{}", spine + 1), "leaf2", true);
  cluster_.Run(5);
  EXPECT_EQ(cluster_.Shares("a", "h1")[spine], 0);
  EXPECT_EQ(AvailableOf(core_, "leaf2", fmt::format("spine{}", spine + 1)), 100e6);
}

/// Acknowledgements have a way of their own: where they get lost, the lane is left, and the links that its bytes do cross are not blamed.
TEST_F(CoreSilence, ALinkWhoseBytesArriveIsNotBlamedForLostAcknowledgements) {
  Start(/*both=*/false);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  const std::string name = fmt::format("spine{}", spine + 1);
  std::map<uint64_t, std::set<int32_t>> ports;
  int64_t arrived = 0;
  cluster_.retouch = [&](v1::HostSample& sample) {
    arrived += 1500;
    for (v1::FlowCounters& counters : *sample.mutable_counters()) {
      for (const v1::LaneCounters& lane : counters.lanes()) {
        if (counters.send()) ports[counters.flow()].insert(lane.source_port());
      }
      if (counters.send()) continue;
      for (const int32_t port : ports[counters.flow()]) {
        v1::LaneCounters* lane = counters.add_lanes();
        lane->set_source_port(port);
        lane->set_wire_bytes(arrived);
      }
    }
  };
  cluster_.Run(1);
  cluster_.SetBlackHole("leaf1", name, true);  // to the sender it looks the same
  cluster_.Run(0.96 + kPromise);
  EXPECT_EQ(cluster_.Shares("a", "h1")[spine], 0);
  EXPECT_EQ(AvailableOf(core_, "leaf1", name), 100e6);
  ASSERT_FALSE(DecisionsOf(core_, "silent").empty());
  EXPECT_THAT(DecisionsOf(core_, "silent")[0].reason(), HasSubstr("though what is sent arrives"));
}

TEST_F(CoreSilence, NobodyMovesWhereNoPathAnswers) {
  Start(/*both=*/false);
  const std::vector<double> before = cluster_.Shares("a", "h1");
  cluster_.SetBlackHole("leaf2", "h3", true);  // the host's own cable
  cluster_.Run(10);
  EXPECT_EQ(AvailableOf(core_, "leaf2", "h3"), 100e6) << "a cable without a way around it";
  cluster_.SetBlackHole("leaf2", "h3", false);
  cluster_.Run(60);
  EXPECT_LT(cluster_.Iteration("a", 10), 1.5);
}

TEST_F(CoreSilence, TheWatchdogsFindingMovesWhatAPluginWithoutLanesSilenceCannotName) {
  cluster_.says_silence = false;
  Start(/*both=*/false);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  cluster_.SetBlackHole("leaf1", fmt::format("spine{}", spine + 1), true);
  cluster_.Run(5);
  EXPECT_GT(cluster_.Shares("a", "h1")[spine], 0) << "nothing that the counters say is wrong";
  v1::HostSample sample;
  sample.set_time_s(1e9);  // late or early: findings count all the same
  v1::Stall* stall = sample.add_stalls();
  stall->set_job_id("a");
  stall->set_flow(1);
  stall->set_send(true);
  stall->set_begins(true);
  stall->set_rank(0);
  stall->set_peer_rank(1);
  stall->set_cause("no acknowledgement");
  stall->set_stalled_s(60);
  cluster_.Send({.body = SampleReceived{"h1", sample}});
  cluster_.Run(1.5);
  EXPECT_EQ(cluster_.Shares("a", "h1")[spine], 0);
  ASSERT_EQ(DecisionsOf(core_, "stall").size(), 1u);
  EXPECT_THAT(DecisionsOf(core_, "stall")[0].reason(), HasSubstr("rank 0 on h1 sends to rank 1"));
}

TEST_F(CoreSilence, AStallOfAPeerMovesNothingAndIsNamedAFewTimesAMinute) {
  Start(/*both=*/false);
  const std::vector<double> before = cluster_.Shares("a", "h1");
  for (int i = 0; i < 50; ++i) {
    v1::HostSample sample;
    sample.set_time_s(1e9 + i);
    v1::Stall* stall = sample.add_stalls();
    stall->set_job_id("a");
    stall->set_flow(1);
    stall->set_send(true);
    stall->set_begins(true);
    stall->set_cause("peer does not read");
    stall->set_stalled_s(60);
    cluster_.Send({.body = SampleReceived{"h1", sample}});
  }
  cluster_.Run(2);
  EXPECT_EQ(cluster_.Shares("a", "h1"), before);
  EXPECT_EQ(DecisionsOf(core_, "stall").size(), 6u);
}

TEST_F(CoreSilence, ASilentLinkIsForgottenWithTheJobThatFoundIt) {
  Start(/*both=*/false);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  const std::string name = fmt::format("spine{}", spine + 1);
  cluster_.SetBlackHole("leaf1", name, true);
  cluster_.Run(5);
  ASSERT_LT(AvailableOf(core_, "leaf1", name), 5e6);
  cluster_.Finish("a");
  cluster_.Run(40);
  EXPECT_EQ(AvailableOf(core_, "leaf1", name), 100e6);
}

TEST_F(CoreSilence, WhereOneFlowsProbesWentElsewhereAllThatCrossTheLinkAreProbedAgain) {
  Start(/*both=*/true);
  cluster_.actions.clear();
  cluster_.Reroute();
  cluster_.Probe("a");
  cluster_.Run(0.3);
  std::set<std::string> asked;
  for (const Action& action : cluster_.actions) {
    const auto* push = std::get_if<PushProbeAgain>(&action);
    if (push != nullptr && push->again.flows_size() > 0) asked.insert(push->host);
  }
  EXPECT_TRUE(asked.contains("h2") && asked.contains("h4")) << "job b's hosts";
}

TEST_F(CoreSilence, ALinkThatLosesSegmentsIsLeftWithinThreeSeconds) {
  Start(/*both=*/true);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  const std::string name = fmt::format("spine{}", spine + 1);
  cluster_.SetLoss("leaf1", name, 3);
  cluster_.Run(0.96 + kPromise);
  EXPECT_LT(cluster_.Shares("a", "h1")[spine], 0.5);
  EXPECT_EQ(AvailableOf(core_, "leaf1", name), 25e6);
  EXPECT_EQ(AvailableOf(core_, "leaf1", fmt::format("spine{}", 2 - spine)), 100e6);
}

TEST_F(CoreSilence, LossOnAFullLinkIsCongestion) {
  cluster_.loss_slows = false;
  Start(/*both=*/false);
  const size_t spine = SpineOf(cluster_, "a", "h1");
  cluster_.Run(5);
  cluster_.SetLoss("leaf1", fmt::format("spine{}", spine + 1), 3);  // at line rate all the while
  cluster_.Run(5);
  for (const v1::Decision& decision : DecisionsOf(core_, "capacity")) {
    EXPECT_THAT(decision.reason(), ::testing::Not(HasSubstr("loses segments")));
  }
}

}  // namespace
}  // namespace weft::controller

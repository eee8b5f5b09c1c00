// What a decision meets on its way to the flows: room in policies, agents that apply, tenants' counters, mode observe, young flows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const FakeJob kJobA{.id = "a", .ring = {"h1", "h3"}};
const FakeJob kJobB{.id = "b", .ring = {"h2", "h4"}};

CoreOptions Options(v1::Mode mode = v1::MODE_ENFORCE) {
  CoreOptions options;
  options.mode = mode;
  options.rates.line_rate = MegabitsPerSecond(100);
  return options;
}

std::vector<std::string> ReasonsOf(const Core& core, const std::string& kind) {
  std::vector<std::string> found;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == kind) found.push_back(decision.reason());
  }
  return found;
}

std::vector<v1::JobPolicy> PoliciesOf(const FakeCluster& cluster, const std::string& host) {
  std::vector<v1::JobPolicy> found;
  for (const Action& action : cluster.actions) {
    if (const auto* push = std::get_if<PushPolicy>(&action); push != nullptr && push->host == host) found.push_back(push->policy);
  }
  return found;
}

double AvailableOf(const Core& core, const std::string& from, const std::string& to) {
  for (const v1::LinkStatus& link : core.Links()) {
    if (link.from() == from && link.to() == to) return link.available_bps();
  }
  return -1;
}

void StartBoth(FakeCluster& cluster) {
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start(kJobA, 0);
  cluster.Start(kJobB, 0);
  cluster.Run(0.3);
  cluster.Probe("a");
  cluster.Probe("b");
}

TEST(CoreLimits, APolicyWithoutRoomForAllFlowsHasThoseThatCarryMost) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start(kJobA, 0);  // its flow from h1 is number 1
  for (int i = 0; i < 4140; ++i) cluster.AddIdleFlow("a", "h1", "h3", 0);
  cluster.AddFlow("a", "h1", "h3");
  cluster.AddFlow("a", "h1", "h3");
  cluster.Run(4);  // until it is known who carries
  cluster.Probe("a");
  cluster.Run(2);
  const std::vector<v1::JobPolicy> policies = PoliciesOf(cluster, "h1");
  ASSERT_THAT(policies, Not(IsEmpty()));
  std::set<uint64_t> steered;
  for (const v1::FlowPolicy& flow : policies.back().flows()) steered.insert(flow.flow());
  EXPECT_EQ(steered.size(), 4096u);
  for (const uint64_t carrier : {1, 4143, 4144}) EXPECT_TRUE(steered.contains(carrier)) << carrier;
  EXPECT_GE(core.counters().flows_left_out, 4143 - 4096);
  ASSERT_THAT(ReasonsOf(core, "limit"), Not(IsEmpty()));
  EXPECT_THAT(ReasonsOf(core, "limit")[0], HasSubstr("47 flows on h1 find no room in its policy, which holds 4096"));
}

TEST(CoreLimits, APolicyThatOldPluginsReadTheBeginningOfBeginsWithThoseThatCarryMost) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start(kJobA, 0);
  for (int i = 0; i < 300; ++i) cluster.AddIdleFlow("a", "h1", "h3", 0);
  cluster.AddFlow("a", "h1", "h3");
  cluster.AddFlow("a", "h1", "h3");
  cluster.Run(4);
  cluster.Probe("a");
  cluster.Run(2);
  const std::vector<v1::JobPolicy> policies = PoliciesOf(cluster, "h1");
  ASSERT_THAT(policies, Not(IsEmpty()));
  EXPECT_EQ(policies.back().flows_size(), 303) << "nobody is left out for the sake of old plugins";
  EXPECT_EQ(core.counters().flows_left_out, 0);
  std::set<uint64_t> first;
  for (int i = 0; i < std::min(256, policies.back().flows_size()); ++i) first.insert(policies.back().flows(i).flow());
  for (const uint64_t carrier : {1, 303, 304}) EXPECT_TRUE(first.contains(carrier)) << carrier;
}

TEST(CoreLimits, APolicyThatHostsTakeUpIsNotLate) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(20);
  EXPECT_GE(core.counters().policies, 1);
  EXPECT_EQ(core.counters().policies_late, 0);
}

TEST(CoreLimits, APolicyThatNobodyTakesUpIsToldAndNotPlannedWith) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.applies = false;
  StartBoth(cluster);
  cluster.Run(8);
  EXPECT_GE(core.counters().policies_late, 1);
  ASSERT_THAT(ReasonsOf(core, "limit"), Not(IsEmpty()));
  EXPECT_THAT(ReasonsOf(core, "limit")[0], HasSubstr("has not taken up epoch"));
  cluster.applies = true;  // what is decided next counts again
  cluster.Run(20);
  EXPECT_NE(cluster.Shares("a", "h1"), cluster.Shares("b", "h2")) << "the collision that it left is planned away again";
}

TEST(CoreLimits, WhatProcessesHaveNoRoomForOrRefuseIsToldOnce) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(1);
  for (int i = 0; i < 3; ++i) {
    v1::HostSample sample;
    sample.set_time_s(1e9 + i);
    v1::Shortage* shortage = sample.add_shortages();
    shortage->set_job_id("a");
    shortage->set_flows_dropped(44);
    shortage->set_policy_rejected(2);
    shortage->set_policy_cut(300);
    cluster.Send({.body = SampleReceived{"h1", sample}});
  }
  EXPECT_EQ(core.counters().flows_unseen, 44);
  EXPECT_EQ(core.counters().entries_refused, 2);
  EXPECT_EQ(core.counters().entries_cut, 300);
  ASSERT_EQ(ReasonsOf(core, "limit").size(), 3u);
  EXPECT_THAT(ReasonsOf(core, "limit")[0], HasSubstr("44 flows of its processes on h1 found no slot"));
  EXPECT_THAT(ReasonsOf(core, "limit")[2], HasSubstr("300 entries of its policy on h1 do not reach those of its processes whose plugin is older"));
}

TEST(CoreLimits, ObserveTellsWhatEnforceThenDoes) {
  Core core(Options(v1::MODE_OBSERVE));
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(8);
  EXPECT_THAT(PoliciesOf(cluster, "h1"), IsEmpty());
  const std::vector<std::string> told = ReasonsOf(core, "would");
  ASSERT_THAT(told, Not(IsEmpty()));
  EXPECT_LE(told.size(), 3u) << "said when it changes, not with every plan";
  EXPECT_THAT(told.back(), HasSubstr("-> 100 % over leaf1,spine2,leaf2"));
  EXPECT_THAT(told.back(), HasSubstr("of what it gives, before")) << "the gain that is expected";
  std::vector<std::string> lines = core.Would("a");
  for (std::string& line : core.Would("b")) lines.push_back(std::move(line));
  ASSERT_THAT(lines, Not(IsEmpty()));
  EXPECT_THAT(lines, Contains(HasSubstr("comes to: fullest link 100 % of what it gives, before 200 %")));
  cluster.Send({.body = ModeSet{v1::MODE_ENFORCE, ""}});
  cluster.Run(1);
  ASSERT_EQ(ReasonsOf(core, "replan").size(), 1u);
  EXPECT_THAT(ReasonsOf(core, "replan")[0], HasSubstr("-> 100 % over leaf1,spine2,leaf2"));
  EXPECT_THAT(core.Would("a"), IsEmpty());
}

TEST(CoreLimits, AYoungFlowSomewhereElseDoesNotHideASlowLink) {
  Core core(Options());
  FakeCluster cluster(core, 4, 2, 2);  // h1 to h8
  StartBoth(cluster);
  cluster.Run(10);
  cluster.Start({.id = "c", .ring = {"h6", "h8"}}, 0);  // its hosts are known
  cluster.Run(0.3);
  cluster.Probe("c");
  cluster.Run(3);
  cluster.SetRate("leaf1", "spine1", 40e6);
  cluster.SetRate("leaf1", "spine2", 40e6);
  for (int i = 0; i < 5; ++i) {
    const std::string id = fmt::format("young{}", i);
    cluster.Start({.id = id, .ring = {"h6", "h8"}, .compute_s = 0.1}, 0);
    cluster.Run(3);
    cluster.Finish(id);
  }
  EXPECT_LT(std::min(AvailableOf(core, "leaf1", "spine1"), AvailableOf(core, "leaf1", "spine2")), 60e6);
}

TEST(CoreLimits, AnEstimateThatNobodyCanConfirmIsNotRaised) {
  CoreOptions options = Options();
  options.monitor.recovery_interval = Seconds(10);
  Core core(options);
  FakeCluster cluster(core, 2, 2, 4);  // h1 to h4, h5 to h8
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start({.id = "a", .ring = {"h1", "h5"}}, 0);
  cluster.Start({.id = "b", .ring = {"h2", "h6"}}, 0);
  cluster.Run(0.3);
  cluster.Probe("a");
  cluster.Probe("b");
  cluster.Start({.id = "c", .ring = {"h3", "h7"}}, 0);  // its hosts are known
  cluster.Run(0.3);
  cluster.Probe("c");
  cluster.Run(2);
  cluster.Finish("c");
  cluster.Run(8);
  for (const char* spine : {"spine1", "spine2"}) cluster.SetRate("leaf1", spine, 40e6);
  cluster.Run(8);
  const double before = AvailableOf(core, "leaf1", "spine1");
  ASSERT_LT(before, 60e6);
  const size_t changes = ReasonsOf(core, "capacity").size();
  for (int i = 0; i < 6; ++i) {  // somebody young is always on the way from leaf 1 to leaf 2
    const std::string id = fmt::format("young{}", i);
    cluster.Start({.id = id, .ring = {"h3", "h7"}, .compute_s = 0.05, .bytes = 100e6}, 0);
    cluster.Run(5);
    cluster.Finish(id);
  }
  const std::vector<std::string> reasons = ReasonsOf(core, "capacity");
  for (size_t i = changes; i < reasons.size(); ++i) EXPECT_THAT(reasons[i], Not(HasSubstr("tested for more")));
}

TEST(CoreLimits, ATenantsEpochIsNotBelieved) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.RegisterAll();
  v1::HostSample sample;
  sample.set_time_s(1e6);
  v1::FlowIdentity* identity = sample.add_opened();
  identity->set_flow(900);
  identity->set_job_id("t");
  identity->set_send(true);
  identity->set_local_address("addr-h1");
  identity->set_peer_address("addr-h3");
  v1::FlowCounters* counters = sample.add_counters();
  counters->set_flow(900);
  counters->set_send(true);
  counters->set_policy_epoch(int64_t{1} << 60);
  cluster.Send({.body = SampleReceived{"h1", sample}});
  EXPECT_EQ(core.FindJob("t")->policy_epoch(), 0);
  // What an older agent hands on as its own is, and then outlives a restart, whatever it was.
  cluster.Register("h2", {{"t", int64_t{1} << 60}});
  ASSERT_EQ(core.FindJob("t")->policy_epoch(), int64_t{1} << 60);
  Core again(Options());
  again.Handle({.body = EpochKnown{"t", (int64_t{1} << 60) + 3}});
  again.Handle({.body = JobSubmitted{[] { v1::JobSpec spec; spec.set_job_id("t"); return spec; }(), {}, {}}});
  EXPECT_EQ(again.FindJob("t")->policy_epoch(), (int64_t{1} << 60) + 3) << "epochs never go back";
  again.Handle({.body = EpochKnown{"t", kLargestKeptEpoch}});
  EXPECT_EQ(again.FindJob("t")->policy_epoch(), kLargestKeptEpoch);
  again.Handle({.body = EpochKnown{"t", kLargestKeptEpoch + 1}});
  again.Handle({.body = EpochKnown{"t", INT64_MAX}});
  EXPECT_EQ(again.FindJob("t")->policy_epoch(), kLargestKeptEpoch) << "of a damaged journal: the next one would overflow";
}

TEST(CoreLimits, OtherInterfacesInAStandingSessionTakeNothingFromFlows) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(5);
  const int64_t flows = core.flow_count();
  v1::Register message;
  message.set_host("h1");
  message.set_incarnation(1);
  message.add_interfaces()->add_addresses("addr-h1");
  message.add_interfaces()->add_addresses("second-h1");
  cluster.Send({.body = HostRegistered{message, /*again=*/true}});
  cluster.Run(40);
  EXPECT_EQ(core.flow_count(), flows) << "flows that were not announced again have not ended";
  EXPECT_THAT(core.Hosts()[0].addresses(), Contains("second-h1"));
}

}  // namespace
}  // namespace weft::controller

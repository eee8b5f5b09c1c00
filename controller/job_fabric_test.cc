// Jobs beside others on one fabric: 16 hosts of eight GPUs under 8 leaves and 8 spines, as probes show them, and Llama 3 70B under
// Megatron-LM. A host has one link of 3.2 Tbit/s; a leaf of two hosts has 8 uplinks of 800 Gbit/s, which block nobody.
#include "controller/job_fabric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stop_token>

#include "common/launch_variable.h"
#include "controller/config.h"
#include "controller/job_advice.h"
#include "controller/job_launch.h"
#include "controller/job_planner.h"
#include "controller/testing/small_job.h"
#include "formats/emit/emit.h"
#include "formats/hf_config.h"
#include "planner/fabric/fabrics.h"
#include "planner/plan/price_given.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using testing::Listening;
using testing::SmallOptions;
using testing::SmallView;

constexpr int kHosts = 16, kPerLeaf = 2, kSpines = 8;
constexpr double kHostRate = 3.2e12, kUplink = kPerLeaf * kHostRate / kSpines;

std::string Host(int i) { return fmt::format("h{}", i + 1); }
std::string Leaf(int i) { return fmt::format("leaf{}", i / kPerLeaf + 1); }

/// What probes have shown; `others`: of every uplink's rate, what jobs of others carry up and down.
PlacementView View(double others = 0, double uplink = kUplink) {
  PlacementView view;
  for (int i = 0; i < kHosts; ++i) {
    view.connected.insert(Host(i));
    view.leaf[Host(i)] = Leaf(i);
    view.rate[Host(i)] = BitsPerSecond(kHostRate);
    const NodeId leaf = view.topology.AddNode(Leaf(i), planner::NodeKind::kSwitch);
    view.topology.AddCable(view.topology.AddNode(Host(i), planner::NodeKind::kHost), leaf, BitsPerSecond(kHostRate));
    for (int s = 0; s < kSpines; ++s) {
      view.topology.AddCable(leaf, view.topology.AddNode(fmt::format("spine{}", s + 1), planner::NodeKind::kSwitch),
                             BitsPerSecond(uplink));
    }
  }
  for (const planner::Link& link : view.topology.links()) {
    const bool up = link.line_rate.value() == uplink;
    view.carried.push_back(BitsPerSecond(up ? others * uplink : 0));
  }
  return view;
}

JobPlannerOptions Options() {
  JobPlannerOptions options = DefaultConfig().planner;
  options.cluster = planner::FindClusterPreset("dgx-h100", 1).value();
  return options;
}

v1::JobSpec Spec(const std::string& framework = "megatron") {
  v1::JobSpec spec;
  spec.set_job_id("llama");
  spec.set_model_config_json(formats::WriteHfConfig(formats::ResolveModel("llama3-70b").value()));
  spec.set_global_batch(256);
  spec.set_sequence(4096);
  spec.set_framework(framework);
  spec.set_ranks_per_host(8);
  for (int i = 0; i < kHosts; ++i) spec.add_hosts(Host(i));
  return spec;
}

/// What `weft plan llama3-70b --cluster dgx-h100:16 --global-batch 256 --seq 4096 --framework megatron` asks, and its best.
struct Alone {
  planner::JobSpec job;
  planner::ClusterSpec cluster = planner::FindClusterPreset("dgx-h100", kHosts).value();
  planner::JobPlan plan;

  Alone() {
    job.model = formats::ResolveModel("llama3-70b").value();
    job.name = job.model.name;
    job.global_batch = 256;
    job.sequence = 4096;
    planner::PlanOptions options{.framework = planner::Framework::kMegatron};
    options.node_budget = std::numeric_limits<int64_t>::max();
    plan = planner::Plan(job, cluster, options)->plans.front();
    job.gpus = cluster.TotalGpus();
  }
};

PlannedJob Planned(const v1::JobSpec& spec, const PlacementView& view) {
  auto planned = PlanJob(spec, view, Options());
  EXPECT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_THAT(planned->errors, IsEmpty());
  return planned.value_or(PlannedJob());
}

TEST(JobFabric, AloneAJobGetsWhatWeftPlanChoosesAndEmits) {
  const Alone alone;
  for (const PlacementView& view : {View(), PlacementView()}) {  // as probes have shown it, and before any
    const v1::JobPlan plan = Planned(Spec(), view).plan;
    EXPECT_EQ(plan.strategy().text(), planner::DescribeStrategy(alone.plan.strategy));
    EXPECT_EQ(plan.predicted().iteration_s(), alone.plan.predicted.iteration.count());
    const auto text = formats::Emit(formats::EmitTarget::kMegatron, {.job = alone.job, .cluster = alone.cluster,
                                                                     .strategy = alone.plan.strategy,
                                                                     .framework = planner::Framework::kMegatron});
    ASSERT_TRUE(text.has_value());
    const std::vector<std::string> words = ShellWords([&] {
      std::string line = text->substr(text->find('\n') + 1);  // behind the comment
      std::replace(line.begin(), line.end(), '\n', ' ');
      return line;
    }());
    EXPECT_GT(words.size(), 40u);
    EXPECT_THAT(plan.arguments(), ElementsAreArray(words));
    EXPECT_EQ(plan.environment().at(kArgumentsVariable), fmt::format("{}", fmt::join(words, " ")));
    EXPECT_EQ(plan.environment().contains("CUDA_DEVICE_MAX_CONNECTIONS"), alone.plan.strategy.tp * alone.plan.strategy.cp > 1);
    EXPECT_THAT(plan.why(), Contains(AllOf(HasSubstr("enforced: the strategy, where Megatron-LM core_v0.19.0 reads"),
                                           HasSubstr("pretrain_gpt.py"))));
    EXPECT_THAT(plan.why(), Not(Contains(HasSubstr("fabric now"))));
  }
}

// Of each leaf's 8 uplinks others take 95 %: 0.05 · 6.4 Tbit/s for two nodes, 160 Gbit/s each.
TEST(JobFabric, BesideALoadedSpineAJobGetsAnotherStrategyAndTheReason) {
  const Alone alone;
  const v1::JobPlan plan = Planned(Spec(), View(0.95)).plan;
  EXPECT_NE(plan.strategy().text(), planner::DescribeStrategy(alone.plan.strategy));
  EXPECT_THAT(plan.why(), Contains(AllOf(HasSubstr("fabric now: out of a leaf of 2 of the job's nodes each can send 160"),
                                         HasSubstr("3200 Gbit/s if nobody else sent"))));
  planner::ClusterSpec left = alone.cluster;
  left.tiers = {{"leaf", kPerLeaf, BitsPerSecond(0.05 * kHostRate)}, {"spine", kHosts, BitsPerSecond(0)}};
  const auto there = planner::PriceGiven(alone.job, left, "megatron", alone.plan.strategy);
  ASSERT_TRUE(there.has_value());
  const double best_alone_there = there->plan.predicted.iteration.count();
  EXPECT_LT(plan.predicted().iteration_s(), best_alone_there / 1.02);
  EXPECT_THAT(plan.why(),
              Contains(AllOf(HasSubstr("fabric: chosen for what is left of links: "),
                             HasSubstr(planner::DescribeStrategy(alone.plan.strategy) + ", the fastest if nobody else sent"),
                             HasSubstr("% longer; with nobody else this one would take "))));
  EXPECT_THAT(plan.arguments(), Not(ElementsAreArray(Planned(Spec(), View()).plan.arguments())));
}

/// The job runs as it was planned on an idle fabric, and is looked at on this one.
AdviseRestart Running(const PlacementView& view) {
  AdviseRestart question{.spec = Spec(), .plan = Planned(Spec(), View()).plan, .view = view, .iteration_s = 0, .looked_at = {}, .left = std::nullopt};
  return question;
}

// The same uplinks carry others' traffic when the job runs: what submit would answer now is what a restart would give.
TEST(JobAdvice, ARestartIsAdvisedWhereLinksGiveLessAndWorthWhatItSays) {
  AdviseRestart question = Running(View(0.95));
  ASSERT_TRUE(CanBeAdvised(question.spec, question.plan));
  const auto advised = AdviseJob(question, Options(), {.restart = Seconds(300)});
  ASSERT_TRUE(advised.has_value()) << advised.error().message();
  ASSERT_TRUE(advised->advice.has_value());
  const v1::RestartAdvice& advice = *advised->advice;
  const v1::JobPlan anew = Planned(Spec(), View(0.95)).plan;
  EXPECT_EQ(advice.strategy(), anew.strategy().text());
  EXPECT_NEAR(advice.iteration_then_s(), anew.predicted().iteration_s(), 1e-6);
  EXPECT_LT(advice.iteration_then_s(), 0.95 * advice.iteration_now_s());
  EXPECT_FALSE(advice.measured());
  // By then as many iterations as without a restart.
  EXPECT_NEAR(advice.pays_after_s() / advice.iteration_then_s(), (advice.pays_after_s() + 300) / advice.iteration_now_s(), 1e-6);
  EXPECT_THAT(advice.fabric(), HasSubstr("out of a leaf of 2 each 160 Gbit/s"));
  // What is measured counts, in the proportion of the predictions.
  question.iteration_s = 2 * advice.iteration_now_s();
  const auto measured = AdviseJob(question, Options(), {.restart = Seconds(300)});
  ASSERT_TRUE(measured.has_value() && measured->advice.has_value());
  EXPECT_NEAR(measured->advice->iteration_then_s(), 2 * advice.iteration_then_s(), 1e-6);
  EXPECT_TRUE(measured->advice->measured());
  // A search that ends before it finds anything takes nothing back.
  std::stop_source ended;
  ended.request_stop();
  AdviseRestart late = question;
  late.looked_at = "another fabric";
  const auto stopped = AdviseJob(late, Options(), {}, ended.get_token());
  ASSERT_TRUE(stopped.has_value());
  EXPECT_EQ(stopped->fabric, "another fabric");
  // Nothing has changed since: the answer stands.
  question.looked_at = advised->fabric;
  EXPECT_FALSE(AdviseJob(question, Options(), {})->advice.has_value());
}

TEST(JobAdvice, NothingIsAdvisedWhereItWouldNotPay) {
  for (const double others : {0.0, 0.1}) EXPECT_FALSE(AdviseJob(Running(View(others)), Options(), {})->advice.has_value()) << others;
  EXPECT_FALSE(AdviseJob(Running(View(0.95)), Options(), {.gain = 0.9})->advice.has_value());
  // A job that ends before a restart has paid for itself, and one that ends a little later.
  const v1::RestartAdvice advice = *AdviseJob(Running(View(0.95)), Options(), {.restart = Seconds(300)})->advice;
  const Seconds even(300 / (1 - advice.iteration_then_s() / advice.iteration_now_s()));
  for (const double part : {0.99, 1.01}) {
    AdviseRestart question = Running(View(0.95));
    question.left = even * part;
    EXPECT_EQ(AdviseJob(question, Options(), {.restart = Seconds(300)})->advice.has_value(), part > 1);
  }
  v1::JobPlan plan = Running(View()).plan;
  v1::JobSpec spec = Spec();
  plan.set_origin("given");
  EXPECT_FALSE(CanBeAdvised(spec, plan)) << "its user has chosen";
  plan.set_origin("search");
  spec.set_framework("somebody's");
  EXPECT_FALSE(CanBeAdvised(spec, plan));
}

TEST(JobFabric, WhatOthersCarryInPartIsSaidAndChangesNothingThatItNeedNot) {
  const Alone alone;
  const v1::JobPlan plan = Planned(Spec(), View(0.1)).plan;
  EXPECT_EQ(plan.strategy().text(), planner::DescribeStrategy(alone.plan.strategy));
  EXPECT_THAT(plan.why(), Contains(HasSubstr("each can send 2880 Gbit/s, 3200 Gbit/s if nobody else sent")));
  // What is left: 0.9 of 3.2 Tbit/s out of a leaf for each node. The best there is the same strategy, or one that is hardly faster;
  // which of the two it is, is said.
  planner::ClusterSpec left = alone.cluster;
  left.tiers = {{"leaf", kPerLeaf, BitsPerSecond(0.9 * kHostRate)}, {"spine", kHosts, BitsPerSecond(0)}};
  const planner::GivenPrice there = planner::PriceGiven(alone.job, left, "megatron", alone.plan.strategy).value();
  EXPECT_DOUBLE_EQ(plan.predicted().iteration_s(), there.plan.predicted.iteration.count()) << "priced on what is left";
  EXPECT_GT(there.plan.predicted.iteration, alone.plan.predicted.iteration);
  planner::PlanOptions options{.framework = planner::Framework::kMegatron};
  options.node_budget = std::numeric_limits<int64_t>::max();
  const planner::JobPlan best = planner::Plan(alone.job, left, options)->plans.front();
  EXPECT_LT(there.plan.predicted.iteration / best.predicted.iteration, 1.02);
  const bool same = best.strategy == alone.plan.strategy;
  EXPECT_THAT(plan.why(), Contains(same ? AllOf(HasSubstr("fabric: this strategy is the fastest on what is left of links"), HasSubstr(""))
                                        : AllOf(HasSubstr("is kept: on what is left of links it takes"),
                                                HasSubstr("and the fastest there, " + planner::DescribeStrategy(best.strategy)))));
}

TEST(JobFabric, HostsThatNoProbeHasJoinedCountAsOnANetworkThatBlocksNobody) {
  PlacementView view = View(0.95);
  v1::JobSpec spec = Spec();
  spec.set_hosts(15, "stranger");
  const v1::JobPlan plan = Planned(spec, view).plan;
  EXPECT_EQ(plan.strategy().text(), planner::DescribeStrategy(Alone().plan.strategy));
  EXPECT_THAT(plan.why(), Contains("fabric: no probe has shown what stranger hangs on: planned for a network that blocks nobody"));
  view.topology.AddLink(view.topology.AddNode("stranger", planner::NodeKind::kHost), *view.topology.FindNode("leaf1"),
                        BitsPerSecond(kHostRate));
  EXPECT_THAT(Planned(spec, view).plan.why(), Contains(HasSubstr("fabric: no probe went both ways between h1 and stranger")));
}

// Of cables that could carry all: 1.6 Tbit/s for a node of 3.2. Of cables of half the rate the same is nobody's load.
TEST(JobFabric, LinksThatGiveHalfCountAsTaken) {
  PlacementView view = View();
  for (size_t i = 0; i < view.topology.links().size(); ++i) {
    const LinkId link(static_cast<int32_t>(i));
    if (view.topology.link(link).line_rate.value() == kUplink) view.topology.SetCapacity(link, BitsPerSecond(kUplink / 2));
  }
  planner::ClusterSpec cluster = planner::FindClusterPreset("dgx-h100", kHosts).value();
  std::vector<std::string> hosts;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(Host(i));
  const JobFabric fabric = LookAtFabric(hosts, view, cluster);
  EXPECT_THAT(fabric.alone.tiers, IsEmpty());
  ASSERT_THAT(fabric.now.tiers, SizeIs(2));
  EXPECT_EQ(fabric.now.tiers[0].nodes, kPerLeaf);
  EXPECT_NEAR(fabric.now.tiers[0].out.value(), 1.6e12, 1e6) << "links that give half of what they are configured for";
  EXPECT_TRUE(fabric.loaded);
  EXPECT_EQ(fabric.order, hosts);
  const JobFabric narrow = LookAtFabric(hosts, View(0, kUplink / 2), cluster);
  EXPECT_FALSE(narrow.loaded);
  ASSERT_THAT(narrow.alone.tiers, SizeIs(2));
  EXPECT_NEAR(narrow.alone.tiers[0].out.value(), 1.6e12, 1e6);
  EXPECT_THAT(narrow.why,
              Contains("fabric: out of a leaf of 2 nodes each can send 1600 Gbit/s, where its own links carry 3200 Gbit/s"));
  // The same where probes have seen one of two NICs of each host, and as many of its leaf's uplinks: rates count relative to each
  // other.
  cluster.nic_rate = BitsPerSecond(2 * kHostRate);
  EXPECT_NEAR(LookAtFabric(hosts, view, cluster).now.tiers[0].out.value(), 3.2e12, 1e6);
}

// Two pods of two leaves: hosts of a pod follow each other, as tiers above leaves are counted so.
TEST(JobFabric, PartsAboveLeavesGiveTheOrderOfRanks) {
  const planner::Cluster pods = planner::ThreeTierClos({.pods = 2, .leaves_per_pod = 2, .hosts_per_leaf = 2});
  PlacementView view;
  view.topology = pods.topology;
  v1::JobSpec spec = Spec();
  spec.clear_hosts();
  for (const char* host : {"h1", "h5", "h3", "h7", "h2", "h6", "h4", "h8"}) spec.add_hosts(host);
  const PlannedJob planned = Planned(spec, view);
  std::vector<int> pod;
  for (const std::string& host : planned.order) pod.push_back(std::stoi(host.substr(1)) > 4);
  EXPECT_TRUE(std::is_sorted(pod.begin(), pod.end()) || std::is_sorted(pod.rbegin(), pod.rend()));
  EXPECT_EQ(planned.plan.environment().at("WEFT_HOST_ORDER"), fmt::format("{}", fmt::join(planned.order, ",")));
  EXPECT_THAT(planned.plan.why(), Contains(HasSubstr("those of one part of the fabric follow each other")));
}

TEST(JobAdvice, RanksThatListenChangeInMemoryForThePauseOfWhatMoves) {
  AdviseRestart question = Listening();
  EXPECT_EQ(question.plan.environment().at(kReshardVariable), "on");
  const AdviceOptions options{.restart = Seconds(300), .change = Seconds(2)};
  const auto advised = AdviseJob(question, SmallOptions(), options);
  ASSERT_TRUE(advised.has_value()) << advised.error().message();
  ASSERT_TRUE(advised->change.has_value());
  const v1::StrategyChange& change = *advised->change;
  const v1::JobPlan anew = PlanJob(question.spec, SmallView(6e6), SmallOptions())->plan;
  EXPECT_EQ(change.strategy(), anew.strategy().text());
  EXPECT_EQ(change.plan().SerializeAsString().size(), anew.SerializeAsString().size());
  EXPECT_LT(change.iteration_then_s(), 0.95 * change.iteration_now_s());
  // What moves is some of parameters and moments of a model of 0.2 M parameters, most of it over 6 Mbit/s out of a leaf.
  const planner::ModelSpec model = formats::ParseHfConfig(question.spec.model_config_json(), "model").value();
  const double state = 12.0 * static_cast<double>(planner::ParameterCount(model));
  EXPECT_GT(static_cast<double>(change.moved_bytes()), 0.1 * state);
  EXPECT_LT(static_cast<double>(change.moved_bytes()), 4 * state);
  EXPECT_GT(change.pause_s(), 2);
  EXPECT_LT(change.pause_s(), 2 + 8 * 4 * state / 6e6);
  // Nobody listens: only a restart is advised, of the same strategy.
  question.listens = false;
  const auto deaf = AdviseJob(question, SmallOptions(), options);
  EXPECT_FALSE(deaf->change.has_value());
  EXPECT_EQ(deaf->advice->strategy(), change.strategy());
}

TEST(JobAdvice, AChangeThatDoesNotPayForItsPauseIsNone) {
  AdviseRestart question = Listening();
  EXPECT_FALSE(AdviseJob(question, SmallOptions(), {.change_gain = 0.9})->change.has_value()) << "gains too little";
  EXPECT_FALSE(AdviseJob(question, SmallOptions(), {.change = Seconds(1e4)})->change.has_value()) << "a pause for hours";
  const v1::StrategyChange change = *AdviseJob(question, SmallOptions(), {.change = Seconds(2)})->change;
  // The job ends a little before, or after, a change has paid for itself; a restart never would.
  const Seconds even(change.pause_s() / (1 - change.iteration_then_s() / change.iteration_now_s()));
  for (const double part : {0.99, 1.01}) {
    question.left = even * part;
    const auto advised = AdviseJob(question, SmallOptions(), {.change = Seconds(2)});
    EXPECT_EQ(advised->change.has_value(), part > 1);
    EXPECT_FALSE(advised->advice.has_value());
  }
  // A fabric that nobody knows any more changes nothing, and the last answer stands.
  question.left = std::nullopt;
  AdviseRestart blind = question;
  blind.view = PlacementView();
  blind.looked_at = "before";
  const auto unknown = AdviseJob(blind, SmallOptions(), {});
  EXPECT_FALSE(unknown->change.has_value() || unknown->advice.has_value());
  EXPECT_EQ(unknown->fabric, "before");
  // On other hosts than the ranks have: a restart's.
  std::swap(*question.plan.mutable_rank_hosts(0), *question.plan.mutable_rank_hosts(2));
  EXPECT_FALSE(AdviseJob(question, SmallOptions(), {})->change.has_value());
}

}  // namespace
}  // namespace weft::controller

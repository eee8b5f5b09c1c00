#include "controller/job_hosts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stop_token>

#include "controller/config.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/planner.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using ::testing::SizeIs;

constexpr char kGpt2[] =
    R"({"model_type":"gpt2","n_layer":12,"n_embd":768,"n_head":12,"vocab_size":50257,"n_positions":1024})";

/// h1 … h8, four below either leaf, on links of 10 Gbit/s.
PlacementView View() {
  PlacementView view;
  view.topology = planner::LeafSpine(2, 2, 4, GigabitsPerSecond(10));
  for (const planner::Node& node : view.topology.nodes()) {
    if (node.kind == planner::NodeKind::kHost) view.connected.insert(node.name);
  }
  return view;
}

v1::JobSpec Spec(int64_t least, int64_t most) {
  v1::JobSpec spec;
  spec.set_job_id("j");
  spec.set_model_config_json(kGpt2);
  spec.set_global_batch(64);
  spec.set_sequence(1024);
  spec.set_precision("bf16");
  spec.set_framework("any");
  spec.set_min_gpus(least);
  spec.set_max_gpus(most);
  return spec;
}

Result<PlannedJob> Give(const v1::JobSpec& spec, const PlacementView& view) { return GiveHosts(spec, view, DefaultConfig().planner); }

std::vector<std::string> HostsOf(const PlannedJob& given) { return {given.spec.hosts().begin(), given.spec.hosts().end()}; }

double IterationOn(v1::JobSpec spec, const std::vector<std::string>& hosts, const PlacementView& view) {
  spec.clear_min_gpus();
  spec.clear_max_gpus();
  spec.mutable_hosts()->Assign(hosts.begin(), hosts.end());
  return PlanJob(spec, view, DefaultConfig().planner)->plan.predicted().iteration_s();
}

std::string Message(const Result<PlannedJob>& given) { return given ? "" : given.error().message(); }

TEST(JobHosts, AreThoseThatNoJobHasAndTheFastestNumberOfThem) {
  PlacementView view = View();
  for (const char* host : {"h1", "h5", "h6"}) view.used[host] = {"other", std::nullopt};
  const Result<PlannedJob> given = Give(Spec(1, 0), view);
  ASSERT_TRUE(given) << given.error().message();
  const std::vector<std::string> free = {"h2", "h3", "h4", "h7", "h8"};
  EXPECT_THAT(HostsOf(*given), IsSubsetOf(free));
  EXPECT_EQ(given->spec.gpus(), given->spec.hosts_size());
  const double chosen = IterationOn(given->spec, HostsOf(*given), view);
  for (size_t n = 1; n <= free.size(); ++n) {
    const double other = IterationOn(Spec(1, 0), {free.begin(), free.begin() + static_cast<std::ptrdiff_t>(n)}, view);
    if (other <= 0) continue;
    EXPECT_GE(other, chosen * 0.98) << n << " hosts";
  }
  EXPECT_THAT(given->plan.why(), Contains(HasSubstr("of 5 that no job has")));
}

TEST(JobHosts, LieBelowOneLeafWhereThatIsFaster) {
  PlacementView view = View();
  view.used["h1"] = {"other", std::nullopt};
  for (size_t l = 0; l < view.topology.links().size(); ++l) {  // what leaves a leaf is a tenth of what enters it
    const planner::Link& link = view.topology.link(LinkId(static_cast<int32_t>(l)));
    const bool inner = view.topology.node(link.from).kind == planner::NodeKind::kSwitch && view.topology.node(link.to).kind == planner::NodeKind::kSwitch;
    if (inner) view.topology.SetCapacity(LinkId(static_cast<int32_t>(l)), GigabitsPerSecond(1));
  }
  const Result<PlannedJob> given = Give(Spec(4, 4), view);
  ASSERT_TRUE(given) << given.error().message();
  EXPECT_THAT(HostsOf(*given), ElementsAre("h5", "h6", "h7", "h8"));
}

// The least number of hosts that is in time, or more, but none that is late while another one is not.
TEST(JobHosts, KeepADeadlineThatSomeNumberKeeps) {
  const PlacementView view = View();
  const std::vector<std::string> all(view.connected.begin(), view.connected.end());
  for (const double share : {1.001, 1.2, 2.0, 4.0}) {
    v1::JobSpec spec = Spec(1, 8);
    spec.set_iterations(1000);
    const double fastest = IterationOn(spec, all, view);
    ASSERT_GT(fastest, 0);
    spec.set_deadline_s(fastest * share * 1000);
    const Result<PlannedJob> given = Give(spec, view);
    ASSERT_TRUE(given) << given.error().message();
    EXPECT_LE(IterationOn(spec, HostsOf(*given), view), fastest * share) << share;
    EXPECT_THAT(given->plan.why(), Contains(HasSubstr("before its deadline")));
  }
  v1::JobSpec late = Spec(1, 8);
  late.set_iterations(1000);
  late.set_deadline_s(1e-3);
  EXPECT_THAT(Give(late, view)->plan.why(), Contains(HasSubstr("AFTER its deadline")));
}

TEST(JobHosts, AJobThatHasToWaitIsToldForWhomAndHowLong) {
  PlacementView view = View();
  for (const std::string& host : view.connected) {
    if (host != "h3") view.used[host] = {"big", std::nullopt};
  }
  const Result<PlannedJob> unknown = Give(Spec(4, 4), view);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(unknown.error().message(), HasSubstr("1 of 8 hosts with an agent are free, the job takes 4; the others have: big; when those end is "
                                                   "not known: submit it again later, or release jobs that have ended, or lower min_gpus"));
  for (auto& [host, use] : view.used) use.left = Seconds(90);
  EXPECT_THAT(Message(Give(Spec(4, 4), view)), HasSubstr("4 hosts are free in about 90 s: submit it again then"));
  view.connected = {"h3"};
  EXPECT_THAT(Message(Give(Spec(4, 4), view)), HasSubstr("min_gpus: 4 hosts, and 1 have an agent"));
}

// A few hosts now are worth more than all of them much later, and less than all of them at once.
TEST(JobHosts, BeginWithFewWhereManyComeLate) {
  PlacementView view = View();
  for (const char* host : {"h5", "h6", "h7", "h8"}) view.used[host] = {"other", Seconds(1e6)};
  v1::JobSpec spec = Spec(1, 8);
  spec.set_iterations(100);
  EXPECT_THAT(HostsOf(Give(spec, view).value()), IsSubsetOf({"h1", "h2", "h3", "h4"}));
}

TEST(JobHosts, NumbersThatContradictEachOtherAreRefused) {
  const auto refused = [](const auto& change) {
    v1::JobSpec spec = Spec(2, 4);
    change(spec);
    return Message(Give(spec, View()));
  };
  EXPECT_THAT(refused([](v1::JobSpec& spec) { spec.set_min_gpus(5); }), HasSubstr("job \"j\": min_gpus: 5, expected at most max_gpus, 4"));
  EXPECT_THAT(refused([](v1::JobSpec& spec) { spec.add_hosts("h1"); }), HasSubstr("hosts beside min_gpus or max_gpus"));
  EXPECT_THAT(refused([](v1::JobSpec& spec) { spec.set_gpus(4); }), HasSubstr("gpus beside min_gpus or max_gpus"));
  EXPECT_THAT(refused([](v1::JobSpec& spec) { spec.clear_model_config_json(); }), HasSubstr("without a model"));
  EXPECT_THAT(refused([](v1::JobSpec& spec) { spec.set_ranks_per_host(3), spec.set_min_gpus(4), spec.set_max_gpus(5); }),
              HasSubstr("no number of whole hosts with 3 GPUs lies between"));
  EXPECT_THAT(refused([](v1::JobSpec& spec) { spec.set_global_batch(0); }), HasSubstr("none of the numbers of hosts that were tried (4, 2) takes it: 2 hosts: "));
  const auto whole = [](const auto& change) {
    v1::JobSpec spec = Spec(2, 4);
    change(spec);
    const Result<PlannedJob> planned = PlanJob(spec, View(), DefaultConfig().planner);
    return planned ? "" : planned.error().message();
  };
  EXPECT_THAT(whole([](v1::JobSpec& spec) { spec.set_min_gpus(-1); }), HasSubstr("min_gpus: -1 is out of range"));
  EXPECT_THAT(whole([](v1::JobSpec& spec) { spec.set_iterations(-1); }), HasSubstr("iterations: -1 is out of range"));
  EXPECT_THAT(whole([](v1::JobSpec& spec) { spec.set_deadline_s(60); }), HasSubstr("deadline_s: expected only with iterations"));
  EXPECT_THAT(whole([](v1::JobSpec& spec) { spec.set_deadline_s(std::numeric_limits<double>::quiet_NaN()); }), HasSubstr("deadline_s: nan"));
}

// Whoever has run longer than was expected has its hosts still.
TEST(JobHosts, OfAJobThatIsOverdueAreNotFree) {
  PlacementView view = View();
  for (const std::string& host : view.connected) {
    if (host != "h3") view.used[host] = {"big", Seconds(0)};
  }
  EXPECT_THAT(Message(Give(Spec(4, 4), view)), HasSubstr("1 of 8 hosts with an agent are free, the job takes 4"));
  EXPECT_THAT(HostsOf(Give(Spec(1, 1), view).value()), ElementsAre("h3"));
}

// 15 sequences divide by 3 and by 5, and by no power of two.
TEST(JobHosts, NumbersThatDivideTheBatchAreTried) {
  v1::JobSpec spec = Spec(2, 8);
  spec.set_global_batch(15);
  spec.set_framework("weft-train-ddp");
  EXPECT_THAT(HostsOf(Give(spec, View()).value()), SizeIs(AnyOf(3, 5)));
}

TEST(JobHosts, AStrategyOfOnesOwnSaysTheirNumber) {
  v1::JobSpec spec = Spec(2, 8);
  planner::Strategy strategy;
  strategy.dp = 3;
  spec.set_global_batch(6);
  *spec.mutable_given_strategy() = proto::ToGivenProto(strategy, "a test");
  EXPECT_THAT(HostsOf(Give(spec, View()).value()), SizeIs(3));
}

TEST(JobHosts, HaveAPlanAlsoWhereTimeIsUp) {
  std::stop_source ended;
  ended.request_stop();
  const Result<PlannedJob> late = GiveHosts(Spec(2, 8), View(), DefaultConfig().planner, ended.get_token());
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message(), HasSubstr("time was up before a number of hosts was planned"));
}

TEST(JobHosts, ThePlanIsForTheHostsThatWereGiven) {
  const Result<PlannedJob> planned = PlanJob(Spec(4, 4), View(), DefaultConfig().planner);
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_THAT(planned->plan.rank_hosts(), SizeIs(4));
  EXPECT_EQ(planned->spec.hosts_size(), 4);
  EXPECT_EQ(planned->spec.min_gpus(), 0) << "or it would be placed again when advice is asked for";
  EXPECT_EQ(planned->plan.environment().at("NCCL_NET"), "Weft");
}

}  // namespace
}  // namespace weft::controller

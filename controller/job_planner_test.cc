#include "controller/job_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/config.h"

namespace weft::controller {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSmallGpt2[] =
    R"({"model_type":"gpt2","n_layer":2,"n_embd":64,"n_head":2,"vocab_size":256,"n_positions":128})";

v1::JobSpec Spec() {
  v1::JobSpec spec;
  spec.set_job_id("7");
  spec.set_model_config_json(kSmallGpt2);
  spec.set_global_batch(8);
  spec.set_sequence(64);
  spec.set_precision("fp32");
  for (const char* host : {"h1", "h3", "h2", "h4"}) spec.add_hosts(host);
  return spec;
}

PlacementView View() {
  PlacementView view;
  view.connected = {"h1", "h2", "h3", "h4"};
  view.leaf = {{"h1", "leaf1"}, {"h2", "leaf1"}, {"h3", "leaf2"}, {"h4", "leaf2"}};
  return view;
}

TEST(JobPlanner, PlansStrategyRanksAndLaunch) {
  const auto planned = PlanJob(Spec(), View(), DefaultConfig().planner);
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_THAT(planned->errors, ElementsAre());
  const v1::JobPlan& plan = planned->plan;
  EXPECT_EQ(plan.strategy().dp(), 4);
  EXPECT_GT(plan.predicted().iteration_s(), 0);
  EXPECT_LE(plan.lower_bound_s(), plan.predicted().iteration_s());
  EXPECT_THAT(plan.rank_hosts(), ElementsAre("h1", "h2", "h3", "h4"));
  EXPECT_EQ(plan.environment().at("NCCL_NET_PLUGIN"), "weft");
  EXPECT_EQ(plan.environment().at("NCCL_NET"), "Weft");
  EXPECT_EQ(plan.environment().at("WEFT_JOB_ID"), "7");
  ASSERT_EQ(plan.arguments_size(), 2);
  EXPECT_EQ(plan.arguments(0), "--bucket");
}

// What was timed is what the plan computes for; bucket and bound come from the search of all programs.
TEST(JobPlanner, TimedComputeIsThePlans) {
  v1::JobSpec spec = Spec();
  spec.set_measured_compute_s(0.5);
  const v1::JobPlan plan = PlanJob(spec, View(), DefaultConfig().planner)->plan;
  EXPECT_NEAR(plan.predicted().iteration_s() - plan.predicted().exposed_communication_s(), 0.5, 0.005);
  // 2 layers of 12 · 64² and 13 · 64, embeddings of 256 and 128, a norm: 4 bytes each.
  EXPECT_EQ(plan.predicted().gradient_bytes(), 4 * (2 * (12 * 64 * 64 + 13 * 64) + (256 + 128) * 64 + 2 * 64));
  EXPECT_EQ(plan.strategy().bucket_bytes(), plan.predicted().gradient_bytes()) << "less than the least bucket";
  EXPECT_THAT(plan.why(), Contains(HasSubstr("runs on: weft-train without a plan 0.1")));
}

TEST(JobPlanner, ArgumentsAreThoseOfTheNamedProgram) {
  v1::JobSpec spec = Spec();
  spec.set_framework("megatron");
  auto planned = PlanJob(spec, View(), DefaultConfig().planner);
  ASSERT_TRUE(planned.has_value());
  EXPECT_THAT(planned->plan.arguments(), Contains("--tensor-model-parallel-size"));
  EXPECT_THAT(planned->plan.arguments(), Not(Contains("--bucket")));
  EXPECT_THAT(planned->plan.why(), Not(Contains(HasSubstr("is not known"))));
  spec.set_framework("abacus");
  planned = PlanJob(spec, View(), DefaultConfig().planner);
  ASSERT_TRUE(planned.has_value());
  EXPECT_EQ(planned->plan.arguments_size(), 0);
  EXPECT_THAT(planned->plan.why(), Contains(HasSubstr("framework \"abacus\" is not known, expected weft-train")));
}

TEST(JobPlanner, NetIsForcedOnlyWhereEveryHostHasAnAgent) {
  PlacementView view = View();
  view.connected.erase("h3");
  const auto planned = PlanJob(Spec(), view, DefaultConfig().planner);
  ASSERT_TRUE(planned.has_value());
  EXPECT_FALSE(planned->plan.environment().contains("NCCL_NET"));
  EXPECT_THAT(planned->plan.why(), Contains(HasSubstr("no agent on h3")));
}

TEST(JobPlanner, JobWithoutAUsableModelIsStillRouted) {
  v1::JobSpec spec = Spec();
  spec.set_model_config_json("{");
  const auto planned = PlanJob(spec, View(), DefaultConfig().planner);
  ASSERT_TRUE(planned.has_value());
  ASSERT_EQ(planned->errors.size(), 1u);
  EXPECT_THAT(planned->errors[0], HasSubstr("model_config_json"));
  EXPECT_FALSE(planned->plan.has_strategy());
  EXPECT_EQ(planned->plan.rank_hosts_size(), 4);
  spec.clear_model_config_json();
  EXPECT_THAT(PlanJob(spec, View(), DefaultConfig().planner)->errors, ElementsAre());
}

TEST(JobPlanner, SeveralRanksPerHostStayTogether) {
  v1::JobSpec spec = Spec();
  spec.clear_model_config_json();
  spec.set_ranks_per_host(2);
  const auto planned = PlanJob(spec, View(), DefaultConfig().planner);
  ASSERT_TRUE(planned.has_value());
  EXPECT_THAT(planned->plan.rank_hosts(), ElementsAre("h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"));
}

TEST(JobPlanner, AnOrderThatIsNotTheGivenOneIsHandedToTheHooks) {
  const auto ordered = PlanJob(Spec(), View(), DefaultConfig().planner);
  ASSERT_TRUE(ordered.has_value());
  EXPECT_EQ(ordered->plan.environment().at("WEFT_HOST_ORDER"), "h1,h2,h3,h4");
  PlacementView unknown = View();
  unknown.leaf.clear();
  const auto as_given = PlanJob(Spec(), unknown, DefaultConfig().planner);
  ASSERT_TRUE(as_given.has_value());
  EXPECT_FALSE(as_given->plan.environment().contains("WEFT_HOST_ORDER"));
}

TEST(JobPlanner, NonsenseIsRefusedByName) {
  const auto expect = [](const v1::JobSpec& spec, const char* piece) {
    const auto planned = PlanJob(spec, {}, DefaultConfig().planner);
    ASSERT_FALSE(planned.has_value()) << piece;
    EXPECT_EQ(planned.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(planned.error().message(), HasSubstr(piece));
  };
  v1::JobSpec spec = Spec();
  spec.clear_job_id();
  expect(spec, "job_id");
  spec = Spec();
  spec.add_hosts("h1");
  expect(spec, "\"h1\" is empty, named twice or longer");
  spec = Spec();
  spec.set_gpus(-1);
  expect(spec, "gpus: -1");
  spec = Spec();
  spec.set_ranks_per_host(1'000'000);
  expect(spec, "ranks_per_host");
  spec = Spec();
  for (int i = 0; i < kMostJobHosts; ++i) spec.add_hosts("x" + std::to_string(i));
  expect(spec, "job \"7\": hosts: 65540, expected at most 65536");
  spec = Spec();
  spec.set_ranks_per_host(1024);
  for (int i = 0; i < 300; ++i) spec.add_hosts("x" + std::to_string(i));
  expect(spec, "hosts x ranks_per_host: 311296, expected at most 262144");
  spec = Spec();
  spec.set_model_config_json(std::string(kMostModelBytes + 1, ' '));
  expect(spec, "model_config_json: bytes: 1048577, expected at most 1048576");
  spec = Spec();
  spec.add_hosts(std::string(256, 'h'));
  expect(spec, "is empty, named twice or longer than 255 characters");
  spec = Spec();
  spec.set_reshard(true);
  spec.set_framework("megatron");
  expect(spec, "reshard with framework \"megatron\", expected weft-train");
  spec.set_framework("weft-train");
  spec.mutable_given_strategy()->set_source("JOB.yaml");
  expect(spec, "reshard beside a given strategy or allow, expected one of them");
}

}  // namespace
}  // namespace weft::controller

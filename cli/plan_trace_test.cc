#include "cli/plan_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/hf_config.h"

namespace weft::cli {
namespace {

using nlohmann::json;

// weft-train's plans had no timeline, and were refused. Of 16 GPUs eight work.
TEST(PlanTrace, WeftTrainHasOneEvenWhereGpusIdle) {
  const planner::JobSpec job{.name = "job", .model = formats::ResolveHfModel("gpt2")->model, .global_batch = 24, .sequence = 1024,
                             .gpus = 16};
  const planner::ClusterSpec cluster = planner::FindClusterPreset("dgx-a100", 2).value();
  const planner::JobPlan plan =
      planner::Plan(job, cluster, {.framework = planner::Framework::kWeftTrain})->plans.at(0);
  ASSERT_EQ(plan.strategy.dp, 8);
  const Result<std::string> text = PlanTraceText(job, cluster, plan, planner::kDefaultRisk);
  ASSERT_TRUE(text) << text.error().message();
  const json trace = json::parse(*text);
  double end = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_NEAR(end / (plan.predicted.iteration.count() * 1e6), 1, 1e-4);
}

TEST(PlanTrace, GroupsThatDoDifferentThingsHaveNone) {
  planner::JobPlan plan;
  plan.groups.resize(2);
  const auto refused = PlanTraceText({}, {}, plan, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace weft::cli

#include "cli/plan_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/hf_config.h"
#include "planner/workload/model_presets.h"

namespace weft::cli {
namespace {

using nlohmann::json;

/// The counters of a trace, by stage.
std::map<int, std::vector<std::pair<double, int64_t>>> MemoryOf(const std::string& trace) {
  std::map<int, std::vector<std::pair<double, int64_t>>> held;
  const json root = json::parse(trace);
  for (const json& event : root.at("traceEvents")) {
    if (event.at("ph") != "C") continue;
    EXPECT_EQ(event["name"], "memory");
    held[event["pid"].get<int>()].emplace_back(event["ts"].get<double>(), event["args"]["bytes"].get<int64_t>());
  }
  return held;
}

// Memory over time begins and ends with what is held all the time, never goes back in time, and at its peak is what the plan says of
// the fullest stage.
TEST(PlanTraceText, CountsEachStagesMemory) {
  planner::JobSpec job{.name = "j", .model = planner::FindModelPreset("gpt2").value(), .global_batch = 32, .sequence = 1024,
                       .precision = planner::Precision::kBf16, .gpus = 8};
  const planner::ClusterSpec cluster = planner::FindClusterPreset("dgx-a100", 1).value();
  for (const char* fix : {"pp=4,schedule=1f1b", "pp=4,schedule=zb-h1", "pp=2,vpp=2,schedule=interleaved,recompute=full",
                          "pp=2,vpp=2,schedule=zb-v", "sharding=osdp"}) {
    SCOPED_TRACE(fix);
    const planner::PlanAnswer answer = planner::Plan(job, cluster, {.fix = planner::ParseFixed(fix).value()}).value();
    ASSERT_FALSE(answer.plans.empty());
    const planner::JobPlan& plan = answer.plans.front();
    const Result<std::string> trace = PlanTraceText(job, cluster, plan, planner::kDefaultRisk);
    ASSERT_TRUE(trace) << trace.error().message();
    const auto held = MemoryOf(*trace);
    ASSERT_EQ(static_cast<int64_t>(held.size()), plan.strategy.pp);
    int64_t most = 0;
    for (const auto& [stage, counts] : held) {
      EXPECT_EQ(counts.front().first, 0);
      EXPECT_EQ(counts.front().second, counts.back().second) << "stage " << stage;
      double before = 0;
      for (const auto& [at, bytes] : counts) {
        EXPECT_GE(at, before);
        before = at;
        most = std::max(most, bytes);
      }
    }
    EXPECT_EQ(most, plan.predicted.memory.total().count());
  }
}

// weft-train's plans had no timeline, and were refused. Of 16 GPUs eight work.
TEST(PlanTrace, WeftTrainHasOneEvenWhereGpusIdle) {
  const planner::JobSpec job{.name = "job", .model = formats::ResolveHfModel("gpt2")->model, .global_batch = 24, .sequence = 1024,
                             .gpus = 16};
  const planner::ClusterSpec cluster = planner::FindClusterPreset("dgx-a100", 2).value();
  const planner::JobPlan plan =
      planner::Plan(job, cluster, {.framework = planner::Framework::kWeftTrainDdp})->plans.at(0);
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

// Who sends how much to whom, against what VolumesOf() says that each rank sends.
#include "planner/tasks/program_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/program/testing/small_models.h"
#include "planner/parallelism/strategy.h"
#include "planner/parallelism/variables.h"

namespace weft::planner::inline parallelism {
namespace {

/// What each rank sends in a step, by the flows of all its communications.
std::map<int32_t, double> SentByFlows(const StepProgram& program) {
  std::map<int32_t, double> sent;
  const ProgramCosts costs = {.compute = [](int32_t, int32_t) { return TaskCost(); },
                              .communicate = [&](const GroupCall& call) {
                                const std::vector<RankFlow> flows = FlowsOf(program, call).value();
                                for (const RankFlow& flow : flows) {
                                  EXPECT_NE(flow.from, flow.to);
                                  sent[flow.from] += flow.bytes;
                                }
                                return TaskCost();
                              }};
  TaskGraph graph;
  std::vector<PortUse> uses;
  EXPECT_TRUE(AddProgram(program, costs, {.steps = 1}, &graph, &uses));
  return sent;
}

TEST(FlowsOf, SendWhatTheVolumesSay) {
  const std::pair<ModelSpec, Strategy> cases[] = {
      {SmallGpt(), {.dp = 4}},
      {SmallGpt(), {.dp = 2, .pp = 2}},
      {SmallGpt(), {.dp = 2, .tp = 2, .zero_stage = 3}},
      {SmallGpt(), {.dp = 2, .tp = 2, .sequence_parallel = true}},
      {SmallMixtral(), {.dp = 4, .ep = 2}},
      {SmallMixtral(), {.dp = 4, .ep = 4}},
      {SmallCnn(), {.dp = 2, .tp = 2}},
  };
  for (const auto& [model, strategy] : cases) {
    SCOPED_TRACE(fmt::format("{} of {}", DescribeStrategy(strategy), model.name));
    JobSpec job{.name = "j", .model = model, .global_batch = 8, .sequence = 32, .precision = Precision::kFp32};
    if (model.IsCnn()) job.sequence = 1;
    job.gpus = GpuCount(strategy);
    const StepProgram program = ExpandProgram(job, strategy, ElementType::kFloat32).value();
    const std::map<int32_t, double> sent = SentByFlows(program);
    // VolumesOf() has the mean over a group where its ranks send unequally, so that all ranks are added up.
    double by_flows = 0, by_volumes = 0;
    for (const auto& [rank, bytes] : sent) by_flows += bytes;
    for (int64_t rank = 0; rank < std::ssize(program.ranks); ++rank) {
      for (const ProgramVolume& volume : VolumesOf(program, rank)) by_volumes += volume.sent;
    }
    EXPECT_GT(by_flows, 0);
    EXPECT_NEAR(by_flows, by_volumes, 1e-9 * by_volumes);
  }
}

// Of four ranks in a ring each sends to the next alone; of an all-to-all each to all others alike.
TEST(FlowsOf, GoWhereTheScheduleSendsThem) {
  JobSpec job{.name = "j", .model = SmallMixtral(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 4};
  const StepProgram program = ExpandProgram(job, {.dp = 4, .ep = 4}, ElementType::kFloat32).value();
  int rings = 0, exchanges = 0;
  const ProgramCosts costs = {.compute = [](int32_t, int32_t) { return TaskCost(); },
                              .communicate = [&](const GroupCall& call) {
                                const std::vector<RankFlow> flows = FlowsOf(program, call).value();
                                const StepAction action = call.members.front().second->action;
                                if (action == StepAction::kAllToAll) {
                                  EXPECT_EQ(flows.size(), 12u);
                                  for (const RankFlow& flow : flows) EXPECT_EQ(flow.bytes, flows.front().bytes);
                                  ++exchanges;
                                } else if (action == StepAction::kAllReduce && call.members.size() == 4) {
                                  EXPECT_EQ(flows.size(), 4u);
                                  for (const RankFlow& flow : flows) EXPECT_EQ(flow.to, (flow.from + 1) % 4);
                                  ++rings;
                                }
                                return TaskCost();
                              }};
  TaskGraph graph;
  std::vector<PortUse> uses;
  ASSERT_TRUE(AddProgram(program, costs, {.steps = 1}, &graph, &uses));
  EXPECT_GT(rings, 0);
  EXPECT_GT(exchanges, 0);
}

}  // namespace
}  // namespace weft::planner::parallelism

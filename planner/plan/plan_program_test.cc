#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/program/testing/small_models.h"
#include "planner/planner.h"

namespace weft::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlanProgram : public ::testing::Test {
 protected:
  Result<StepProgram> Program(const std::vector<GroupShare>& groups) const {
    JobPlan plan;
    plan.strategy = groups.front().strategy;
    plan.groups = groups;
    return ProgramOf(job_, cluster_, plan, ElementType::kFloat32);
  }

  const JobSpec job_{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32};
  const ClusterSpec cluster_ = FindClusterPreset("dgx-a100", 1).value();
};

// Two replicas in each group: six sequences are three for each, two are one. Sums within the groups first.
TEST_F(PlanProgram, GroupsOfMachinesHaveUnequalShares) {
  const StepProgram program = Program({{.name = "new", .sequences = 6, .layers = {}, .strategy = {.dp = 2}, .memory = {}},
                                       {.name = "old", .sequences = 2, .layers = {}, .strategy = {.dp = 2}, .memory = {}}})
                                  .value();
  EXPECT_THAT(program.shares, ElementsAre(3, 3, 1, 1));
  EXPECT_EQ(program.communicators.front().sums, (AlgorithmSpec{Algorithm::kHierarchical, 2}));
  EXPECT_THAT(program.strategy, HasSubstr("shares=6+2"));
}

// Ranks of a group follow one another, so that they lie on its machines.
TEST_F(PlanProgram, GroupsOfUnequalSizeSumByARing) {
  const Strategy two{.dp = 2, .pp = 2}, one{.dp = 1, .pp = 2};
  const StepProgram program = Program({{.name = "new", .sequences = 6, .layers = {}, .strategy = two, .memory = {}},
                                       {.name = "old", .sequences = 2, .layers = {}, .strategy = one, .memory = {}}})
                                  .value();
  EXPECT_THAT(program.shares, ElementsAre(3, 3, 2));
  for (const ProgramCommunicator& communicator : program.communicators) EXPECT_EQ(communicator.sums, AlgorithmSpec());
  std::vector<int32_t> replicas;
  for (const RankPlace& place : program.ranks) replicas.push_back(place.replica);
  EXPECT_THAT(replicas, ElementsAre(0, 0, 1, 1, 2, 2));
}

TEST_F(PlanProgram, GroupsThatDifferInMoreHaveNone) {
  EXPECT_THAT(Program({{.name = "new", .sequences = 6, .layers = {}, .strategy = {.tp = 2}, .memory = {}},
                       {.name = "old", .sequences = 2, .layers = {}, .strategy = {.dp = 2}, .memory = {}}})
                  .error()
                  .message(),
              HasSubstr("expected groups that differ in their replicas alone"));
}

// Both groups' stages are those of one pipeline, and say so of each group.
TEST_F(PlanProgram, OnePipelineGoesThroughAllGroups) {
  const Strategy s{.dp = 2, .pp = 3};
  const StepProgram program = Program({{.name = "new", .sequences = 8, .layers = {2, 1}, .strategy = s, .memory = {}},
                                       {.name = "old", .sequences = 8, .layers = {1}, .strategy = s, .memory = {}}})
                                  .value();
  EXPECT_THAT(program.strategy, HasSubstr("layers=2+1+1"));
  EXPECT_TRUE(program.shares.empty());
  std::vector<int32_t> stages;
  for (const RankPlace& place : program.ranks) stages.push_back(place.stage);
  EXPECT_THAT(stages, ElementsAre(0, 0, 1, 1, 2, 2));
}

}  // namespace
}  // namespace weft::planner

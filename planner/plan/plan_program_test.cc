#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/fabric/device_spec.h"
#include "planner/parallelism/program/testing/small_models.h"
#include "planner/parallelism/variables.h"
#include "planner/planner.h"
#include "planner/tasks/program_memory.h"

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

/// What plan and program say that ranks hold at once, for two replicas of a model whose units are larger than its activations.
class PlanMemory : public ::testing::Test {
 protected:
  PlanMemory() {
    job_.model = SmallLlama();
    job_.model.layers = 8;
    job_.model.hidden = job_.model.heads * (job_.model.head_dim = 16);
    job_.model.ffn_hidden = 320;
    cluster_.nodes = 2;
    cluster_.gpus_per_node = 1;
    cluster_.device = FindDevice("cpu").value();
  }

  void Expect(const std::string& fixed, Bytes memory) {
    cluster_.device.memory = memory;
    const PlanOptions options{.fix = ParseFixed("dp=2,micro_batch=1,recompute=none,bucket_bytes=1MiB," + fixed).value(), .framework = Framework::kWeftTrain};
    const auto answer = Plan(job_, cluster_, options);
    ASSERT_TRUE(answer && !answer->plans.empty()) << fixed;
    const JobPlan& plan = answer->plans.front();
    const StepProgram program = ProgramOf(job_, cluster_, plan, ElementType::kFloat32).value();
    const double planned = static_cast<double>(plan.predicted.memory.total().count());
    const Bytes peak = std::max(PeakMemoryOf(program, job_.model, 0), PeakMemoryOf(program, job_.model, 1));
    EXPECT_NEAR(planned / static_cast<double>(peak.count()), 1, 0.03) << fixed << ": planned " << planned << ", " << peak.count();
    EXPECT_LE(peak, memory) << fixed;
  }

  JobSpec job_{.name = "j", .global_batch = 8, .sequence = 64, .precision = Precision::kFp32};
  ClusterSpec cluster_ = FindClusterPreset("dgx-a100", 1).value();
};

// Whole gradients of two units at once, whether their parameters are gathered, kept, or never cut.
TEST_F(PlanMemory, OfZeroStagesIsTheProgramsOwn) {
  for (const char* zero : {"zero_stage=0", "zero_stage=1", "zero_stage=2", "zero_stage=3,keep_after_forward=true",
                           "zero_stage=3,keep_after_forward=false"}) {
    Expect(std::string("sharding=uniform,") + zero, Bytes(64 << 20));
  }
}

TEST_F(PlanMemory, OfDecisionsPerOperatorIsWithinTheLimit) {
  for (const int64_t mebibytes : {18, 20, 22, 24, 26}) Expect("sharding=osdp,zero_stage=3", Bytes(mebibytes << 20));
}

}  // namespace
}  // namespace weft::planner

// Strategies that users give to `weft submit`, and what the online commands call jobs that have one, or none.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/online.h"
#include "cli/testing/fake_controller.h"
#include "common/exit_code.h"
#include "proto/operation_codec.h"

namespace weft::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Call;
using testing::FakeController;
using testing::Outcome;

constexpr char kJob[] = "version: 1\nname: own\nmodel: llama3-70b\nglobal_batch: 128\nsequence: 4096\ngpus: 32\n"
                        "framework: megatron\n";
constexpr char kPlans[] = R"({"plans": [{"strategy": {"tp": 8, "pp": 4}}, {"strategy": {"tp": 4, "pp": 8}}]})";

class OnlinePlan : public ::testing::Test {
 protected:
  OnlinePlan() : folder_(::testing::TempDir() + "/weft_online_plan") {
    std::filesystem::create_directories(folder_);
    Write("plan.json", kPlans);
  }
  ~OnlinePlan() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  /// "tp pp" of what was submitted.
  static std::string Submitted(const FakeController& controller) {
    std::string text;
    for (const v1::StrategyValue& value : controller.submitted.given_strategy().values()) {
      if (value.name() == "tp" || value.name() == "pp") text += value.value() + " ";
    }
    return text;
  }
  static void Answer(FakeController& controller) {
    controller.plan.set_origin("given");
    controller.plan.mutable_strategy()->set_text("dp=1 tp=8 pp=4 micro_batch=1");
    v1::Prediction& predicted = *controller.plan.mutable_predicted();
    predicted.set_iteration_s(12.5);
    predicted.set_parameter_bytes(int64_t{60} << 30);
    predicted.set_buffer_bytes(int64_t{2} << 30);
    predicted.set_usable_bytes(int64_t{75} << 30);
    controller.plan.add_why("not searched: no bound and no runner-up");
  }

  std::string folder_;
};

TEST_F(OnlinePlan, ComesFromTheJobsFileOrFromTheCommandLine) {
  FakeController controller;
  Answer(controller);
  OnlineOptions options = controller.Options(Write("job.yaml", std::string(kJob) + "strategy: {tp: 2, pp: 16}\n"));
  EXPECT_EQ(Call(RunSubmit, options).status, kExitDone);
  EXPECT_EQ(Submitted(controller), "2 16 ");
  EXPECT_EQ(controller.submitted.given_strategy().source(), "job.yaml, key strategy");
  EXPECT_EQ(controller.submitted.framework(), "megatron");
  options.job = Write("job.yaml", std::string(kJob) + "plan: plan.json\nplan_index: 1\n");
  EXPECT_EQ(Call(RunSubmit, options).status, kExitDone);
  EXPECT_EQ(Submitted(controller), "4 8 ");
  options.plan = folder_ + "/plan.json";
  const Outcome outcome = Call(RunSubmit, options);
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  EXPECT_EQ(Submitted(controller), "8 4 ");
  EXPECT_EQ(controller.submitted.given_strategy().source(), "plan.json, plan 0");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("your own strategy: dp=1 tp=8 pp=4 micro_batch=1: predicted 12.5 s per iteration alone"),
                                 HasSubstr("memory 62.0 GiB on the fullest GPU of 75.0 GiB: fits"), Not(HasSubstr("bound 0"))));
}

TEST_F(OnlinePlan, BadFilesAreOneLineAndNothingIsSubmitted) {
  FakeController controller;
  OnlineOptions options = controller.Options(Write("job.yaml", kJob));
  options.plan = Write("bad.json", R"({"plans": [{"strategy": {"tp": "eight"}}]})");
  const Outcome bad = Call(RunSubmit, options);
  EXPECT_EQ(bad.status, kExitUsage);
  EXPECT_EQ(bad.err, fmt::format("weft: {}: key \"plans[0].strategy.tp\": value \"eight\", expected a number of at least 1\n",
                                 options.plan));
  options.plan = folder_ + "/plan.json";
  options.plan_index = 2;
  EXPECT_THAT(Call(RunSubmit, options).err, HasSubstr("plan 2: the file has 2, expected 0 to 1"));
  options.plan.clear();
  EXPECT_THAT(Call(RunSubmit, options).err, HasSubstr("--plan-index 2: without --plan"));
  EXPECT_EQ(controller.submitted.job_id(), "");
}

TEST_F(OnlinePlan, ControllerThatTookNoNoticeIsSaidToBeOlder) {
  FakeController controller;
  controller.plan.mutable_strategy()->set_dp(4);
  OnlineOptions options = controller.Options(Write("job.yaml", kJob));
  options.plan = folder_ + "/plan.json";
  const Outcome outcome = Call(RunSubmit, options);
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_THAT(outcome.err, HasSubstr("is submitted without its strategy"));
}

TEST_F(OnlinePlan, JobsSaysWhosePlanEachHas) {
  FakeController controller;
  const auto add = [&](const char* id, const char* state) -> v1::JobStatus& {
    v1::JobStatus& job = *controller.jobs.add_jobs();
    job.mutable_spec()->set_job_id(id);
    job.set_state(state);
    return job;
  };
  add("a", "running").mutable_plan()->mutable_strategy()->set_dp(2);
  v1::JobPlan& given = *add("b", "planned").mutable_plan();
  given.mutable_strategy()->set_dp(2);
  given.set_origin("given");
  add("c", "managed").mutable_plan()->add_why("x");
  add("d", "running");
  const Outcome outcome = Call(RunJobs, controller.Options());
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("a                running    plan weft "), HasSubstr("b                planned    plan own "),
                                 HasSubstr("c                managed    plan none "), HasSubstr("d                running    plan - ")));
}

TEST_F(OnlinePlan, ExplainSaysWhoGaveTheStrategyOrThatThereIsNone) {
  FakeController controller;
  Answer(controller);
  v1::JobStatus& job = *controller.explained.mutable_job();
  *job.mutable_plan() = controller.plan;
  job.mutable_spec()->mutable_given_strategy()->set_source("plan.json, plan 0");
  const std::string given = Call(RunExplain, controller.Options("known")).out;
  EXPECT_THAT(given, AllOf(HasSubstr("given by the job's user (plan.json, plan 0): dp=1 tp=8 pp=4"), HasSubstr("12.5 s"),
                           HasSubstr("of 75.0 GiB: fits"), HasSubstr("no bound and no runner-up"), Not(HasSubstr("not planned:"))));
  job.mutable_plan()->add_arguments("--num-layers");
  job.mutable_plan()->add_arguments("80");
  v1::LaunchFile& file = *job.mutable_plan()->add_files();
  file.set_name("deepspeed.json");
  file.set_content("{}\n");
  EXPECT_THAT(Call(RunExplain, controller.Options("known")).out,
              HasSubstr("  arguments --num-layers 80\n  file deepspeed.json: 3 bytes, see --output json\n"));
  job.clear_plan();
  EXPECT_THAT(Call(RunExplain, controller.Options("known")).out, HasSubstr("none: the job was not submitted, or without a model"));
  job.mutable_plan()->add_why("paths follow what is measured");
  job.add_planning_errors("no strategy fits: memory");
  EXPECT_THAT(Call(RunExplain, controller.Options("known")).out,
              HasSubstr("  none: managed, not planned\n  paths follow what is measured\n  not planned: no strategy fits: memory\n"));
}

// Two stages, 4 micro-batches. The first computes 0.5 s in each and sends 4 times 1 GiB and once 2 · 3/4 of 2 GiB; it holds 1 GiB all the
// time and 0.5 GiB of each of two micro-batches. The last sends nothing and holds one.
TEST_F(OnlinePlan, ExplainReadsTheIterationOffTheList) {
  FakeController controller;
  Answer(controller);
  planner::OperationList list{.stages = 2, .micro_batches = 4, .ranks_per_stage = 4};
  list.classes.resize(2);
  list.classes[0] = {.stages = {0},
                     .operations = {{.what = "layers", .seconds = 0.5},
                                    {.what = "activations", .kind = planner::OperationKind::kSendReceive, .group = {2, 4}, .bytes = 0x1p30},
                                    {.what = "gradients", .kind = planner::OperationKind::kAllReduce,
                                     .pass = planner::OperationPass::kOnce, .group = {4, 1}, .bytes = 0x2p30}},
                     .memory = {{.what = "parameters", .bytes = Bytes(1 << 30)},
                                {.what = "activations", .part = planner::HoldingPart::kActivations, .span = planner::HoldingSpan::kMicroBatch,
                                 .bytes = Bytes(1 << 29)}}};
  list.classes[1] = {.stages = {1}, .operations = {}, .memory = list.classes[0].memory};
  v1::JobPlan& plan = *controller.explained.mutable_job()->mutable_plan();
  plan = controller.plan;
  *plan.mutable_operations() = proto::ToProto(list);
  EXPECT_THAT(Call(RunExplain, controller.Options("known")).out,
              HasSubstr("one iteration of a GPU, as planned (4 micro-batches)\n"
                        "  stage 1: computes 2 s, sends 7 GiB; its process holds 2.0 GiB at most\n"
                        "  stage 2: computes 0 s, sends 0 GiB; its process holds 1.5 GiB at most\n"));
  plan.mutable_operations()->set_version(7);
  EXPECT_THAT(Call(RunExplain, controller.Options("known")).out, HasSubstr("  not readable: operations: version: 7, expected 1\n"));
}

}  // namespace
}  // namespace weft::cli

// The online commands against a controller that answers what the test wants, over real gRPC.
#include "cli/online.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/proto_json.h"
#include "cli/testing/fake_controller.h"
#include "common/exit_code.h"
#include "formats/job_yaml.h"

namespace weft::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Call;
using testing::FakeController;
using testing::Outcome;
using Json = nlohmann::json;

constexpr char kExample[] = WEFT_SOURCE_DIR "/cli/job.example.yaml";

TEST(Online, JobWithoutAStrategyIsManagedWithItsReasonsAndStatusZero) {
  FakeController controller;
  controller.plan.add_why("not planned: no strategy fits: memory: 90 GiB of 80 GiB");
  controller.plan.add_rank_hosts("h1");
  (*controller.plan.mutable_environment())["WEFT_JOB_ID"] = "pretrain";
  const Outcome outcome = Call(RunSubmit, controller.Options(kExample));
  EXPECT_EQ(outcome.status, kExitDone);
  EXPECT_EQ(outcome.out, "job pretrain is managed, not planned\n  not planned: no strategy fits: memory: 90 GiB of 80 GiB\n"
                         "environment of every rank:\n  WEFT_JOB_ID=pretrain\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(Online, PlannedJobIsItsPlanAndStatusZero) {
  FakeController controller;
  controller.plan.mutable_strategy()->set_dp(4);
  controller.plan.add_rank_hosts("h1");
  controller.plan.add_arguments("--micro-batch");
  controller.plan.add_arguments("8");
  (*controller.plan.mutable_environment())["WEFT_JOB_ID"] = "pretrain";
  (*controller.plan.mutable_environment())["WEFT_COLLECTIVES"] = std::string(1000, 'x');
  const Outcome outcome = Call(RunSubmit, controller.Options(kExample));
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("arguments: --micro-batch 8\nenvironment of every rank:\n"
                                     "  WEFT_COLLECTIVES: 1000 characters, see --output json\n  WEFT_JOB_ID=pretrain\n"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("dp=4  bucket"), HasSubstr("rank 0 on h1")));
  EXPECT_EQ(controller.submitted.job_id(), "pretrain");
  EXPECT_EQ(controller.submitted.hosts_size(), 4);
}

TEST(Online, ExplainGivesTheReasonsFromStrategyToPaths) {
  FakeController controller;
  v1::JobStatus& job = *controller.explained.mutable_job();
  job.mutable_plan()->mutable_strategy()->set_dp(4);
  job.mutable_plan()->add_why("dp=4: all GPUs of the job");
  v1::CollectiveChoice* choice = job.mutable_plan()->add_collectives();
  choice->set_collective("allreduce");
  choice->set_algorithm("tree");
  choice->set_why("tree 10 us, ring 20 us");
  v1::MultiJobDecision& joint = *job.mutable_joint();
  joint.set_model("measured");
  joint.set_classes(2);
  joint.set_dscp(26);
  joint.set_predicted_s(1.5);
  joint.set_bound_s(1.2);
  joint.set_gap(0.25);
  joint.add_why("class 0 of 2: before the jobs that it meets");
  joint.add_why("meets b (intensity 1, class 1) on leaf1->spine1");
  joint.add_rejected("time shifts: 0 of 2 jobs have a measured, stable period");
  v1::Decision* decision = controller.explained.add_decisions();
  decision->set_kind("replan");
  decision->set_reason("flow 1: 100 % over spine1 -> 100 % over spine2");
  v1::ClusterOutlook& cluster = *controller.explained.mutable_cluster();
  cluster.set_decided_s(3);
  cluster.set_gpu_use(0.7);
  cluster.set_gpu_use_bound(0.8);
  cluster.set_gap(0.125);
  const Outcome outcome = Call(RunExplain, controller.Options("known"));
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  for (const char* piece :
       {"dp=4  bucket", "dp=4: all GPUs of the job", "tree 10 us, ring 20 us", "priority 0 of 2 (0 is served first; DSCP 26), iterations predicted from what is measured",
        "1.5 s predicted with all jobs, 1.2 s bound, gap 25.0 %", "meets b (intensity 1, class 1) on leaf1->spine1",
        "rejected: time shifts: 0 of 2", "100 % over spine1 -> 100 % over spine2", "bound 80.0 %, gap 12.5 %"}) {
    EXPECT_THAT(outcome.out, HasSubstr(piece));
  }
  OnlineOptions json = controller.Options("known");
  json.json = true;
  const Json answer = Json::parse(Call(RunExplain, json).out);
  EXPECT_EQ(answer["job"]["joint"]["gap"], 0.25);
  EXPECT_EQ(answer["job"]["joint"]["rejected"][0], joint.rejected(0));
  EXPECT_EQ(answer["cluster"]["gpu_use_bound"], 0.8);
}

TEST(Online, ExplainOfAnUnknownJobIsOneClearError) {
  FakeController controller;
  const Outcome outcome = Call(RunExplain, controller.Options("nobody"));
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("no job \"nobody\""));
}

TEST(Online, ReleaseEndsAJobAndNamesOneThatDoesNotExist) {
  FakeController controller;
  const Outcome done = Call(RunRelease, controller.Options("known"));
  EXPECT_EQ(done.status, kExitDone) << done.err;
  EXPECT_EQ(done.out, "job known is released\n");
  EXPECT_THAT(controller.released, ::testing::ElementsAre("known"));
  const Outcome unknown = Call(RunRelease, controller.Options("nope"));
  EXPECT_EQ(unknown.status, kExitFailed);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("has no job \"nope\""), HasSubstr(controller.Options().controller.address)));
  EXPECT_EQ(controller.released.size(), 1u);
}

TEST(Online, CorrectCallForAnUnknownJobIsNotWrongUsage) {
  const FakeController controller;
  const Outcome outcome = Call(RunExplain, controller.Options("nope"));
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_EQ(outcome.err, fmt::format("weft: explain job at controller {}: no job \"nope\"\n",
                                     controller.Options().controller.address));
}

TEST(Online, AddressWithoutAPortIsWrongUsage) {
  for (const char* address : {"foo", "foo:", ":7070", "foo:bar", "foo:0", "foo:70707", "::1", "fe80::1:7070", ""}) {
    OnlineOptions options;
    options.controller.address = address;
    const Outcome outcome = Call(RunLinks, options);
    EXPECT_EQ(outcome.status, kExitUsage) << address;
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("\"{}\": expected HOST:PORT", address)));
  }
}

TEST(Online, ProxyOfTheEnvironmentIsNotAsked) {
  const FakeController controller;
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  setenv("grpc_proxy", "http://127.0.0.1:1", 1);
  const Outcome outcome = Call(RunJobs, controller.Options());
  unsetenv("http_proxy");
  unsetenv("grpc_proxy");
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  EXPECT_EQ(outcome.out, "no jobs\n");
}

TEST(Online, AnswerPastFourMebibytesIsTaken) {
  FakeController controller;
  for (int i = 0; i < 100; ++i) {
    v1::JobStatus* job = controller.jobs.add_jobs();
    job->mutable_spec()->set_job_id(fmt::format("job-{}", i));
    job->mutable_plan()->add_why(std::string(64 << 10, 'x'));
  }
  const Outcome outcome = Call(RunJobs, controller.Options());
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("job-99"));
}

TEST(Online, JsonNumbersAreNumbers) {
  FakeController controller;
  v1::JobStatus* job = controller.jobs.add_jobs();
  job->mutable_spec()->set_job_id("j");
  job->mutable_spec()->set_global_batch(int64_t{1} << 40);
  job->set_policy_epoch(7);
  job->set_iteration_s(0.25);
  (*job->mutable_plan()->mutable_environment())["B"] = "2";
  (*job->mutable_plan()->mutable_environment())["A"] = "1";
  OnlineOptions options = controller.Options();
  options.json = true;
  const Outcome outcome = Call(RunJobs, options);
  ASSERT_EQ(outcome.status, kExitDone) << outcome.err;
  const Json answer = Json::parse(outcome.out).at("jobs").at(0);
  EXPECT_EQ(answer.at("spec").at("global_batch"), int64_t{1} << 40);
  EXPECT_EQ(answer.at("policy_epoch"), 7);
  EXPECT_EQ(answer.at("iteration_s"), 0.25);
  EXPECT_EQ(answer.at("flows"), 0) << "fields at their default are there too";
  EXPECT_EQ(answer.at("plan").at("environment").dump(), R"({"A":"1","B":"2"})");
  EXPECT_FALSE(answer.at("plan").contains("strategy")) << "a message that is not set is not";
}

TEST(Online, JsonKnowsEnumerationsAndNumbersThatJsonLacks) {
  v1::SetModeRequest mode;
  mode.set_mode(v1::MODE_OBSERVE);
  EXPECT_EQ(Json::parse(ToJsonText(mode)).at("mode"), "MODE_OBSERVE");
  v1::LinkStatus link;
  link.set_used_bps(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(Json::parse(ToJsonText(link)).at("used_bps").is_null());
  link.set_from("\xff");
  EXPECT_EQ(Json::parse(ToJsonText(link)).at("from"), "\xEF\xBF\xBD");
  v1::HostSample sample;
  sample.add_closed(UINT64_MAX);
  EXPECT_EQ(Json::parse(ToJsonText(sample)).at("closed").at(0), UINT64_MAX);
}

TEST(Online, ExampleJobFileIsReadAndHasEveryKey) {
  const auto file = formats::ReadJobYaml(kExample);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->job.gpus, 4);
  EXPECT_EQ(file->framework, "torchrun");
  EXPECT_TRUE(file->job.measured_compute.has_value());
  EXPECT_THAT(file->model_config_json, HasSubstr("gpt2"));
  // The keys that stand for each other are comments there.
  std::ifstream stream(kExample);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  for (const auto& [key, other] : {std::pair("# strategy:", "strategy:"), std::pair("# plan:", "plan:")}) {
    std::string with = text;
    ASSERT_NE(with.find(key), with.npos) << key;
    with.replace(with.find(key), std::string_view(key).size(), other);
    const auto read = formats::ParseJobYaml(with, "job.yaml", "");
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_TRUE(read->strategy.has_value() || read->plan == "plan.json");
  }
}

}  // namespace
}  // namespace weft::cli

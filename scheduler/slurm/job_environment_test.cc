#include "scheduler/slurm/job_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace weft::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<HookJob> Read(const std::map<std::string, std::string>& variables) {
  return ReadHookJob([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// The names and forms are those that Slurm 22.05 gave to a PrologSlurmctld program.
TEST(HookJob, IsReadFromSlurmsVariables) {
  const auto job = Read({{"SLURM_JOB_ID", "17"},
                         {"SLURM_JOB_NAME", "train"},
                         {"SLURM_JOB_UID", "1017"},
                         {"SLURM_JOB_NODELIST", "n[1-2,04]"},
                         {"SPANK__SLURM_SPANK_OPTION_weft_weft_model", "config.json"},
                         {"SPANK__SLURM_SPANK_OPTION_weft_weft_batch", "8"},
                         {"SPANK__SLURM_SPANK_OPTION_weft_weft_seq", "128"},
                         {"SPANK__SLURM_SPANK_OPTION_weft_weft_plan", "/home/me/plan.json"},
                         {"SPANK__SLURM_SPANK_OPTION_weft_weft_framework", "megatron"},
                         {"SPANK_WEFT_STRATEGY", "tp=8,schedule=1f1b"},
                         {"SPANK_WEFT_MODEL_JSON", "{\n\"a\": 1}"}});
  ASSERT_TRUE(job.has_value()) << job.error().message();
  EXPECT_EQ(job->id, "17");
  EXPECT_EQ(job->name, "train");
  EXPECT_EQ(job->user, 1017u);
  EXPECT_THAT(job->hosts, ElementsAre("n1", "n2", "n04"));
  EXPECT_EQ(job->model_json, "{\n\"a\": 1}");
  EXPECT_EQ(job->batch, 8);
  EXPECT_EQ(job->sequence, 128);
  EXPECT_THAT(job->strategy, ElementsAre(testing::Pair("tp", "8"), testing::Pair("schedule", "1f1b")));
  EXPECT_EQ(job->plan, "plan.json");
  EXPECT_EQ(job->framework, "megatron");
}

TEST(HookJob, WithoutOptionsAsksForNothing) {
  const auto job = Read({{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "n1"}});
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->model_json, "");
  EXPECT_EQ(job->batch, 0);
  EXPECT_EQ(job->sequence, 0);
  EXPECT_TRUE(job->strategy.empty());
  EXPECT_EQ(job->framework, "");
}

TEST(HookJob, BadVariablesAreNamed) {
  const std::pair<std::map<std::string, std::string>, const char*> cases[] = {
      {{}, "SLURM_JOB_ID: not set"},
      {{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_UID", "root"}}, "SLURM_JOB_UID: \"root\", expected a user's number"},
      {{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1"}}, "SLURM_JOB_NODELIST: hostlist \"n[1\""},
      {{{"SLURM_JOB_ID", "1"}, {"SPANK__SLURM_SPANK_OPTION_weft_weft_batch", "x"}}, "--weft-batch=x"},
      {{{"SLURM_JOB_ID", "1"}, {"SPANK_WEFT_STRATEGY", "tp"}}, "strategy: \"tp\", expected NAME=VALUE"},
      {{{"SLURM_JOB_ID", "1"}, {"SPANK__SLURM_SPANK_OPTION_weft_weft_framework", "a b"}}, "--weft-framework=a b"},
  };
  for (const auto& [variables, message] : cases) {
    const auto job = Read(variables);
    ASSERT_FALSE(job.has_value()) << message;
    EXPECT_EQ(job.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(job.error().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace weft::slurm

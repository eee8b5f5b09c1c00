#include "scheduler/slurm/job_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace weft::slurm {
namespace {

using testing::HasSubstr;

class JobOptions : public testing::Test {
 protected:
  JobOptions() {
    char pattern[] = "/tmp/weft-slurm-test-XXXXXX";
    directory_ = ::mkdtemp(pattern);
  }
  ~JobOptions() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& text) const {
    const std::string path = directory_ + "/config.json";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string directory_;
};

TEST_F(JobOptions, CountsArePositiveWholeNumbers) {
  EXPECT_EQ(ParseCount(kBatchOption, "1").value(), 1);
  EXPECT_EQ(ParseCount(kBatchOption, "2048").value(), 2048);
  for (const char* text : {"", "0", "-3", "8x", "1.5", " 8", "99999999999999999999", "eight"}) {
    const auto count = ParseCount(kBatchOption, text);
    ASSERT_FALSE(count.has_value()) << text;
    EXPECT_EQ(count.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(count.error().message(),
              std::string("--weft-batch=") + text + ": expected a whole number of at least 1");
  }
}

TEST_F(JobOptions, ModelTextIsReturnedAsItIs) {
  const std::string text = "\n{\n \"model_type\": \"gpt2\"\n}\n";
  EXPECT_EQ(ReadModelFile(Write(text)).value(), text);
  const std::string largest = "{" + std::string(kMaxModelBytes - 2, ' ') + "}";
  EXPECT_EQ(ReadModelFile(Write(largest)).value(), largest);
}

TEST_F(JobOptions, MissingModelNamesOptionAndPath) {
  const auto text = ReadModelFile("/nonexistent/config.json");
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), Code::kNotFound);
  EXPECT_EQ(text.error().message(),
            "--weft-model=/nonexistent/config.json: read the model file: No such file or directory");
}

TEST_F(JobOptions, WhatIsNoJsonObjectIsRejected) {
  for (const std::string& text : {std::string(), std::string(" \n"), std::string("[1]"), std::string("model"),
                                  std::string("{\"a\": 1"), std::string("{\0}", 3)}) {
    const auto result = ReadModelFile(Write(text));
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr("not a JSON object, expected a Hugging Face config.json"));
  }
  const auto long_text = ReadModelFile(Write("{" + std::string(kMaxModelBytes, ' ') + "}"));
  ASSERT_FALSE(long_text.has_value());
  EXPECT_THAT(long_text.error().message(), HasSubstr("larger than 65536 bytes"));
}

TEST_F(JobOptions, StrategyOfThePlanIsAShortText) {
  const std::string path = Write(R"({"plans": [{"strategy": {"tp": 8, "recompute": "full", "sequence_parallel": true,
      "bucket_bytes": 26214400}, "why": ["x"]}, {"strategy": {"tp": 4}}]})");
  const std::string text = ReadPlanFile(path).value();
  EXPECT_EQ(text, "bucket_bytes=26214400B,recompute=full,sequence_parallel=true,tp=8");
  const StrategyValues values = ParseStrategyText(text).value();
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(values[3], (std::pair<std::string, std::string>("tp", "8")));
}

TEST_F(JobOptions, WhatIsNoPlanNamesOptionPathAndKey) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not a JSON object, expected what weft plan --output json prints"},
      {"{\"plans\": [", "not a JSON object"},
      {std::string(100'000, '['), "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{}", "key \"plans\": no plan in it"},
      {R"({"plans": []})", "key \"plans\": no plan in it"},
      {R"({"plans": [{}]})", "key \"plans[0].strategy\": not there"},
      {R"({"plans": [{"strategy": {"tp": [8]}}]})", "key \"plans[0].strategy.tp\": expected a name, and a word"},
      {R"({"plans": [{"strategy": {"tp": "8,pp=4"}}]})", "key \"plans[0].strategy.tp\": expected"},
      {"{\"plans\": [{\"strategy\": {\"t\\n\": 8}}]}", "key \"plans[0].strategy.t?\""},
      {R"({"plans": [{"strategy": {"tp": 8, "tp": 4}}]})", "key \"tp\": stands twice"},
      {R"({"plans": [{"strategy": {"tp": 8}, "groups": [{}]}]})", "a strategy for each group of machines"},
      {"{" + std::string(kMaxPlanBytes, ' ') + "}", "larger than 1048576 bytes"},
  };
  for (const auto& [text, message] : cases) {
    const auto result = ReadPlanFile(Write(text));
    ASSERT_FALSE(result.has_value()) << message;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), testing::AllOf(HasSubstr("--weft-plan=" + directory_), HasSubstr(message)));
  }
  EXPECT_EQ(ReadPlanFile("/nonexistent/plan.json").error().message(),
            "--weft-plan=/nonexistent/plan.json: read the plan: No such file or directory");
}

TEST_F(JobOptions, TextOfAStrategyComesFromAnEnvironment) {
  EXPECT_TRUE(ParseStrategyText("").value().empty());
  for (const std::string& text : {std::string("tp"), std::string("=8"), std::string("tp="), std::string("tp=8,,"),
                                  std::string("tp=8\n"), std::string("tp\0=8", 5), std::string(5000, 'a'),
                                  "tp=" + std::string(64, '8')}) {
    EXPECT_FALSE(ParseStrategyText(text).has_value()) << text;
  }
}

TEST_F(JobOptions, FrameworkIsAName) {
  EXPECT_EQ(ParseFrameworkName("megatron:0.19").value(), "megatron:0.19");
  for (const std::string& text : {std::string(), std::string("a b"), std::string("a\n"), std::string(64, 'a')}) {
    const auto name = ParseFrameworkName(text);
    ASSERT_FALSE(name.has_value()) << text;
    EXPECT_THAT(name.error().message(), HasSubstr("--weft-framework="));
  }
}

TEST_F(JobOptions, DirectoriesAndPipesAreRejectedWithoutBlocking) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(::system(("mkfifo " + pipe).c_str()), 0);
  for (const std::string& path : {directory_, pipe}) {
    const auto text = ReadModelFile(path);
    ASSERT_FALSE(text.has_value());
    EXPECT_THAT(text.error().message(), HasSubstr(path + ": expected a regular file"));
  }
}

}  // namespace
}  // namespace weft::slurm

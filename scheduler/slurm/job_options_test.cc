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

// Broken files of every kind: always a value that the planner can work on or one clear line, never a crash or an exception.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/cluster_yaml.h"
#include "formats/hf_config.h"
#include "formats/job_yaml.h"
#include "formats/testing/config_corpus.h"
#include "planner/workload/recompute.h"

namespace weft::formats {
namespace {

using testing::Mutated;
using testing::Noise;

/// One line that starts with the file, of printable characters and a length that a person reads.
void ExpectClear(const std::string& message, const std::string& text) {
  ASSERT_TRUE(message.starts_with("fuzz")) << message;
  ASSERT_LT(message.size(), 600u) << text;
  for (const char c : message) ASSERT_TRUE(c >= ' ' && c < 0x7f) << "in: " << message << "\nfrom: " << text;
}

void ExpectOneClearLine(const Error& error, const std::string& text) {
  ASSERT_EQ(error.code(), Code::kInvalidArgument) << error.message();
  ExpectClear(error.message(), text);
}

/// `head`, then `piece` over and over for about ten megabytes, then `tail`.
std::string Long(std::string_view head, std::string_view piece, std::string_view tail) {
  std::string text(head);
  while (text.size() < size_t{10} << 20) text += piece;
  text += tail;
  return text;
}

TEST(Mutations, OfModelConfigsGiveAModelOrOneClearLine) {
  Noise noise(1);
  int good = 0, bad = 0;
  for (int round = 0; round < 420; ++round) {
    for (const testing::ConfigSample& sample : testing::ModelConfigs()) {
      const std::string text = Mutated(sample.text, noise);
      const Result<HfModel> read = ParseHfModel(text, "fuzz");
      if (!read) {
        ++bad;
        ExpectOneClearLine(read.error(), text);
      } else {
        ++good;
        const planner::ModelSpec& model = read->model;
        ASSERT_GT(planner::ParameterCount(model), 0) << text;
        ASSERT_GE(planner::ParameterCount(model), planner::ActiveParameterCount(model)) << text;
        ASSERT_EQ(ParseHfConfig(WriteHfConfig(model), "written").value(), model) << text;
        for (const std::string& warning : read->warnings) ExpectClear(warning, text);
      }
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(good, 500);  // mutations that miss what matters
  EXPECT_GT(bad, 10'000);
}

TEST(Mutations, OfClusterFilesGiveAClusterOrOneClearLine) {
  Noise noise(2);
  int good = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = Mutated(round % 2 == 0 ? testing::kClusterFile : testing::kGroupsFile, noise);
    const Result<planner::ClusterSpec> cluster = ParseClusterYaml(text, "fuzz");
    if (!cluster) {
      ExpectOneClearLine(cluster.error(), text);
    } else {
      ++good;
      ASSERT_GT(cluster->TotalGpus(), 0) << text;
      ASSERT_GT(cluster->nic_rate.value(), 0) << text;
      ASSERT_GT(cluster->device.memory, cluster->device.reserved) << text;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(good, 20);
}

TEST(Mutations, OfJobFilesGiveAJobOrOneClearLine) {
  Noise noise(3);
  int good = 0;
  for (int round = 0; round < 2000; ++round) {
    // Every other model's name is a file that is not there.
    const std::string text = Mutated(testing::kJobFile, noise);
    const Result<JobFile> file = ParseJobYaml(text, "fuzz", "/nonexistent");
    if (file) {
      ++good;
      ASSERT_GT(file->job.global_batch, 0) << text;
    } else if (file.error().code() != Code::kNotFound) {
      ExpectOneClearLine(file.error(), text);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(good, 20);
}

TEST(Mutations, OfPlanFilesGiveAStrategyOrOneClearLine) {
  Noise noise(5);
  int good = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = Mutated(testing::kPlanFile, noise);
    const Result<planner::Strategy> strategy = ParsePlanJson(text, "fuzz", 0);
    if (strategy) {
      ++good;
      for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
        ASSERT_GE(variable.get(*strategy), variable.least) << text;
        ASSERT_LE(variable.get(*strategy), variable.most) << text;
      }
    } else {
      ExpectOneClearLine(strategy.error(), text);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(good, 20);
}

TEST(Mutations, TenMegabytesOfGarbageAreOneClearLine) {
  Noise noise(4);
  std::string random(size_t{10} << 20, ' ');
  for (char& c : random) c = static_cast<char>(noise.Below(256));
  const std::vector<std::string> garbage = {random,
                                            Long("{\"model_type\": \"", "a", "\"}"),
                                            Long("", "[", ""),
                                            Long("", "{\"model_type\":", ""),
                                            Long("{", "\"model_type\":\"gpt2\",", ""),
                                            Long("", std::string_view("\0", 1), "")};
  for (const std::string& text : garbage) {
    const Result<planner::ModelSpec> model = ParseHfConfig(text, "fuzz");
    ASSERT_FALSE(model);
    ExpectOneClearLine(model.error(), text.substr(0, 40));
  }
}

}  // namespace
}  // namespace weft::formats

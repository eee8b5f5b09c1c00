#include "formats/given_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "formats/job_yaml.h"
#include "formats/testing/config_corpus.h"

namespace weft::formats {
namespace {

using planner::DescribeStrategy;
using planner::Strategy;
using ::testing::HasSubstr;
using testing::Replaced;

constexpr const char* kJob = "version: 1\nname: j\nmodel: gpt2\nglobal_batch: 64\nsequence: 512\n";

template <typename T>
std::string Message(const Result<T>& result) {
  EXPECT_FALSE(result);
  if (result) return "";
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  return result.error().message();
}

TEST(GivenStrategy, PlanOfTheReportIsRead) {
  const Strategy strategy = ParsePlanJson(testing::kPlanFile, "plan.json", 0).value();
  EXPECT_EQ(DescribeStrategy(strategy),
            "dp=2 tp=8 pp=4 micro_batch=1 zero_stage=1 recompute=selective sequence_parallel=true");
  const std::string two = R"({"plans": [{"strategy": {"tp": 2}}, {"strategy": {"tp": 4, "bucket_bytes": 1000}}]})";
  const Strategy second = ParsePlanJson(two, "plan.json", 1).value();
  EXPECT_EQ(second.tp, 4);
  EXPECT_EQ(second.bucket_bytes, Bytes(1000));
}

TEST(GivenStrategy, SourceIsTheFilesNameAndThePlan) {
  const std::string path = ::testing::TempDir() + "/weft_plan_test.json";
  std::ofstream(path) << testing::kPlanFile;
  EXPECT_EQ(ReadPlanJson(path, 0).value().source, "weft_plan_test.json, plan 0");
  EXPECT_THAT(Message(ReadPlanJson(path, 1)), HasSubstr(path + ": plan 1: the file has 1, expected 0 to 0"));
  std::remove(path.c_str());
  EXPECT_EQ(ReadPlanJson(path, 0).error().code(), Code::kNotFound);
}

TEST(GivenStrategy, EachFaultOfAPlanNamesFileKeyValueAndExpectation) {
  const auto refused = [](const std::string& from, const std::string& to) {
    return Message(ParsePlanJson(Replaced(testing::kPlanFile, from, to), "p.json", 0));
  };
  EXPECT_EQ(refused("\"tp\": 8", "\"tp\": 0"), "p.json: key \"plans[0].strategy.tp\": value 0, expected a number of at least 1");
  EXPECT_THAT(refused("\"tp\": 8", "\"tp\": 8.5"), HasSubstr("strategy.tp\": value 8.5"));
  EXPECT_THAT(refused("\"tp\": 8", "\"tp\": [8]"), HasSubstr("strategy.tp\": value a JSON array"));
  EXPECT_THAT(refused("\"tp\": 8", "\"tp\": 18446744073709551615"), HasSubstr("value 18446744073709551615, expected"));
  EXPECT_THAT(refused("\"tp\"", "\"tq\""), HasSubstr("strategy.tq\": unknown, expected one of dp, tp, pp"));
  EXPECT_THAT(refused("\"1f1b\"", "\"2f2b\""), HasSubstr("strategy.schedule\": value \"2f2b\", expected gpipe, 1f1b"));
  EXPECT_THAT(refused("\"tp\": 8", "\"tp\": 8, \"tp\": 4"), HasSubstr("key \"tp\": stands twice"));
  EXPECT_THAT(refused("{\"strategy\"", "{\"groups\": [{}], \"strategy\""), HasSubstr("a strategy for each group of machines"));
  EXPECT_THAT(refused("\"strategy\"", "\"stratagem\""), HasSubstr("key \"plans[0].strategy\": missing"));
  EXPECT_THAT(Message(ParsePlanJson("{\"plans\": []}", "p.json", 0)), HasSubstr("none that fits"));
  EXPECT_THAT(Message(ParsePlanJson("{\"plans\": {}}", "p.json", 0)), HasSubstr("as weft plan --output json prints it"));
  EXPECT_THAT(Message(ParsePlanJson("{\"plans\": [1]}", "p.json", 0)), HasSubstr("plans[0]\": expected an object"));
  EXPECT_THAT(Message(ParsePlanJson("[]", "p.json", 0)), HasSubstr("expected an object"));
  EXPECT_THAT(Message(ParsePlanJson(std::string(kMostPlanBytes + 1, ' '), "p.json", 0)), HasSubstr("larger than 1 MiB"));
}

TEST(GivenStrategy, JobFileHasAMapOrAFile) {
  const JobFile map = ParseJobYaml(std::string(kJob) + "strategy: {tp: 8, dp: 2, recompute: full}\n", "a/job.yaml", "a").value();
  EXPECT_EQ(DescribeStrategy(StrategyOf(map).value()->strategy), "dp=2 tp=8 micro_batch=1 recompute=full");
  EXPECT_EQ(map.strategy->source, "job.yaml, key strategy");
  const JobFile file = ParseJobYaml(std::string(kJob) + "plan: p.json\nplan_index: 3\n", "a/job.yaml", "a").value();
  EXPECT_EQ(file.plan, "a/p.json");
  EXPECT_EQ(file.plan_index, 3);
  EXPECT_EQ(StrategyOf(file).error().code(), Code::kNotFound);
  EXPECT_FALSE(StrategyOf(ParseJobYaml(kJob, "job.yaml", "").value()).value().has_value());
}

TEST(GivenStrategy, EachFaultOfAJobFileNamesLineAndKey) {
  const std::pair<const char*, const char*> faults[] = {
      {"strategy: 8\n", "job.yaml:6: key \"strategy\": expected a map such as {tp: 8, pp: 4, dp: 2}"},
      {"strategy: {}\n", "job.yaml:6: key \"strategy\": expected a map"},
      {"strategy:\n  tp: 8\n  pp: none\n", "job.yaml:8: key \"strategy.pp\": value none, expected a number of at least 1"},
      {"strategy: {tp: [8]}\n", "key \"strategy.tp\": value that is no single word, expected"},
      {"strategy: {bucket_bytes: 1000}\n", "value 1000, expected an amount such as 25MiB"},
      {"strategy: {tp: 8}\nplan: p.json\n", "job.yaml:7: key \"plan\": stands beside \"strategy\""},
      {"plan_index: 1\n", "job.yaml:6: key \"plan_index\": without \"plan\""},
      {"plan: p.json\nplan_index: -1\n", "key \"plan_index\": value -1, expected an integer from 0 to 9999"},
      {"plan: [p.json]\n", "key \"plan\": expected a single value"},
  };
  for (const auto& [lines, message] : faults) {
    EXPECT_THAT(Message(ParseJobYaml(std::string(kJob) + lines, "job.yaml", "")), HasSubstr(message));
  }
}

}  // namespace
}  // namespace weft::formats

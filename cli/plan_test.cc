#include "cli/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/exit_code.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAreArray;

PlanArguments Gpt2() {
  return {.model = "gpt2", .cluster = "dgx-a100:2", .global_batch = 64, .sequence = 1024, .output = "json"};
}

/// Runs the command with its output caught.
struct Ran {
  int exit;
  std::string out, err;
};
Ran Run(const PlanArguments& arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int exit = RunPlan(arguments);
  std::fflush(nullptr);
  std::string out = testing::internal::GetCapturedStdout();
  return {exit, std::move(out), testing::internal::GetCapturedStderr()};
}

std::vector<std::string> Keys(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(RunPlan, PrintsTheContractsKeys) {
  PlanArguments arguments = Gpt2();
  arguments.top = 2;
  const Ran ran = Run(arguments);
  EXPECT_EQ(ran.exit, kExitDone);
  EXPECT_EQ(ran.err, "");
  const json root = json::parse(ran.out);
  ASSERT_EQ(root.at("plans").size(), 2u);
  const json& plan = root["plans"][0];
  for (const char* key : {"dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "zero_stage", "recompute",
                          "sequence_parallel", "schedule"}) {
    EXPECT_TRUE(plan.at("strategy").contains(key)) << key;
  }
  EXPECT_THAT(Keys(plan.at("predicted")),
              UnorderedElementsAreArray({"iteration_s", "tokens_per_s", "tflops_per_gpu", "mfu", "exposed_communication_s",
                                         "bubble_s", "memory_bytes"}));
  EXPECT_THAT(Keys(plan["predicted"].at("memory_bytes")),
              UnorderedElementsAreArray({"parameters", "gradients", "optimizer", "activations", "total"}));
  EXPECT_LE(plan.at("lower_bound_s").get<double>(), plan["predicted"]["iteration_s"].get<double>());
  EXPECT_TRUE(plan.contains("gap"));
  EXPECT_TRUE(plan.at("why").is_array());
  for (const char* key : {"strategies", "evaluated", "pruned", "seconds", "threads", "strategies_per_second"}) {
    EXPECT_TRUE(root.at("search").contains(key)) << key;
  }
}

TEST(RunPlan, PrintsATable) {
  PlanArguments arguments = Gpt2();
  arguments.output = "table";
  const Ran ran = Run(arguments);
  EXPECT_EQ(ran.exit, kExitDone);
  EXPECT_THAT(ran.out, HasSubstr("micro_batch"));
  EXPECT_THAT(ran.out, HasSubstr("why the first:\n  dp=16: all GPUs"));
}

TEST(RunPlan, NoPlanIsExitThreeWithTheReasons) {
  PlanArguments arguments = Gpt2();
  arguments.model = "llama3-70b";
  const Ran ran = Run(arguments);
  EXPECT_EQ(ran.exit, kExitInfeasible);
  EXPECT_THAT(ran.err, HasSubstr("no strategy fits"));
  EXPECT_THAT(ran.err, HasSubstr("of 78.0 GiB"));
  EXPECT_TRUE(json::parse(ran.out).at("plans").empty());
  EXPECT_FALSE(json::parse(ran.out).at("infeasible").empty());
}

TEST(RunPlan, BadInputIsExitTwoWithOneLine) {
  struct Fault {
    void (*make)(PlanArguments*);
    const char* message;
  };
  const Fault faults[] = {
      {[](PlanArguments* a) { a->model = "gpt99"; }, "model \"gpt99\": no such file"},
      {[](PlanArguments* a) { a->cluster = "dgx-a100"; }, "expected dgx-a100:N"},
      {[](PlanArguments* a) { a->precision = "fp8"; }, "precision \"fp8\", expected bf16 or fp32"},
      {[](PlanArguments* a) { a->global_batch = 0; }, "global_batch: 0"},
      {[](PlanArguments* a) { a->gpus = 17; }, "gpus: 17, expected at most the 16"},
      {[](PlanArguments* a) { a->fix = "dp"; }, "--fix \"dp\": expected NAME=VALUE"},
      {[](PlanArguments* a) { a->fix = "tp=2"; }, "fix tp: 2, expected 1"},
      {[](PlanArguments* a) { a->output = "xml"; }, "--output \"xml\", expected table or json"},
      {[](PlanArguments* a) { a->top = 0; }, "--top 0"},
  };
  for (const Fault& fault : faults) {
    PlanArguments arguments = Gpt2();
    fault.make(&arguments);
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.exit, kExitUsage) << fault.message;
    EXPECT_THAT(ran.err, HasSubstr(fault.message));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1);
    EXPECT_EQ(ran.out, "");
  }
}

TEST(ParseFix, ReadsNumbersNamesAndAmounts) {
  EXPECT_THAT(ParseFix("dp=8,recompute=full,bucket_bytes=25MiB").value(),
              ElementsAre(Pair("bucket_bytes", 25 << 20), Pair("dp", 8), Pair("recompute", 1)));
  EXPECT_TRUE(ParseFix("").value().empty());
  for (const char* bad : {"dp=", "dp=x", "=3", "recompute=1", "bucket_bytes=25", "dp=1,dp=2", ",", "dp=8 "}) {
    EXPECT_FALSE(ParseFix(bad)) << bad;
  }
}

}  // namespace
}  // namespace weft::cli

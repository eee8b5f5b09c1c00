#include "cli/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/exit_code.h"
#include "formats/cluster_yaml.h"
#include "formats/hf_config.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr const char* kScenario = R"(version: 1
name: small
duration: 4s
draws: 2
cluster: {fabric: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2, host_rate: 10Gbit/s, fabric_rate: 10Gbit/s,
          device: a100-80}
jobs:
  - {name: a, hosts: [h1, h3], compute: 100ms, bytes: 50MB}
  - {name: b, hosts: [h2, h4], compute: 80ms, bytes: 80MB}
)";

/// A folder for the files of one test, gone with it.
class RunSimulateTest : public ::testing::Test {
 protected:
  RunSimulateTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("weft_simulate_" + std::to_string(::getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~RunSimulateTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& text, const char* name = "s.yaml") const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string Path(const char* name) const { return (folder_ / name).string(); }
  static std::string ReadAll(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

struct Ran {
  int exit;
  std::string out, err;
};
Ran Call(const SimulateOptions& options) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int exit = RunSimulate(options);
  std::fflush(nullptr);
  std::string out = ::testing::internal::GetCapturedStdout();
  return {exit, std::move(out), ::testing::internal::GetCapturedStderr()};
}

std::vector<std::string> Keys(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

std::string With(std::string text, std::string_view old, std::string_view replacement) {
  return text.replace(text.find(old), old.size(), replacement);
}

TEST_F(RunSimulateTest, PrintsTheContractsKeys) {
  const Ran ran = Call({.scenario = Write(kScenario), .policies = {"ecmp"}, .output = "json"});
  ASSERT_EQ(ran.exit, kExitDone) << ran.err;
  EXPECT_EQ(ran.err, "");
  const json root = json::parse(ran.out);
  EXPECT_THAT(Keys(root), IsSupersetOf({"jobs", "links", "summary", "solver"}));
  ASSERT_EQ(root["jobs"].size(), 2u);
  EXPECT_THAT(Keys(root["jobs"][0]), IsSupersetOf({"name", "iteration_s", "alone_s", "bound_s"}));
  EXPECT_EQ(root["jobs"][0]["name"], "a");
  // 50 MB there and back over 10 Gbit/s: 40 ms after 100 ms.
  EXPECT_NEAR(root["jobs"][0]["alone_s"].get<double>(), 0.14, 1e-9);
  EXPECT_GE(root["jobs"][0]["iteration_s"].get<double>(), 0.14 - 1e-9);
  EXPECT_LE(root["jobs"][0]["bound_s"].get<double>(), 0.14 + 1e-9);
  ASSERT_FALSE(root["links"].empty());
  EXPECT_THAT(Keys(root["links"][0]), IsSupersetOf({"name", "utilisation"}));
  EXPECT_THAT(Keys(root["summary"]), IsSupersetOf({"mean_slowdown", "p99_slowdown", "gpu_utilisation", "bound_gap"}));
  EXPECT_THAT(Keys(root["solver"]), IsSupersetOf({"events", "seconds"}));
  EXPECT_GT(root["solver"]["events"].get<int64_t>(), 50);
}

TEST_F(RunSimulateTest, SameScenarioSameAnswer) {
  const SimulateOptions options{.scenario = Write(kScenario), .policies = {"weft"}};
  const Ran first = Call(options), second = Call(options);
  EXPECT_EQ(first.out, second.out);
  EXPECT_THAT(first.out, HasSubstr("what weft decided"));
}

TEST_F(RunSimulateTest, ComparesPoliciesInOneTable) {
  const std::string path = Write(kScenario);
  const Ran all = Call({.scenario = path, .policies = {"all"}});
  ASSERT_EQ(all.exit, kExitDone) << all.err;
  for (const char* policy : {"ecmp", "cassini", "crux", "sincronia", "weft", "optimal", "bound"}) {
    EXPECT_THAT(all.out, HasSubstr(std::string("\n  ") + policy)) << all.out;
  }
  const Ran some = Call({.scenario = path, .policies = {"ecmp,crux", "ecmp"}, .output = "json"});
  const json root = json::parse(some.out);
  ASSERT_EQ(root.at("policies").size(), 2u) << "a name given twice counts once";
  EXPECT_EQ(root["policies"][1]["policy"], "crux");
  EXPECT_EQ(root["jobs"], root["policies"][0]["jobs"]) << "the contract's keys are the first policy's";
}

TEST_F(RunSimulateTest, WritesOneTraceAndPlotPerPolicy) {
  const std::string path = Write(kScenario);
  SimulateOptions options{.scenario = path, .policies = {"ecmp"}, .trace = Path("t.json"), .plot = Path("p.svg"),
                          .plot_window = "1s:2s"};
  ASSERT_EQ(Call(options).exit, kExitDone);
  EXPECT_THAT(ReadAll(Path("t.json")), HasSubstr("traceEvents"));
  EXPECT_THAT(ReadAll(Path("p.svg")), HasSubstr("small: link use under ecmp"));
  options.policies = {"ecmp,sincronia"};
  ASSERT_EQ(Call(options).exit, kExitDone);
  EXPECT_FALSE(json::parse(ReadAll(Path("t.sincronia.json"))).at("traceEvents").empty());
  EXPECT_THAT(ReadAll(Path("p.ecmp.svg")), HasSubstr("<svg"));
}

TEST_F(RunSimulateTest, WrongUsageIsStatusTwoAndOneLine) {
  const std::string good = Write(kScenario), bad = Write(With(kScenario, "10Gbit/s", "0Gbit/s"), "bad.yaml");
  const std::string long_one = With(With(kScenario, "4s", "1h"), "100ms, bytes: 50MB", "20us, bytes: 1kB");
  const std::string endless = Write(long_one, "endless.yaml");
  const struct {
    SimulateOptions options;
    const char* message;
  } kCases[] = {
      {{.scenario = good, .policies = {"fast"}}, "weft simulate: --policy \"fast\": expected ecmp, weft, crux"},
      {{.scenario = good, .policies = {"ecmp,"}}, "--policy \"\": expected ecmp"},
      {{.scenario = good, .output = "xml"}, "--output \"xml\": expected table or json"},
      {{.scenario = good, .plot_window = "2s:1s"}, "--plot-window \"2s:1s\": expected BEGIN:END within 4 s"},
      {{.scenario = good, .plot_window = "1s"}, "--plot-window \"1s\""},
      {{.scenario = good, .plot_window = "3.9999999999999s:4s"},
       "--plot-window \"3.9999999999999s:4s\": 9.99e-14 s wide, expected at least 1e-09 of 4 s"},
      {{.scenario = good, .seed = -1}, "--seed -1: expected 0 or more"},
      {{.scenario = good, .evaluations = -1}, "--evaluations -1: expected 0 to"},
      {{.scenario = good, .objective = "fast"}, "--objective \"fast\": expected balanced or gpu-use"},
      {{.scenario = Path("none.yaml")}, "none.yaml: no such file"},
      {{.scenario = endless},
       "endless.yaml: more than 3.46e+08 iterations with job \"a\" (1.73e+08 in each of 2 draws), expected"},
      {{.scenario = bad}, "bad.yaml:5: key \"cluster.host_rate\": rate \"0Gbit/s\": expected a positive"},
  };
  for (const auto& one : kCases) {
    const Ran ran = Call(one.options);
    EXPECT_EQ(ran.exit, kExitUsage) << one.message;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(one.message));
    EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
  }
  EXPECT_EQ(Call({.scenario = good, .policies = {"ecmp"}, .trace = "/nonexistent/t.json"}).exit, kExitFailed);
}

// Two hundred hosts in a ring cross 400 links: 20,000 iterations are few, their samples are many.
TEST_F(RunSimulateTest, ATraceOfTooManySamplesIsRefusedAndTheSameWithoutTraceIsNot) {
  const std::string path = Write(R"(version: 1
name: wide
duration: DURATION
cluster: {fabric: leaf-spine, leaves: 1, spines: 1, hosts_per_leaf: 200, host_rate: 10Gbit/s}
jobs: [{name: ring, hosts: 200, compute: 100ms, bytes: 1MB}]
)");
  const std::string text = ReadAll(path);
  const std::string large = Write(With(text, "DURATION", "2000s"), "large.yaml");
  const Ran refused = Call({.scenario = large, .policies = {"ecmp"}, .trace = Path("t.json")});
  EXPECT_EQ(refused.exit, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("large.yaml: more than 1.57e+07 changes of link rates with job \"ring\" "
                                     "(1.97e+04 iterations over 400 links), expected at most 1e+07 with a trace or "
                                     "plot: simulate a shorter duration, or without --trace and --plot\n"));
  EXPECT_FALSE(std::filesystem::exists(Path("t.json")));
  EXPECT_EQ(Call({.scenario = large, .policies = {"ecmp"}, .plot = Path("p.svg")}).exit, kExitUsage);
  EXPECT_EQ(Call({.scenario = large, .policies = {"ecmp"}}).exit, kExitDone);
  const std::string small = Write(With(text, "DURATION", "2s"), "small.yaml");
  EXPECT_EQ(Call({.scenario = small, .policies = {"ecmp"}, .trace = Path("t.json")}).exit, kExitDone);
}

TEST_F(RunSimulateTest, AModelThatFitsNowhereIsStatusThree) {
  const std::string job = "- {name: a, hosts: [h1, h3], compute: 100ms, bytes: 50MB}";
  const std::string path =
      Write(With(kScenario, job, "- {name: a, hosts: [h1, h3], model: gpt3-175b, global_batch: 8, sequence: 2048}"));
  const Ran ran = Call({.scenario = path, .policies = {"ecmp"}});
  EXPECT_EQ(ran.exit, kExitInfeasible);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("s.yaml:8: key \"jobs[0].model\": no feasible plan: "));
}

TEST_F(RunSimulateTest, AModelIsPlannedAndItsStrategyReported) {
  const std::string job = "- {name: a, hosts: [h1, h3], compute: 100ms, bytes: 50MB}";
  const std::string path =
      Write(With(kScenario, job, "- {name: a, hosts: [h1, h3], model: gpt2, global_batch: 8, sequence: 1024}"));
  const Ran ran = Call({.scenario = path, .policies = {"ecmp"}, .output = "json"});
  ASSERT_EQ(ran.exit, kExitDone) << ran.err;
  const json root = json::parse(ran.out);
  EXPECT_THAT(root.at("plans").at(0).at("strategy").get<std::string>(), HasSubstr("micro_batch="));
  EXPECT_EQ(root["plans"][0]["job"], "a");
  EXPECT_GT(root["jobs"][0]["iteration_s"].get<double>(), 0);
}

// With a rail per NIC nothing is narrower than the NICs: alone, the job iterates as weft plan says.
TEST_F(RunSimulateTest, AModelAloneIteratesAsPlanned) {
  const Ran ran = Call({.scenario = Write(R"(version: 1
name: rails
duration: 10s
cluster: {fabric: rail, server: dgx-a100, hosts: 4, spines: 4}
jobs: [{name: a, hosts: 4, model: gpt2-xl, global_batch: 256, sequence: 1024}]
)"), .policies = {"ecmp"}, .output = "json"});
  ASSERT_EQ(ran.exit, kExitDone) << ran.err;
  planner::JobSpec job{
      .name = "a", .model = formats::ResolveModel("gpt2-xl").value(), .global_batch = 256, .sequence = 1024};
  const auto answer = planner::Plan(job, formats::ResolveCluster("dgx-a100:4").value(), {}).value();
  const json root = json::parse(ran.out);
  EXPECT_NEAR(root["jobs"][0]["alone_s"].get<double>() / answer.plans.at(0).predicted.iteration.count(), 1, 0.01);
  EXPECT_EQ(root["plans"][0]["predicted_s"].get<double>(), answer.plans.at(0).predicted.iteration.count());
  EXPECT_NEAR(root["jobs"][0]["slowdown"].get<double>(), 1, 0.01) << "nobody else is there";
}

// Both ways from leaf to leaf are cut: what was sent before counts, what hangs has no end.
TEST_F(RunSimulateTest, AJobThatHangsHasNoIterationTime) {
  const std::string text =
      With(kScenario, "spines: 2", "spines: 1") + "faults: [{at: 0s, cable: leaf1-spine1, rate: down}]\n";
  const std::string path = Write(text);
  const json root = json::parse(Call({.scenario = path, .policies = {"ecmp"}, .output = "json"}).out);
  EXPECT_TRUE(root["jobs"][0]["iteration_s"].is_null());
  EXPECT_EQ(root["jobs"][0]["iterations"], 0);
  EXPECT_THAT(Call({.scenario = path, .policies = {"ecmp"}}).out, HasSubstr("no end"));
}

// Every example is whole: it runs, jobs make progress, and nobody beats the bound.
TEST_F(RunSimulateTest, ExamplesRun) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SCENARIOS)) {
    ++examples;
    const Ran ran =
        Call({.scenario = entry.path().string(), .policies = {"ecmp,weft"}, .evaluations = 40, .output = "json"});
    ASSERT_EQ(ran.exit, kExitDone) << entry.path() << ran.err;
    const json root = json::parse(ran.out);  // named: a temporary would be gone inside the loop
    for (const json& run : root.at("policies")) {
      for (const json& job : run.at("jobs")) {
        EXPECT_TRUE(job.at("iteration_s").is_number()) << entry.path() << job;
        EXPECT_GE(job.at("iteration_s").get<double>(), job.at("bound_s").get<double>() * (1 - 1e-6))
            << entry.path() << job;
      }
      EXPECT_GE(run.at("summary").at("bound_gap").get<double>(), -1e-6) << entry.path();
    }
  }
  EXPECT_GE(examples, 3);
}

}  // namespace
}  // namespace weft::cli

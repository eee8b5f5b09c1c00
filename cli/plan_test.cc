#include "cli/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/exit_code.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

PlanCommandOptions Gpt2() {
  return {
      .model = "gpt2", .cluster = "dgx-a100:2", .global_batch = 64, .sequence = 1024, .threads = 1, .output = "json"};
}

/// Runs the command with its output caught.
struct Ran {
  int exit;
  std::string out, err;
};
Ran Call(const PlanCommandOptions& arguments) {
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

TEST(RunPlan, ATraceHoldsTheIterationAndNamesEveryGap) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "weft_plan_trace_test.json";
  PlanCommandOptions arguments = Gpt2();
  arguments.fix = "pp=4,schedule=1f1b";
  arguments.trace = file.string();
  const Ran ran = Call(arguments);
  ASSERT_EQ(ran.exit, kExitDone) << ran.err;
  std::ifstream in(file);
  const json trace = json::parse(in);
  std::filesystem::remove(file);
  const double predicted = json::parse(ran.out)["plans"][0]["predicted"]["iteration_s"].get<double>() * 1e6;
  std::map<int, double> filled;  // time of kernels, bubbles and what is waited for, by stage
  double end = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
    if (event["cat"] != "pipeline") filled[event["pid"].get<int>()] += event["dur"].get<double>();
  }
  EXPECT_NEAR(end / predicted, 1, 1e-4);
  ASSERT_EQ(filled.size(), 4u);
  for (const auto& [stage, time] : filled) EXPECT_NEAR(time / end, 1, 1e-3) << "stage " << stage;
}

TEST(RunPlan, TheJsonHoldsTheIterationAsOperations) {
  PlanCommandOptions arguments = Gpt2();
  arguments.fix = "pp=4,schedule=1f1b";
  const json plan = json::parse(Call(arguments).out)["plans"][0];
  const json& list = plan.at("operations");
  EXPECT_EQ(list["version"], 1);
  EXPECT_EQ(list["stages"], 4);
  double flops = 0, data = 0;
  for (const json& equal : list.at("classes")) {
    EXPECT_GE(equal.at("fragmentation").get<double>(), 0);
    for (const json& piece : equal.at("memory")) EXPECT_THAT(Keys(piece), IsSupersetOf({"what", "part", "held", "bytes"}));
    EXPECT_EQ(equal.at("memory")[0]["what"], "parameters");
    for (const json& o : equal.at("operations")) {
      EXPECT_THAT(Keys(o), IsSupersetOf({"what", "kind", "pass", "calls", "seconds", "exposed_s"}));
      if (o["kind"] == "compute") flops += o["flops"].get<double>();
      if (o.value("communicator", "") == "data") data += o["bytes"].get<double>();
    }
  }
  EXPECT_GT(flops, 0);
  EXPECT_GT(data, 0);
}

TEST(RunPlan, WhatIsAllowedIsSaidAndNeverEmitted) {
  PlanCommandOptions arguments = Gpt2();
  arguments.allow = "local_steps";
  arguments.fix = "local_steps=8";
  const Ran allowed = Call(arguments);
  ASSERT_EQ(allowed.exit, kExitDone) << allowed.err;
  EXPECT_EQ(json::parse(allowed.out)["plans"][0]["strategy"]["local_steps"], 8);
  EXPECT_THAT(allowed.out, HasSubstr("what is trained is not the same"));
  arguments.emit = "torchrun";
  EXPECT_THAT(Call(arguments).err, HasSubstr("local_steps=8"));
  arguments.emit.clear();
  arguments.framework = "megatron";
  EXPECT_THAT(Call(arguments).err, HasSubstr("--allow with --framework megatron"));
  arguments.framework.clear();
  arguments.allow = "magic";
  EXPECT_THAT(Call(arguments).err, HasSubstr("allow \"magic\": expected low_precision, local_steps or gossip"));
}

TEST(RunPlan, ATraceThatCannotBeWrittenIsAnError) {
  PlanCommandOptions arguments = Gpt2();
  arguments.trace = "/no/such/folder/t.json";
  const Ran ran = Call(arguments);
  EXPECT_NE(ran.exit, kExitDone);
  EXPECT_THAT(ran.err, HasSubstr("--trace: /no/such/folder/t.json: cannot be written"));
}

TEST(RunPlan, EachPlanSaysWhatItsCommunicatorsDoAndWhereItsRanksLie) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "weft_plan_fabric_test.yaml";
  std::ofstream(file) << "version: 1\nname: t\ngpus_per_node: 8\ndevice: a100-80\nintra_node_rate: 300GB/s\n"
                         "fabric: {fabric: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 2, host_rate: 800Gbit/s}\n";
  PlanCommandOptions arguments = Gpt2();
  arguments.cluster = file.string();
  arguments.fix = "dp=32";
  const Ran ran = Call(arguments);
  std::filesystem::remove(file);
  ASSERT_EQ(ran.exit, kExitDone) << ran.err;
  const json root = json::parse(ran.out), &plan = root["plans"][0];
  ASSERT_FALSE(plan.at("communicators").empty());
  for (const json& use : plan["communicators"]) {
    EXPECT_THAT(Keys(use), IsSupersetOf({"kind", "size", "count", "bytes", "algorithm", "crosses", "seconds", "exposed_s"}));
    if (use["kind"] == "data") {
      EXPECT_EQ(use["crosses"], "spine");
    }
  }
  EXPECT_EQ(plan.at("placement").at("nodes"), json({"h1", "h2", "h3", "h4"}));
}

TEST(RunPlan, PrintsTheContractsKeys) {
  PlanCommandOptions arguments = Gpt2();
  arguments.top = 2;
  const Ran ran = Call(arguments);
  EXPECT_EQ(ran.exit, kExitDone);
  EXPECT_EQ(ran.err, "");
  const json root = json::parse(ran.out);
  ASSERT_EQ(root.at("plans").size(), 2u);
  const json& plan = root["plans"][0];
  for (const char* key : {"dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "zero_stage", "recompute",
                          "sequence_parallel", "schedule"}) {
    EXPECT_TRUE(plan.at("strategy").contains(key)) << key;
  }
  EXPECT_TRUE(plan["strategy"]["recompute"].is_string());
  EXPECT_TRUE(plan["strategy"]["sequence_parallel"].is_boolean());
  EXPECT_TRUE(plan["strategy"]["bucket_bytes"].is_number());
  EXPECT_THAT(Keys(plan.at("predicted")), IsSupersetOf({"iteration_s", "tokens_per_s", "tflops_per_gpu", "mfu",
                                                        "exposed_communication_s", "bubble_s", "memory_bytes"}));
  EXPECT_THAT(Keys(plan["predicted"].at("memory_bytes")),
              IsSupersetOf({"parameters", "gradients", "optimizer", "activations", "total"}));
  EXPECT_LE(plan.at("lower_bound_s").get<double>(), plan["predicted"]["iteration_s"].get<double>());
  EXPECT_EQ(plan.at("gap").get<double>(), 0);
  EXPECT_TRUE(plan.at("why").is_array());
  for (const char* key : {"strategies", "evaluated", "pruned", "seconds", "threads", "strategies_per_second"}) {
    EXPECT_TRUE(root.at("search").contains(key)) << key;
  }
}

TEST(RunPlan, WarnsOfKeysThatItDoesNotUseAndOfSequencesBeyondItsPositions) {
  const std::string path = testing::TempDir() + "/weft_plan_model.json";
  std::ofstream(path) << R"({"model_type": "llama", "_name_or_path": "tiny", "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 256, "max_position_embeddings": 512, "novelty": 1})";
  PlanCommandOptions arguments = Gpt2();
  arguments.model = path;
  const Ran ran = Call(arguments);
  std::remove(path.c_str());
  EXPECT_EQ(ran.exit, kExitDone);
  EXPECT_EQ(ran.err, "warning: " + path + ": keys not used: novelty\n" +
                         "warning: tiny: sequences of 1024 tokens, made for max_position_embeddings = 512: expected "
                         "rope_scaling, such as yarn, by a factor of 2\n");
}

TEST(RunPlan, ShardingPerOperatorIsCountedAndListed) {
  PlanCommandOptions arguments = {.model = "llama3-8b", .cluster = "dgx-a100:1", .global_batch = 64, .sequence = 4096,
                                  .fix = "tp=1,pp=1,cp=1,sharding=osdp,micro_batch=2,recompute=none", .framework = "any",
                                  .emit = "torchrun", .threads = 1, .output = "json"};
  const json plan = json::parse(Call(arguments).out);
  const json& first = plan.at("plans").at(0);
  EXPECT_EQ(first["strategy"]["sharding"], "osdp");
  EXPECT_EQ(first["strategy"]["zero_stage"], 3);
  const json& operators = first.at("operators");
  EXPECT_EQ(operators["replicated"].get<int64_t>() + operators["kept"].get<int64_t>() + operators["sharded"].get<int64_t>() +
                operators["split"].get<int64_t>(), 66);
  int64_t layers = 0;
  for (const json& run : operators.at("stages").at(0).at("layers")) layers += run.at("layers").get<int64_t>();
  EXPECT_EQ(layers, 32);
  EXPECT_THAT(plan.at("emitted").at("torchrun").get<std::string>(), HasSubstr("#   layers.0"));
  arguments.output = "table";
  arguments.emit = "";
  const std::string table = Call(arguments).out;
  EXPECT_THAT(table, HasSubstr(" per operator "));
  EXPECT_THAT(table, HasSubstr("per operator: each is replicated, kept or sharded, see below"));
}

// The parts of an iteration add up to it.
TEST(RunPlan, PartsAddUpToTheIteration) {
  const json plan = json::parse(Call(Gpt2()).out).at("plans").at(0);
  double sum = plan["predicted"]["bubble_s"].get<double>();
  for (const auto& [name, part] : plan["predicted"]["parts_s"].items()) sum += part.get<double>();
  EXPECT_NEAR(sum / plan["predicted"]["iteration_s"].get<double>(), 1, 1e-6);
}

TEST(RunPlan, PrintsATableThatExplainsItsColumns) {
  PlanCommandOptions arguments = Gpt2();
  arguments.output = "table";
  arguments.front = 0.5;
  const Ran ran = Call(arguments);
  EXPECT_EQ(ran.exit, kExitDone);
  EXPECT_THAT(ran.out, HasSubstr("gpt2 (124.4 M parameters) on dgx-a100: 16 a100-80, 64 sequences of 1024 tokens per step, bf16, for "));
  EXPECT_THAT(ran.out, HasSubstr("micro: sequences per micro-batch"));
  EXPECT_THAT(ran.out, HasSubstr("why the first:\n  dp="));
  EXPECT_THAT(ran.out, HasSubstr("faster or smaller, never both"));
  EXPECT_THAT(ran.err, HasSubstr(" strategies, "));
  EXPECT_THAT(ran.err, HasSubstr("ruled out by bounds"));
}

TEST(RunPlan, ThreadsAndExhaustiveSearchChangeNoPlan) {
  PlanCommandOptions arguments = Gpt2();
  arguments.cluster = "dgx-a100:1";
  arguments.fix = "schedule=1f1b,micro_batch=2";
  const json one = json::parse(Call(arguments).out);
  arguments.threads = 3;
  EXPECT_EQ(json::parse(Call(arguments).out).at("plans"), one.at("plans"));
  arguments.exhaustive = true;
  const json all = json::parse(Call(arguments).out);
  EXPECT_EQ(all["plans"][0]["strategy"], one["plans"][0]["strategy"]);
  EXPECT_EQ(all["search"]["evaluated"], one["search"]["strategies"]);
}

TEST(RunPlan, EmitsWhatTheFrameworkCanRun) {
  PlanCommandOptions arguments = Gpt2();
  arguments.emit = "megatron,torchrun";
  const Ran ran = Call(arguments);
  ASSERT_EQ(ran.exit, kExitDone) << ran.err;
  const json root = json::parse(ran.out);
  EXPECT_THAT(root.at("emitted").at("megatron").get<std::string>(), HasSubstr("--tensor-model-parallel-size"));
  EXPECT_LE(root["plans"][0]["strategy"]["zero_stage"].get<int>(), 1);
}

// In a terminal what is emitted stands alone: it can go straight into a file.
TEST(RunPlan, EmittedTextTakesThePlaceOfTheTable) {
  PlanCommandOptions arguments = Gpt2();
  arguments.output = "table";
  arguments.emit = "megatron";
  const std::string one = Call(arguments).out;
  EXPECT_TRUE(one.starts_with("# weft plan: gpt2 on dgx-a100, 16 GPUs: ")) << one.substr(0, 80);
  EXPECT_THAT(one, Not(HasSubstr("why the first")));
  arguments.emit = "megatron,environment";
  EXPECT_THAT(Call(arguments).out, AllOf(HasSubstr("# --- megatron ---\n"), HasSubstr("# --- environment ---\n")));
}

TEST(RunPlan, WritesAFolderThatStartsThePlan) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weft_plan_folder" / "new";
  PlanCommandOptions arguments = Gpt2();
  arguments.emit_dir = folder.string();
  arguments.framework = "megatron";
  const Ran ran = Call(arguments);
  ASSERT_EQ(ran.exit, kExitDone) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(folder.string() + ": megatron.args, environment, nccl.conf, config.json, launch-torchrun.sh, "
                                                   "launch-slurm.sh, plan.json\n"));
  EXPECT_EQ(json::parse(std::ifstream(folder / "plan.json")).at("plans"), json::parse(ran.out).at("plans"));
  const auto mode = std::filesystem::status(folder / "launch-torchrun.sh").permissions();
  EXPECT_NE(mode & std::filesystem::perms::owner_exec, std::filesystem::perms::none);
  // Another program's plan in the same place: the first one's files go.
  arguments.framework = "deepspeed";
  ASSERT_EQ(Call(arguments).exit, kExitDone);
  EXPECT_FALSE(std::filesystem::exists(folder / "megatron.args"));
  EXPECT_TRUE(std::filesystem::exists(folder / "deepspeed.json"));
  std::filesystem::remove_all(folder.parent_path());
  arguments.emit_dir = "/proc/weft/nowhere";
  EXPECT_NE(Call(arguments).exit, kExitDone);
}

TEST(RunPlan, AFolderKeepsTheUsersFiles) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weft_plan_users_folder";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  const auto read = [&](const char* name) {
    std::ifstream in(folder / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  PlanCommandOptions arguments = Gpt2();
  arguments.emit_dir = folder.string();
  arguments.framework = "megatron";
  write("config.json", "mine");
  // A plan.json that lists them is not enough to remove files that no plan writes.
  write("notes.txt", "mine too");
  write("plan.json", R"({"emitted_files": ["notes.txt", "../x", 1]})");
  const Ran ran = Call(arguments);
  EXPECT_EQ(ran.exit, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr((folder / "config.json").string() + " was not written by an earlier plan: move it, or give an empty folder"));
  EXPECT_EQ(read("config.json"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder / "megatron.args")) << "all or nothing";
  std::filesystem::remove(folder / "config.json");
  EXPECT_EQ(Call(arguments).exit, kExitDone);
  EXPECT_EQ(read("notes.txt"), "mine too");
  std::filesystem::remove_all(folder);
}

TEST(RunPlan, RiskIsAskedForAndSaid) {
  PlanCommandOptions arguments = Gpt2();
  const json careless = json::parse(Call(arguments).out);
  EXPECT_GE(careless["plans"][0]["fits"].get<double>(), 0.95);
  EXPECT_EQ(careless["plans"][0]["program"].get<std::string>().empty(), false);
  arguments.risk = 1.5;
  const Ran ran = Call(arguments);
  EXPECT_EQ(ran.exit, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("risk: 1.5, expected a probability above 0 and below 1"));
}

// New machines beside old ones: each does something else, which is no one program's file.
TEST(RunPlan, GroupsThatDifferAreNotEmitted) {
  const std::string path = testing::TempDir() + "/weft_two_kinds.yaml";
  std::ofstream(path) << "version: 1\nname: two\ngroups:\n"
                         "  - {name: new, nodes: 2, gpus_per_node: 8, device: h100-80, intra_node_rate: 450GB/s, nic_rate: 3.2Tbit/s}\n"
                         "  - {name: old, nodes: 2, gpus_per_node: 8, device: a100-80, intra_node_rate: 300GB/s, nic_rate: 1.6Tbit/s}\n"
                         "between_groups_rate: 3.2Tbit/s\nbetween_groups_latency: 5us\n";
  PlanCommandOptions arguments{.model = "llama3-8b", .cluster = path, .global_batch = 256, .sequence = 4096, .framework = "any",
                               .emit = "torchrun", .threads = 1, .output = "json"};
  const Ran ran = Call(arguments);
  EXPECT_EQ(ran.exit, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("--emit: groups of machines that do different things cannot be written as one program's files"));
  arguments.framework = "megatron";
  EXPECT_EQ(Call(arguments).exit, kExitDone) << "one plan for all machines";
  std::remove(path.c_str());
}

TEST(RunPlan, NoPlanIsExitThreeWithTheReasons) {
  PlanCommandOptions arguments = Gpt2();
  arguments.model = "gpt3-175b";
  const Ran ran = Call(arguments);
  EXPECT_EQ(ran.exit, kExitInfeasible);
  EXPECT_THAT(ran.err, HasSubstr("no feasible plan: memory: the leanest strategy, "));
  EXPECT_THAT(ran.err, HasSubstr("at most 73.4 GiB of a100-80 with 80.0 GiB keep the risk"));
  EXPECT_TRUE(json::parse(ran.out).at("plans").empty());
  EXPECT_FALSE(json::parse(ran.out).at("infeasible").empty());
  arguments = Gpt2();
  arguments.fix = "tp=5";
  const Ran illegal = Call(arguments);
  EXPECT_EQ(illegal.exit, kExitInfeasible);
  EXPECT_THAT(illegal.err, HasSubstr("the nearest legal choice is tp=4"));
}

// The plan is shown all the same, and none of the files.
TEST(RunPlan, WhatCannotBeEmittedIsAnErrorBesideThePlan) {
  PlanCommandOptions arguments = Gpt2();
  arguments.emit = "deepspeed,megatron";
  arguments.fix = "zero_stage=2";
  const Ran ran = Call(arguments);
  EXPECT_EQ(ran.exit, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("megatron: zero_stage=2, expected 0 or 1"));
  const json shown = json::parse(ran.out);
  EXPECT_FALSE(shown.contains("emitted"));
  EXPECT_EQ(shown["plans"][0]["strategy"]["zero_stage"], 2);
}

TEST(RunPlan, BadInputIsExitTwoWithOneLine) {
  struct Fault {
    void (*make)(PlanCommandOptions*);
    const char* message;
  };
  const Fault faults[] = {
      {[](PlanCommandOptions* a) { a->model = "gpt99"; }, "gpt99"},
      {[](PlanCommandOptions* a) { a->cluster = "dgx-a100"; }, "dgx-a100"},
      {[](PlanCommandOptions* a) { a->precision = "int3"; }, "int3"},
      {[](PlanCommandOptions* a) { a->global_batch = 0; }, "global_batch: 0, expected a positive number"},
      {[](PlanCommandOptions* a) { a->sequence = -4; }, "sequence: -4, expected a positive number"},
      {[](PlanCommandOptions* a) { a->gpus = 17; }, "gpus: 17, expected at most the 16"},
      {[](PlanCommandOptions* a) { a->fix = "dp"; }, "fix \"dp\": expected NAME=VALUE"},
      {[](PlanCommandOptions* a) { a->fix = "dp=8,zz=3"; }, "fix \"zz=3\": unknown name, expected one of dp, tp"},
      {[](PlanCommandOptions* a) { a->fix = "recompute=some"; }, "expected none, selective or full"},
      {[](PlanCommandOptions* a) { a->output = "xml"; }, "--output \"xml\": expected table or json"},
      {[](PlanCommandOptions* a) { a->framework = "jax"; }, "--framework \"jax\": expected one of any, megatron"},
      {[](PlanCommandOptions* a) { a->emit = "jax"; }, "jax"},
      {[](PlanCommandOptions* a) { a->threads = -1; }, "--threads -1: expected 0"},
      {[](PlanCommandOptions* a) { a->top = 0; }, "top: 0"},
      {[](PlanCommandOptions* a) { a->front = -1; }, "--front -1"},
  };
  for (const Fault& fault : faults) {
    PlanCommandOptions arguments = Gpt2();
    fault.make(&arguments);
    const Ran ran = Call(arguments);
    EXPECT_EQ(ran.exit, kExitUsage) << fault.message;
    EXPECT_THAT(ran.err, HasSubstr(fault.message));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1);
    EXPECT_EQ(ran.out, "");
  }
}

}  // namespace
}  // namespace weft::cli

// A folder that starts a plan: which files, and that the scripts are sound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "formats/emit/emit_testing.h"
#include "formats/hf_config.h"

namespace weft::formats {
namespace {

using planner::Framework;
using planner::Strategy;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<EmittedFile> Folder(Framework framework, planner::JobSpec job, const planner::ClusterSpec& cluster, const Strategy& s) {
  job.gpus = planner::GpuCount(s);
  const auto files = EmitFolder({.job = job, .cluster = cluster, .strategy = s, .framework = framework});
  EXPECT_TRUE(files) << files.error().message();
  return files.value_or(std::vector<EmittedFile>());
}

std::vector<std::string> Names(const std::vector<EmittedFile>& files) {
  std::vector<std::string> names;
  for (const EmittedFile& file : files) names.push_back(file.name);
  return names;
}

const std::string& Content(const std::vector<EmittedFile>& files, const std::string& name) {
  for (const EmittedFile& file : files) {
    if (file.name == name) return file.content;
  }
  static const std::string none;
  ADD_FAILURE() << "no file " << name;
  return none;
}

/// A plan that each program runs, on two hosts.
Strategy PlanOf(Framework framework) {
  const std::string_view program = planner::Describe(framework).program;
  if (program == "torchtitan" || program == "Accelerate") return {.dp = 16, .zero_stage = 3, .recompute = planner::Recompute::kFull};
  if (program == "weft-train") return {.dp = 4, .tp = 2, .pp = 2, .micro_batch = 2};
  if (program == "DeepSpeed") return {.dp = 8, .cp = 2, .zero_stage = 3, .context_mode = planner::ContextMode::kUlysses};
  return {.dp = 4, .tp = 4, .zero_stage = 1, .sequence_parallel = true};
}

std::vector<Framework> Programs() {
  std::vector<Framework> programs;
  for (size_t i = 0; i < static_cast<size_t>(Framework::kPublished); ++i) {
    if (EmitTargetOf(static_cast<Framework>(i))) programs.push_back(static_cast<Framework>(i));
  }
  return programs;
}

/// A job that each program runs.
planner::JobSpec JobOf(Framework framework) {
  planner::JobSpec job = EmitJob("llama3-8b", 64, 8192);
  if (framework != Framework::kWeftTrain) return job;
  job.model.vocab = 256;
  job.precision = planner::Precision::kFp32;
  return job;
}

TEST(EmitFolder, HasAllThatStartsThePlan) {
  const auto names = [](Framework framework) {
    return Names(Folder(framework, JobOf(framework), EmitCluster("dgx-h100", 2), PlanOf(framework)));
  };
  EXPECT_THAT(names(Framework::kMegatron), ElementsAre("megatron.args", "environment", "nccl.conf", "config.json",
                                                       "launch-torchrun.sh", "launch-slurm.sh"));
  EXPECT_THAT(names(Framework::kTorchtitan), ElementsAre("torchtitan.toml", "environment", "nccl.conf", "config.json",
                                                         "weft_flavor.py", "launch-torchrun.sh", "launch-slurm.sh"));
  EXPECT_THAT(names(Framework::kDeepspeed), ElementsAre("deepspeed.json", "environment", "nccl.conf", "config.json", "train.py",
                                                        "launch-torchrun.sh", "launch-slurm.sh"));
  EXPECT_THAT(names(Framework::kMegatronBridge), ElementsAre("megatron-bridge.overrides", "environment", "nccl.conf",
                                                             "config.json", "launch-torchrun.sh", "launch-slurm.sh"));
  EXPECT_THAT(names(Framework::kAccelerate), ElementsAre("accelerate.yaml", "environment", "nccl.conf", "config.json", "train.py",
                                                         "launch-torchrun.sh", "launch-slurm.sh"));
  EXPECT_THAT(names(Framework::kWeftTrain), ElementsAre("weft-train.args", "environment", "nccl.conf", "config.json",
                                                        "launch-torchrun.sh", "launch-slurm.sh"));
  EXPECT_EQ(Programs().size(), 11U) << "five programs in two releases, and weft-train";
}

TEST(EmitFolder, EnvironmentIsTheProgramsOwn) {
  const auto environment = [](Framework framework, const char* preset, const Strategy& s) {
    return Content(Folder(framework, EmitJob("llama3-8b", 64, 8192), EmitCluster(preset, 2), s), "environment");
  };
  const Strategy tensor{.dp = 4, .tp = 4, .zero_stage = 1, .sequence_parallel = true}, replicas{.dp = 16, .zero_stage = 1};
  EXPECT_THAT(environment(Framework::kMegatron, "dgx-h100", tensor), HasSubstr("\nCUDA_DEVICE_MAX_CONNECTIONS=1\n"));
  EXPECT_THAT(environment(Framework::kMegatron, "dgx-h100", replicas), Not(HasSubstr("CUDA_DEVICE")));
  EXPECT_THAT(environment(Framework::kMegatron, "dgx-b200", tensor), Not(HasSubstr("CUDA_DEVICE")));
  EXPECT_THAT(environment(Framework::kTorchtitan, "dgx-h100", {.dp = 16, .zero_stage = 3}),
              HasSubstr("\nPYTORCH_ALLOC_CONF=expandable_segments:True\n"));
}

TEST(EmitFolder, TheModelCanBeReadBack) {
  const planner::JobSpec job = EmitJob("mixtral-8x7b", 64, 4096);
  const auto files = Folder(Framework::kMegatron, job, EmitCluster("dgx-h100", 2), {.dp = 16, .ep = 8, .zero_stage = 1});
  const auto model = ParseHfConfig(Content(files, "config.json"), "config.json");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->layers, 32);
  EXPECT_EQ(model->experts, 8);
  EXPECT_EQ(model->numerics, job.model.numerics);
}

// Hugging Face's switch recomputes, not the JSON file; ranks of a sequence hold a share of its tokens each.
TEST(EmitFolder, TheTrainingScriptDoesWhatTheFileCannotSay) {
  const auto script = [](const Strategy& s) {
    return Content(Folder(Framework::kDeepspeed, EmitJob("llama3-8b", 64, 8192), EmitCluster("dgx-h100", 2), s), "train.py");
  };
  EXPECT_THAT(script({.dp = 16, .zero_stage = 3, .recompute = planner::Recompute::kFull}),
              HasSubstr("model.gradient_checkpointing_enable()\n"));
  EXPECT_THAT(script({.dp = 16, .zero_stage = 3}), Not(HasSubstr("gradient_checkpointing_enable")));
  EXPECT_THAT(script({.dp = 16, .zero_stage = 3}), HasSubstr("MICRO_BATCH, SEQUENCE, ACCUMULATE, STEPS = 1, 8192, 4, 10\n"));
  EXPECT_THAT(script(PlanOf(Framework::kDeepspeed)), HasSubstr("(MICRO_BATCH, SEQUENCE // 2)"));
}

bool Succeeds(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }

TEST(EmitFolder, ScriptsAreSound) {
  const bool checked = Succeeds("command -v shellcheck"), python = Succeeds("command -v python3");
  for (const Framework framework : Programs()) {
    for (const int64_t hosts : {1, 2}) {
      Strategy s = PlanOf(framework);
      if (hosts == 1) s.dp /= 2;
      const std::filesystem::path folder =
          std::filesystem::path(testing::TempDir()) / "weft_emit_folder" / std::string(planner::FrameworkName(framework));
      std::filesystem::create_directories(folder);
      for (const EmittedFile& file : Folder(framework, JobOf(framework), EmitCluster("dgx-h100", hosts), s)) {
        const std::filesystem::path path = folder / file.name;
        std::ofstream(path) << file.content;
        EXPECT_TRUE(file.content.ends_with("\n")) << file.name;
        EXPECT_EQ(file.executable, file.name.ends_with(".sh")) << file.name;
        EXPECT_TRUE(!file.executable || Succeeds("bash -n " + path.string())) << path;
        EXPECT_TRUE(!file.executable || !checked || Succeeds("shellcheck " + path.string())) << path;
        if (python && file.name.ends_with(".py")) {
          EXPECT_TRUE(Succeeds("python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' " + path.string())) << path;
        }
      }
      std::filesystem::remove_all(folder);
    }
  }
  if (!checked) GTEST_SKIP() << "shellcheck is not installed: the scripts passed bash -n alone";
}

// MEGATRON_LM's program and every argument, one word each, reach torchrun.
TEST(EmitFolder, TheScriptHandsOverEveryArgument) {
  if (!Succeeds("command -v bash")) GTEST_SKIP() << "no bash";
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weft_emit_start";
  std::filesystem::create_directories(folder);
  const auto files = Folder(Framework::kMegatron, EmitJob("deepseek-v3", 64, 4096), EmitCluster("dgx-h100", 1),
                            {.dp = 8, .ep = 8, .zero_stage = 1});
  for (const EmittedFile& file : files) std::ofstream(folder / file.name) << file.content;
  std::ofstream(folder / "torchrun") << "#!/usr/bin/env bash\nprintf '%s\\n' \"$@\" > \"$(dirname \"$0\")/seen\"\n";
  std::filesystem::permissions(folder / "torchrun", std::filesystem::perms::owner_all);
  ASSERT_TRUE(Succeeds("env PATH=" + folder.string() + ":$PATH MEGATRON_LM=/m bash " + (folder / "launch-torchrun.sh").string() +
                       " --lr 2e-4 --data-path /d"));
  std::ifstream in(folder / "seen");
  const std::string seen((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (const char* words : {"--nproc-per-node=8\n", "/m/pretrain_gpt.py\n", "--num-experts\n256\n",
                            "--moe-layer-freq\n([0]*3+[1]*58)\n", "--lr\n2e-4\n", "--data-path\n/d\n"}) {
    EXPECT_THAT(seen, HasSubstr(words));
  }
  EXPECT_THAT(seen, Not(HasSubstr("--mock-data")));
  EXPECT_THAT(seen, Not(HasSubstr("\"")));
  std::filesystem::remove_all(folder);
}

// The second of two hosts starts ranks 8 to 15, each with the plan's words.
TEST(EmitFolder, WeftTrainsScriptStartsItsRanks) {
  if (!Succeeds("command -v bash")) GTEST_SKIP() << "no bash";
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weft_emit_ranks";
  std::filesystem::create_directories(folder);
  const Framework framework = Framework::kWeftTrain;
  for (const EmittedFile& file : Folder(framework, JobOf(framework), EmitCluster("dgx-h100", 2), PlanOf(framework))) {
    std::ofstream(folder / file.name) << file.content;
  }
  // A rank notes its words under its number, and one of them fails.
  std::ofstream(folder / "train") << "#!/usr/bin/env bash\nfor ((i = 1; i <= $#; i++)); do [ \"${!i}\" = --rank ] && at=$((i + 1)); done\n"
                                     "printf '%s\\n' \"$@\" > \"$(dirname \"$0\")/seen-${!at}\"\n[ \"${!at}\" != 9 ] || exit 3\n";
  std::filesystem::permissions(folder / "train", std::filesystem::perms::owner_all);
  const std::string start = "bash " + (folder / "launch-torchrun.sh").string() + " --steps 5 > /dev/null 2>&1";
  EXPECT_FALSE(Succeeds("env WEFT_TRAIN=" + (folder / "train").string() + " WEFT_PLUGIN=/p.so MASTER_ADDR=h " + start)) << "which host?";
  const int status = std::system(("env NODE_RANK=1 WEFT_TRAIN=" + (folder / "train").string() + " WEFT_PLUGIN=/p.so MASTER_ADDR=h " + start).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3) << "what one rank ends with";
  for (int rank = 0; rank < 16; ++rank) {
    std::ifstream in(folder / ("seen-" + std::to_string(rank)));
    ASSERT_EQ(in.good(), rank >= 8) << rank;
    if (rank < 8) continue;
    const std::string seen((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (const char* words : {"--strategy\ndp=4,tp=2,pp=2,micro_batch=2\n", "--seq\n8192\n", "--global-batch\n64\n", "--program-digest\n",
                              "--world\n16\n", "--rendezvous\nh:29500\n", "--data\n/usr/share/common-licenses\n", "--steps\n5\n"}) {
      EXPECT_THAT(seen, HasSubstr(words));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(EmitFolder, RefusesWhatNobodyStarts) {
  planner::JobSpec job = EmitJob("llama3-8b", 48, 8192);
  job.gpus = 16;
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 2);
  const Strategy s{.dp = 16, .zero_stage = 1};
  const auto any = EmitFolder({.job = job, .cluster = cluster, .strategy = s});
  ASSERT_FALSE(any);
  EXPECT_THAT(any.error().message(), HasSubstr("any: has no files of its own, expected --framework with one of megatron, torchtitan"));
  job.gpus = 12;
  const Strategy odd{.dp = 12, .zero_stage = 1};
  const auto part = EmitFolder({.job = job, .cluster = cluster, .strategy = odd, .framework = Framework::kMegatron});
  ASSERT_FALSE(part);
  EXPECT_THAT(part.error().message(), HasSubstr("12 GPUs on hosts of 8, expected whole hosts"));
}

}  // namespace
}  // namespace weft::formats

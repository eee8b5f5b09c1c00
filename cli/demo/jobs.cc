#include "cli/demo/jobs.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "common/parse_units.h"
#include "formats/hf_config.h"
#include "formats/train_plan.h"
#include "runtime/model_scaling.h"

namespace weft::cli {
namespace {

constexpr const char* kPause = "compute=350ms";
constexpr const char* kSum = "world.allreduce=512KiB";

/// Sizes set compute against communication: 40 to 70 % of an iteration alone.
struct Kind {
  const char* name;
  const char* example;
  runtime::ModelScaling scaling;
  const char* strategy;  ///< as weft-train's --strategy
  int64_t global_batch, sequence;
};
constexpr Kind kDataParallel[] = {
    {"gpt-a", "gpt2.json", {.layers = 2, .width = 64, .heads = 4}, "dp=4,micro_batch=44,bucket_bytes=128KiB", 176, 128},
    {"gpt-b", "distilgpt2.json", {.layers = 2, .width = 64, .heads = 4}, "dp=4,micro_batch=44,bucket_bytes=128KiB", 176, 128},
};
constexpr Kind kComposed[] = {
    {"moe", "mixtral-8x7b.json", {.layers = 1, .width = 64, .heads = 4}, "dp=4,ep=4,micro_batch=2,bucket_bytes=128KiB", 8, 1024},
    {"pipeline", "gpt2.json", {.layers = 4, .width = 64, .heads = 4}, "dp=2,pp=2,micro_batch=16,schedule=1f1b,bucket_bytes=128KiB", 64, 128},
};

std::string DurationText(Seconds duration) { return fmt::format("{:.3f}s", duration.count()); }

Result<DemoTraining> MakeTraining(const Kind& kind, int64_t ranks, const std::string& examples, const std::string& folder) {
  DemoTraining made;
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec published, formats::ReadHfConfig(fmt::format("{}/{}", examples, kind.example)));
  WEFT_ASSIGN_OR_RETURN(runtime::ScaledModel scaled, runtime::ScaleModel(published, kind.scaling));
  made.scaling = std::move(scaled.changes);
  made.scaling.emplace_back(kind.strategy);
  made.job = {.name = kind.name,
              .model = std::move(scaled.model),
              .global_batch = kind.global_batch,
              .sequence = kind.sequence,
              .precision = planner::Precision::kFp32,
              .gpus = ranks};
  WEFT_ASSIGN_OR_RETURN(made.strategy, formats::ParseStrategyText(kind.strategy));
  WEFT_ASSIGN_OR_RETURN(planner::StepProgram program,
                        planner::ExpandProgram(made.job, made.strategy, planner::ElementType::kFloat32));
  made.program = std::make_shared<const planner::StepProgram>(std::move(program));
  WEFT_ASSIGN_OR_RETURN(made.arguments, formats::TrainArguments(made.job, made.strategy, {}));
  made.config = formats::WriteHfConfig(made.job.model);
  const std::string path = fmt::format("{}/{}-config.json", folder, kind.name);
  std::ofstream file(path, std::ios::trunc);
  file << made.config;
  file.close();
  if (!file) return Fail(Code::kUnavailable, fmt::format("{}: cannot be written", path));
  made.arguments.insert(made.arguments.end(), {"--config", path, "--seed", "1", "--threads", "1"});
  return made;
}

}  // namespace

std::vector<std::vector<std::string>> DemoHosts(int hosts_per_leaf) {
  const auto host = [&](int leaf, int index) { return fmt::format("h{}", (leaf - 1) * hosts_per_leaf + index); };
  return {{host(1, 1), host(1, 2), host(2, 1), host(2, 2)}, {host(1, 3), host(1, 4), host(2, 3), host(2, 4)}};
}

Result<std::vector<DemoJob>> MakeDemoJobs(JobProgram program, int hosts_per_leaf, const std::string& examples,
                                          const std::string& folder) {
  std::vector<DemoJob> jobs;
  for (const std::vector<std::string>& hosts : DemoHosts(hosts_per_leaf)) {
    const Kind& kind = (program == JobProgram::kComposed ? kComposed : kDataParallel)[jobs.size()];
    WEFT_ASSIGN_OR_RETURN(DemoTraining training, MakeTraining(kind, std::ssize(hosts), examples, folder));
    jobs.push_back({.name = kind.name, .hosts = hosts, .core = static_cast<int>(jobs.size()), .training = std::move(training)});
  }
  return jobs;
}

TrainingJobOptions TrainOptionsOf(const DemoJob& job, const std::string& data, Seconds duration) {
  TrainingJobOptions options{.name = job.name, .hosts = job.hosts, .cores = {job.core}, .arguments = job.training.arguments};
  options.arguments.insert(options.arguments.end(), {"--data", data, "--duration", DurationText(duration), "--min-steps",
                                                     std::to_string(kLeastSteps), "--computations"});
  return options;
}

TrainingJobOptions NcclOptionsOf(const DemoJob& job, const std::string& library, Seconds duration) {
  TrainingJobOptions options{.program = JobProgram::kNccl, .name = job.name, .hosts = job.hosts, .cores = {}, .arguments = {}};
  options.arguments = {"--step",        kPause,
                       "--step",        kSum,
                       "--duration",    DurationText(duration),
                       "--min-iterations", std::to_string(kLeastSteps),
                       "--apart-every", std::to_string(kBlockSteps)};
  if (!library.empty()) options.arguments.insert(options.arguments.end(), {"--nccl", library});
  return options;
}

std::vector<std::string> NcclSteps() { return {kPause, kSum}; }

}  // namespace weft::cli

#include "cli/demo/jobs.h"

#include <fmt/format.h>

#include "common/parse_units.h"

namespace weft::cli {
namespace {

constexpr int64_t kGlobalBatch = 176;  // sets compute against communication: 40 to 70 % of an iteration alone
constexpr const char* kPause = "compute=350ms";
constexpr const char* kSum = "world.allreduce=512KiB";

std::string DurationText(Seconds duration) { return fmt::format("{:.3f}s", duration.count()); }

}  // namespace

std::vector<DemoJob> DemoJobs(int hosts_per_leaf) {
  const auto host = [&](int leaf, int index) { return fmt::format("h{}", (leaf - 1) * hosts_per_leaf + index); };
  DemoJob a{.name = "gpt-a", .config = "gpt2.json", .hosts = {host(1, 1), host(1, 2), host(2, 1), host(2, 2)}};
  DemoJob b{.name = "gpt-b", .config = "distilgpt2.json", .hosts = {host(1, 3), host(1, 4), host(2, 3), host(2, 4)}};
  a.core = 0;
  b.core = 1;
  a.global_batch = b.global_batch = kGlobalBatch;
  return {a, b};
}

std::vector<std::string> DemoJob::Arguments() const {
  return {"--layers",       std::to_string(layers),       "--width",   std::to_string(width),
          "--heads",        std::to_string(heads),        "--seq",     std::to_string(sequence),
          "--global-batch", std::to_string(global_batch), "--bucket",  FormatBytes(bucket),
          "--seed",         "1",                          "--threads", "1"};
}

TrainingJobOptions TrainOptionsOf(const DemoJob& job, const std::string& examples, const std::string& data, Seconds duration) {
  TrainingJobOptions options{.name = job.name, .hosts = job.hosts, .cores = {job.core}, .arguments = job.Arguments()};
  options.arguments.insert(options.arguments.end(),
                           {"--config", examples + "/" + job.config, "--data", data, "--duration", DurationText(duration),
                            "--min-steps", std::to_string(kLeastSteps)});
  return options;
}

TrainingJobOptions NcclOptionsOf(const DemoJob& job, const std::string& library, Seconds duration) {
  TrainingJobOptions options{.program = JobProgram::kNccl, .name = job.name, .hosts = job.hosts, .cores = {}, .arguments = {}};
  options.arguments = {"--step",     kPause,
                       "--step",     kSum,
                       "--duration", DurationText(duration),
                       "--min-iterations", std::to_string(kLeastSteps)};
  if (!library.empty()) options.arguments.insert(options.arguments.end(), {"--nccl", library});
  return options;
}

std::vector<std::string> NcclSteps() { return {kPause, kSum}; }

}  // namespace weft::cli

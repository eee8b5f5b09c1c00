// The demo's two jobs: what they train and how, what they run on, and how they are started.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/demo/bound.h"
#include "cli/demo/estimate.h"
#include "cli/demo/training_job.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"

namespace weft::cli {

/// Of every job that is launched, however slow the machine: medians of fewer say nothing, and there must be a block.
inline constexpr int64_t kLeastSteps = kBlockSteps + 2;

/// What a job of weft-train runs: a published model, scaled down, and the program of its strategy: data parallel, or composed: a MoE with
/// expert parallelism, and a pipeline of data parallel stages.
struct DemoTraining {
  planner::JobSpec job;
  planner::Strategy strategy;
  std::string config;                 ///< config.json as it is trained
  std::vector<std::string> scaling;   ///< what differs from the published model, for people
  std::vector<std::string> arguments;  ///< of weft-train
  std::shared_ptr<const planner::StepProgram> program;
};

/// A job of the demo, the same in every phase.
struct DemoJob {
  std::string name;
  std::vector<std::string> hosts;  ///< in order of rank
  int core = 0;
  DemoTraining training;
};

/// Where the jobs run on 2 leaves with `hosts_per_leaf` hosts; the last host of each leaf stays unmanaged.
std::vector<std::vector<std::string>> DemoHosts(int hosts_per_leaf);

/// The demo's two jobs on those hosts; under NCCL they have the names and hosts of those that train data parallel. Their models
/// are read from `examples`, and written into `folder` as they are trained. Errors: those of reading and writing them, and of a strategy that has no program.
[[nodiscard]] Result<std::vector<DemoJob>> MakeDemoJobs(JobProgram program, int hosts_per_leaf, const std::string& examples,
                                                        const std::string& folder);

/// `job` under weft-train for `duration`, at least kLeastSteps, on the text in `data`.
TrainingJobOptions TrainOptionsOf(const DemoJob& job, const std::string& data, Seconds duration);

/// In place of training, on the same hosts: weft-nccl-job, which pauses and then sums 512 KiB by NCCL's ring. `library` is
/// NCCL's; empty: as the loader finds it.
TrainingJobOptions NcclOptionsOf(const DemoJob& job, const std::string& library, Seconds duration);
/// The steps of those jobs, as `--step` takes them.
std::vector<std::string> NcclSteps();

}  // namespace weft::cli

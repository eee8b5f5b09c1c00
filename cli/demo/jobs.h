// The demo's two jobs: what they run on, and how they are started.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/demo/estimate.h"
#include "cli/demo/training_job.h"
#include "common/units.h"

namespace weft::cli {

/// Of every job that is launched, however slow the machine: medians of fewer say nothing, and one step must have been timed
/// with ordinary ones on both sides.
inline constexpr int64_t kLeastSteps = kApartEvery + 2;

/// A job of the demo, the same in every phase.
struct DemoJob {
  std::string name, config;             ///< config: file name below the examples
  std::vector<std::string> hosts;
  int core = 0;
  int64_t layers = 2, width = 64, heads = 4;
  int64_t global_batch = 0, sequence = 128;
  Bytes bucket{128 << 10};              ///< gradient bucket, the same in all phases

  /// What weft-train is to compute and exchange.
  std::vector<std::string> Arguments() const;
};

/// The demo's two jobs on 2 leaves with `hosts_per_leaf` hosts; the last host of each leaf stays unmanaged.
std::vector<DemoJob> DemoJobs(int hosts_per_leaf);

/// `job` under weft-train for `duration`, at least kLeastSteps, on the text in `data`.
TrainingJobOptions TrainOptionsOf(const DemoJob& job, const std::string& examples, const std::string& data, Seconds duration);

/// In place of training, on the same hosts: weft-nccl-job, which pauses and then sums 512 KiB by NCCL's ring. `library` is
/// NCCL's; empty: as the loader finds it.
TrainingJobOptions NcclOptionsOf(const DemoJob& job, const std::string& library, Seconds duration);
/// The steps of those jobs, as `--step` takes them.
std::vector<std::string> NcclSteps();

}  // namespace weft::cli

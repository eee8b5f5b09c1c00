// What a user wants trained.
#pragma once

#include <optional>
#include <string>

#include "common/units.h"
#include "planner/workload/model_spec.h"
#include "planner/workload/precision.h"

namespace weft::planner::inline workload {

struct JobSpec {
  std::string name;
  ModelSpec model;
  int64_t global_batch = 0;     ///< sequences (samples of a CNN) per optimizer step
  int64_t sequence = 0;         ///< tokens per sequence; 1 for a CNN
  Precision precision = Precision::kBf16;
  int64_t gpus = 0;             ///< 0: all of the cluster
  /// Of one iteration on all GPUs of the job with communication off, host and optimizer included, where somebody timed it.
  /// All that GPUs and hosts do is then scaled by one factor: by which plain data parallelism over those GPUs takes so long
  /// at the micro-batch that the model finds the fastest of those that fit a GPU (of all, if none does; 1, where the batch
  /// does not divide by the GPUs). So no plain data parallelism over all GPUs computes faster than what was timed.
  std::optional<Seconds> measured_compute;
};

/// The job on other GPUs or with another batch: what was measured of it goes with the sequences per GPU. Requires: job.gpus > 0.
inline JobSpec Resized(JobSpec job, int64_t gpus, int64_t global_batch) {
  if (job.measured_compute) {
    const double before = static_cast<double>(job.global_batch) / static_cast<double>(job.gpus);
    *job.measured_compute = *job.measured_compute * (static_cast<double>(global_batch) / static_cast<double>(gpus) / before);
  }
  job.gpus = gpus;
  job.global_batch = global_batch;
  return job;
}

}  // namespace weft::planner::workload

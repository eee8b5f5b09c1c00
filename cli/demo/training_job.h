// One job of the demo: a process of weft-train or weft-nccl-job per rank, each in its host's namespace.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cli/demo/bound.h"
#include "cli/demo/cluster.h"
#include "common/result.h"
#include "common/units.h"
#include "testbed/process.h"

namespace weft::cli {

enum class JobProgram { kDataParallel, kComposed, kNccl };

struct TrainingJobOptions {
  JobProgram program = JobProgram::kComposed;
  std::string name;                    ///< job id
  std::vector<std::string> hosts;      ///< rank r runs on hosts[r]
  std::vector<int> cores;              ///< that all ranks are pinned to; empty: to none
  std::vector<std::string> arguments;  ///< of the program, the same on all ranks
  int rendezvous_port = 29500;
};

/// Compute of a step whose exchange waited until backward was through on all ranks: the slowest rank's times.
struct ApartCompute {
  Seconds forward{0}, backward{0};
  std::vector<Seconds> ready;  ///< of each bucket, since all ranks began
};

/// A step as rank 0 reports it.
struct TrainingStep {
  int64_t step = 0;
  double loss = 0;
  Seconds iteration{0}, forward{0}, backward{0}, update{0};
  Seconds time{0};  ///< CLOCK_MONOTONIC at its end
  std::optional<ApartCompute> apart;  ///< then it is no ordinary step, and longer than those; of weft-nccl-job
  Computations computations;          ///< of weft-train
};

struct TrainingSummary {
  std::string model;
  std::vector<int64_t> bucket_bytes;  ///< under weft-nccl-job: in the order in which they are exchanged
  int64_t steps = 0, bytes_sent = 0;
  double first_loss = 0, final_loss = 0;  ///< both 0: nothing was trained
  std::string nccl;                       ///< its version, under weft-nccl-job; there every element is checked
  int64_t elements_checked = 0;           ///< on rank 0
};

/// Ends its processes when it goes. Requires: destroyed on the thread that started it.
class TrainingJob {
 public:
  [[nodiscard]] static Result<std::unique_ptr<TrainingJob>> Start(DemoCluster& cluster,
                                                                  const TrainingJobOptions& options,
                                                                  const std::string& log_directory);
  ~TrainingJob();

  const std::string& name() const { return options_.name; }
  /// Steps so far. Threads: any.
  std::vector<TrainingStep> steps() const;
  /// Waits for all ranks; then there are at least two steps. Errors: kFailedPrecondition with the last line of the first
  /// rank that failed; kInternal if fewer steps were reported; kDeadlineExceeded; kCancelled.
  [[nodiscard]] Result<TrainingSummary> Finish(Seconds timeout, const std::stop_token& stop);

 private:
  explicit TrainingJob(TrainingJobOptions options) : options_(std::move(options)) {}
  void Read(const std::string& record, const std::stop_token& stop);

  TrainingJobOptions options_;
  std::vector<testbed::Process> ranks_;
  std::vector<std::string> logs_;
  mutable std::mutex mutex_;
  std::vector<TrainingStep> steps_;  // guarded by mutex_
  TrainingSummary summary_;          // guarded by mutex_
  std::jthread reader_;              // ends before the processes it reads from
};

/// Median iteration of the ordinary steps that lie in [from, to); nullopt if there are fewer than two.
std::optional<Seconds> MedianIteration(const std::vector<TrainingStep>& steps, Seconds from, Seconds to);

}  // namespace weft::cli

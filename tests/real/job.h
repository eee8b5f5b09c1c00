// A replayed job on the fabric: one weft-replay per host, real bytes through the plugin, timed sleep for the computation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"
#include "testbed/fabric.h"
#include "testbed/process.h"

namespace weft::real {

struct JobSpec {
  std::string name;
  std::vector<std::string> hosts;  ///< rank r on hosts[r]; a ring
  Seconds compute{0};
  Bytes bytes;                     ///< gradients per iteration
  struct Burst {
    planner::BurstTimes times;
    Bytes bytes;
  };
  std::vector<Burst> bursts = {};  ///< where there are several; they add up to `bytes`
};

/// One iteration as rank 0 reports it, on CLOCK_MONOTONIC.
struct Step {
  double begin_s = 0;
  double end_s = 0;
};

struct JobEnd {
  int64_t steps = 0;
  int64_t bytes_sent = 0;  ///< by rank 0, payload
};

/// Programs and folders of one run.
struct Installation {
  std::string bin;      ///< weft-replay lies there
  std::string plugin;
  std::string run_dir;  ///< one folder per host below it, and the jobs' output

  std::string RunDirOf(const std::string& host) const { return run_dir + "/" + host; }
};

/// Threads: one at a time.
class ReplayJob {
 public:
  /// Starts all ranks; they end by themselves at the first iteration after `duration`, with every sum checked.
  /// Errors: those of Spawn.
  [[nodiscard]] static Result<ReplayJob> Start(const testbed::Fabric& fabric, const Installation& installation,
                                               const JobSpec& spec, int port, Seconds duration);

  const JobSpec& spec() const { return spec_; }
  /// All iterations so far. Errors: kInternal for a line that is none; kUnavailable when a rank has failed.
  [[nodiscard]] Result<std::vector<Step>> Steps();
  /// Waits for all ranks. Errors: kDeadlineExceeded; kUnavailable with the failed rank's last words.
  [[nodiscard]] Result<JobEnd> Finish(Seconds timeout);

 private:
  ReplayJob(JobSpec spec, std::string log) : spec_(std::move(spec)), log_(std::move(log)) {}
  std::string LogOf(size_t rank) const;

  JobSpec spec_;
  std::string log_;  // path without rank and ending
  std::vector<testbed::Process> ranks_;
};

}  // namespace weft::real

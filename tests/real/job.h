// A job on the fabric, one process per host, real bytes through the plugin: weft-replay, with timed sleep for the
// computation, or any program that takes its flags for ranks and prints its lines, as weft-train does.
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
  /// What one host sends to another in an iteration; both by their places in `hosts`.
  struct Flow {
    size_t from = 0, to = 0;
    Bytes bytes;
    std::vector<Bytes> per_burst = {};  ///< of `bytes`, where there are several
  };
  std::vector<Flow> flows = {};    ///< empty: those of a ring that sums `bytes`
  /// Of every rank, which is told its number, world, rendezvous and plugin besides; empty: weft-replay.
  std::vector<std::string> command = {};
};

/// spec.flows, or the ring's: flow r from rank r to the next.
std::vector<JobSpec::Flow> FlowsOf(const JobSpec& spec);

/// One iteration as rank 0 reports it, on CLOCK_MONOTONIC.
struct Step {
  double begin_s = 0;
  double end_s = 0;
};

struct JobEnd {
  int64_t steps = 0;
  int64_t bytes_sent = 0;  ///< by rank 0, payload; of a program with a plan, by all ranks
  int64_t bytes_planned = 0;  ///< with a plan: what it says that they send
  double busy = 0;         ///< with a plan: processors that all ranks kept busy together
  double overruns = 0;     ///< with a plan: largest share of a rank's computations that took longer than their stretched time
};

/// Programs and folders of one run.
struct Installation {
  std::string bin;      ///< weft-replay and weft-train lie there
  std::string plugin;
  std::string run_dir;  ///< one folder per host below it, and the jobs' output

  std::string RunDirOf(const std::string& host) const { return run_dir + "/" + host; }
};

/// Of a file, that is not empty; "no output" where there is none.
std::string LastLine(const std::string& path);

/// Threads: one at a time.
class FabricJob {
 public:
  /// Starts all ranks. Those of weft-replay end by themselves at the first iteration after `duration`, with every sum checked.
  /// Errors: those of Spawn.
  [[nodiscard]] static Result<FabricJob> Start(const testbed::Fabric& fabric, const Installation& installation,
                                               const JobSpec& spec, int port, Seconds duration);

  const JobSpec& spec() const { return spec_; }
  /// All iterations so far. Errors: kInternal for a line that is none; kUnavailable when a rank has failed.
  [[nodiscard]] Result<std::vector<Step>> Steps();
  /// Whether no rank has ended yet.
  bool Running();
  /// Waits for all ranks. Errors: kDeadlineExceeded; kUnavailable with the failed rank's last words.
  [[nodiscard]] Result<JobEnd> Finish(Seconds timeout);

 private:
  FabricJob(JobSpec spec, std::string log) : spec_(std::move(spec)), log_(std::move(log)) {}
  std::string LogOf(size_t rank) const;

  JobSpec spec_;
  std::string log_;  // path without rank and ending
  std::vector<testbed::Process> ranks_;
};

}  // namespace weft::real

// What `weft perf` was asked to do, checked, and what it measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/perf.h"
#include "cli/perf_flows.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/schedule.h"

namespace weft::cli {

struct PerfPlan {
  planner::Schedule schedule;
  int ranks = 0;
  std::vector<int64_t> counts;  ///< float32 elements of the full buffer, ascending
  int iterations = 0;
  int warmup = 0;
  bool check = false;
  bool pin = false;
  std::string plugin;
  Bytes slice;
  FlowPattern pattern = FlowPattern::kOneWay;  ///< of sendrecv, with the next two
  int connections = 1;
  int messages = 1;
  int net_version = 0;
  bool json = false;
  Seconds timeout{0};
  int rank = -1;                ///< -1: fork all
  std::string rendezvous;
};

struct PerfResult {
  int64_t bytes = 0;
  std::vector<double> times_s;  ///< of each timed run, the slowest rank's, ascending; per message; half of a round trip
  double cpu_s = 0;             ///< user and system time of all ranks in the timed runs
  int64_t sent = 0;             ///< payload that all ranks handed to the plugin in the timed runs
  int64_t wrong = 0;            ///< elements, over all ranks and runs, warm-up too
};

struct PerfReport {
  std::string plugin_name;
  std::string plugin_path;
  int net_version = 0;
  std::vector<PerfResult> results;
};

/// How many flows of one message size move at the same time: 1 unless it is a sendrecv of many.
int64_t ConcurrentFlows(const PerfPlan& plan);

/// Errors: kInvalidArgument naming the option, its value and what was expected.
[[nodiscard]] Result<PerfPlan> CheckPerfOptions(const PerfOptions& options);

/// A comma list of "1KiB" or "1KiB:64MiB", ascending. Ranges go by factors of two; their last size is the upper end
/// only when the factors hit it.
[[nodiscard]] Result<std::vector<Bytes>> ParseSizes(const std::string& text);

}  // namespace weft::cli

// A scenario checked, with the candidate paths of every flow and what every job could do alone.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/flows/job_paths.h"
#include "planner/jobs/simulate/scenario.h"

namespace weft::planner::inline jobs {

struct PreparedWay {
  RoutableJob routable;             ///< all shortest paths, usable or not
  Seconds alone{0};                 ///< iteration with the network to itself
};

struct PreparedJob {
  std::vector<PreparedWay> ways;    ///< the job's own first
  size_t best = 0;                  ///< the fastest alone
  uint64_t key = 0;                 ///< what a hash sees: from its name

  Seconds alone() const { return ways[best].alone; }
};

struct PreparedScenario {
  std::vector<BitsPerSecond> best_capacity;   ///< per link, over all time
  std::vector<PreparedJob> jobs;
};

/// Errors: as Simulate().
[[nodiscard]] Result<PreparedScenario> Prepare(const Scenario& scenario);

/// The paths without a dead link; all of them where every one has one.
std::vector<size_t> UsablePaths(const RoutableFlow& flow, std::span<const BitsPerSecond> capacity);

}  // namespace weft::planner::jobs

// A scenario checked, with the candidate paths of every flow and what every job could do alone.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
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
  std::vector<PreparedWay> ways;    ///< the job's own first; none while it waits for hosts
  size_t best = 0;                  ///< the fastest alone
  uint64_t key = 0;                 ///< what a hash sees: from its name
  std::vector<Seconds> size_alone;  ///< of a job with sizes, per size: as alone(), on places that stand for any others

  /// Requires: ways.
  Seconds alone() const { return ways[best].alone; }
};

struct PreparedScenario {
  std::vector<BitsPerSecond> best_capacity;   ///< per link, over all time
  std::vector<PreparedJob> jobs;
};

/// Prepares the jobs of one scenario, one after another, and remembers paths.
class JobPreparer {
 public:
  /// `scenario` must outlive it.
  explicit JobPreparer(const Scenario& scenario);

  /// Per link, over all time.
  const std::vector<BitsPerSecond>& best_capacity() const { return best_capacity_; }
  /// A job of the scenario, or one that a policy made of it by giving it places. Errors: as Simulate().
  [[nodiscard]] Result<PreparedJob> Prepare(const ScenarioJob& job);

 private:
  Result<std::vector<CandidatePath>> PathsBetween(NodeId from, NodeId to);
  Result<PreparedWay> PrepareWay(double gpus, double work, const ScenarioWay& way);
  Status PrepareWays(double gpus, double work, const std::vector<ScenarioWay>& ways, PreparedJob* made);

  const Scenario& scenario_;
  Topology topology_;                          // at its best
  std::vector<BitsPerSecond> best_capacity_;
  std::map<std::pair<int32_t, int32_t>, std::vector<CandidatePath>> paths_;
};

/// Errors: as Simulate().
[[nodiscard]] Result<PreparedScenario> Prepare(const Scenario& scenario);

/// The paths without a dead link; all of them where every one has one.
std::vector<size_t> UsablePaths(const RoutableFlow& flow, std::span<const BitsPerSecond> capacity);

}  // namespace weft::planner::jobs

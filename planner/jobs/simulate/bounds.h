// What no policy can beat: the bytes that jobs must carry over cuts, and the best that all of them together can do.
//
// Cuts: every host or GPU by itself, everything below a leaf, below a pod …, in both directions, and every link that
// all paths of a flow cross. While nothing comes, goes or changes, iteration rates r_j satisfy Σ b_j(S) r_j ≤ B(S)
// and r_j ≤ 1 / T_j, whatever the policy; GPU use and mean slow-down are bounded over that set.
//
// Source: co-design literature calls this the tier-cut programme; GPU use is SolveMaster()'s bound. Mean slow-down is
// min Σ c_j / z_j over the same set, a convex programme, bounded from below by its Lagrangian dual at any prices
// (weak duality), so that nothing rests on how well the prices are.
// Internal to planner/jobs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/jobs/simulate/prepare.h"
#include "planner/jobs/simulate/scenario.h"

namespace weft::planner::inline jobs {

/// Bytes that a job must send over `links`, together, in one iteration.
struct ScenarioCut {
  std::vector<LinkId> links;
  std::vector<std::vector<double>> bytes;  ///< per job of the scenario and way of it
  /// Likewise, and per burst; empty for ways of one burst.
  std::vector<std::vector<std::vector<double>>> bursts;
};

std::vector<ScenarioCut> MakeCuts(const Scenario& scenario, const PreparedScenario& prepared);

/// A time in which the same jobs run on the same links.
struct Epoch {
  Seconds length{0};
  std::vector<BitsPerSecond> capacity;
  std::vector<size_t> present;      ///< jobs of the scenario, ascending
};

/// Iteration time of a job below which no paths take it, whichever of its ways it runs.
Seconds CutBound(std::span<const ScenarioCut> cuts, std::span<const BitsPerSecond> capacity, const PreparedJob& job, size_t index);

struct ScenarioBounds {
  double gpu_utilisation = 0;
  double goodput = 0;
  double mean_slowdown = 1;
};

/// Whichever ways the jobs run. `work[j]`: of an iteration of job j, in GPU seconds; 0: what its GPUs compute.
/// Errors: those of SolveMaster().
[[nodiscard]] Result<ScenarioBounds> BoundAll(std::span<const ScenarioCut> cuts, const PreparedScenario& prepared,
                                              std::span<const double> work, std::span<const Epoch> epochs);

}  // namespace weft::planner::jobs

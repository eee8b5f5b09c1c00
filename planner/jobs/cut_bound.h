// What no policy can beat: the bytes that jobs must carry over the cuts of a fabric, and the best that all of them together can do.
// The simulator's bounds and the controller's are both this.
//
// While nothing comes, goes or changes, iteration rates r_j satisfy Σ b_j(S) r_j ≤ B(S) and r_j ≤ 1 / T_j, whatever the policy; GPU use
// and mean slow-down are bounded over that set.
//
// Source: co-design literature calls this the tier-cut programme; GPU use is SolveMaster()'s bound. Mean slow-down is
// min Σ c_j / z_j over the same set, a convex programme, bounded from below by its Lagrangian dual at any prices
// (weak duality), so that nothing rests on how well the prices are.
// Internal to planner/jobs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/fabric/fabric_cuts.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// One way to run a job.
struct BoundWay {
  Seconds compute{0}, release{0};
  std::vector<BurstTimes> bursts;                  ///< empty: all in one, after `release`
  std::vector<CutLoad> loads;                      ///< per iteration
  std::vector<std::vector<CutLoad>> burst_loads;   ///< per burst
};

struct BoundJob {
  double gpus = 1;
  double work = 0;                                 ///< GPU seconds of an iteration that count as goodput; 0: what its GPUs compute
  Seconds alone{0};                                ///< what slow-down is measured by
  std::vector<BoundWay> ways;
};

/// A time in which the same jobs run on the same links.
struct BoundEpoch {
  Seconds length{0};
  std::vector<BitsPerSecond> cuts;                 ///< capacity of each
  std::vector<size_t> present;                     ///< jobs, ascending
};

struct JobsBound {
  double gpu_utilisation = 0;
  double goodput = 0;
  double mean_slowdown = 1;
  std::vector<double> price;                       ///< per cut, of GPU use, in the first epoch; 0: does not bind
};

/// Iteration time below which no paths take it: every burst at the rate of its worst cut. Infinite over a cut without capacity.
Seconds LeastIteration(const BoundWay& way, std::span<const BitsPerSecond> cuts);

/// Of the fastest way.
Seconds LeastIteration(const BoundJob& job, std::span<const BitsPerSecond> cuts);

enum class SlowdownBound : bool { kLeaveOut, kWanted };

/// Whichever ways the jobs run. Errors: those of SolveMaster(). Complexity: one programme per epoch over the cuts that bind, and for the
/// slow-down 400 steps of ascent.
[[nodiscard]] Result<JobsBound> BoundJobs(std::span<const BoundJob> jobs, std::span<const BoundEpoch> epochs, SlowdownBound slowdown);

}  // namespace weft::planner::jobs

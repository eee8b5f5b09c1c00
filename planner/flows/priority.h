// Which job goes first where jobs meet, so that the cluster computes most.
//
// The order starts from corrected GPU intensity: GPU time computed per second of communication, times a correction k that
// says what priority is worth to the job (short iterations and overlapped communication lose less by waiting). Then jobs
// are moved while the simulated GPU use rises. Classes: the exact compression of the order, moved likewise.
//
// Source: intensity and correction are Crux (SIGCOMM'24), sections 4.1 and 4.2; the moves and the exact compression are ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/units.h"
#include "planner/flows/compression.h"
#include "planner/flows/periodic.h"

namespace weft::planner::inline flows {

/// Computed GPU seconds per second of communication. Infinite for a job that sends nothing.
double GpuIntensity(std::span<const BitsPerSecond> capacity, const PeriodicJob& job);

/// k of `job` against `reference`: the transmission time that `job` gains by going first on one shared link, over what the
/// reference gains by going first; 1 where neither gains, at most 16.
double IntensityCorrection(std::span<const BitsPerSecond> capacity, const PeriodicJob& reference, const PeriodicJob& job);

/// k · intensity per job; the reference is the job with the most communication time alone.
std::vector<double> CorrectedIntensity(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs);

/// Pairs of jobs that both load some link, as places in `order`.
std::vector<Contention> Contentions(std::span<const PeriodicJob> jobs, std::span<const size_t> order);

struct PriorityOptions {
  int32_t classes = 8;            ///< that the fabric has
  int64_t evaluations = 400;      ///< simulations at most, per group of jobs that meet, for the
                                  ///< order, and again for the classes; 0: intensity alone
  size_t enumerate_up_to = 4;     ///< groups of so many jobs are enumerated, 0: never
  size_t simulate_up_to = 64;     ///< larger groups get classes by intensity and contentions alone
  PeriodicOptions simulation;
};

struct PriorityPlan {
  std::vector<size_t> order;        ///< jobs, the first is served first
  std::vector<int32_t> classes;     ///< per job, 0 is served first
  std::vector<double> intensity;    ///< corrected, per job
  double gpu_use_order = 0;         ///< simulated, with one class per job; groups that are too large count as 0
  double gpu_use = 0;               ///< simulated, with `classes`; likewise
  bool complete = true;             ///< no search was left out or cut short before its first local optimum
};

/// Plans group by group: jobs that never meet do not matter to each other. A function: same input, same answer.
/// Requires: what PeriodicSimulator requires, classes ≥ 1.
PriorityPlan PlanPriorities(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs,
                            const PriorityOptions& options = {});

/// Least classes per job over all classes^jobs assignments: for tests and small groups.
PriorityPlan EnumerateClasses(const PeriodicSimulator& simulator, int32_t classes);
/// Best of all jobs! orders, one class per job.
PriorityPlan EnumerateOrders(const PeriodicSimulator& simulator);

}  // namespace weft::planner::flows

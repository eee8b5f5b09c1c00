// Which job goes first where jobs meet: GPU time computed per second of communication, times a correction k that says what priority
// is worth to the job (short iterations and overlapped communication lose less by waiting), and the exact compression of an order into
// classes. jobs/decide/ starts from these rules and moves jobs while that gains in simulation.
//
// Source: intensity and correction are Crux (SIGCOMM'24), sections 4.1 and 4.2; the exact compression is ours.
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

/// Pairs of jobs that both load some link, as places in `order`, ascending. Complexity: jobs² + loads · jobs / 64.
std::vector<Contention> Contentions(std::span<const PeriodicJob> jobs, std::span<const size_t> order);

/// Classes by any value: the jobs of the largest value first, compressed with these values as weights; over all orders that agree where
/// jobs meet, or, where so many meet that this would take seconds, for the one order; one class for more than 4,096 jobs. Complexity:
/// compression.h's.
std::vector<int32_t> ClassesByValue(std::span<const PeriodicJob> jobs, std::span<const double> value, int32_t classes);

struct EnumeratedClasses {
  std::vector<int32_t> classes;     ///< per job, 0 is served first
  double gpu_use = -1;              ///< simulated
};

/// The best of all classes^jobs assignments: for tests and small groups.
EnumeratedClasses EnumerateClasses(const PeriodicSimulator& simulator, int32_t classes);

}  // namespace weft::planner::flows

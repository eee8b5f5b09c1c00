// Training jobs as a network sees them, and how fast they run together: each job computes for a while, then (or meanwhile)
// sends a fixed number of bytes over fixed links, in one burst or several, and starts over when both are done. The engine
// and its rules are network/fluid.h's; here are jobs that never change.
//
//   PeriodicSimulator simulator(capacity, jobs);
//   const SteadyState together = simulator.Run(classes);   // class 0 first
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline flows {

/// One of several bursts of an iteration.
struct PeriodicBurst {
  BurstTimes times;
  std::vector<LinkLoad> loads;    ///< links distinct
};

/// One job. With one burst, iterations last max(compute, release + communication).
struct PeriodicJob {
  double gpus = 1;                ///< its weight in the cluster's GPU use
  Seconds compute{0};             ///< per iteration
  Seconds release{0};             ///< when in the iteration communication may start; `compute`: nothing overlaps
  std::vector<LinkLoad> loads;    ///< of an iteration, links distinct
  Seconds start{0};               ///< of the first iteration: the time shift
  /// Where there are several: their loads add up to `loads`, and `release` is that of the one burst which stands for them
  /// where a method knows of one only. Empty: one, needed at the end.
  std::vector<PeriodicBurst> bursts = {};
};

/// The job's bursts, also where it is one.
std::vector<PeriodicBurst> BurstsOf(const PeriodicJob& job);
/// Their times alone.
std::vector<BurstTimes> TimesOf(const PeriodicJob& job);
/// Their loads alone.
std::vector<std::vector<LinkLoad>> LoadsOf(const PeriodicJob& job);

/// Time that these loads take alone: the worst bytes / capacity. Infinite over a dead link.
Seconds SendingAlone(std::span<const BitsPerSecond> capacity, std::span<const LinkLoad> loads);
/// Time that the job's communication takes alone, all bursts together. Infinite over a dead link.
Seconds CommunicationAlone(std::span<const BitsPerSecond> capacity, const PeriodicJob& job);
/// Iteration time of the job alone.
Seconds IterationAlone(std::span<const BitsPerSecond> capacity, const PeriodicJob& job);

/// Over several phases: mean speeds and GPU use; counts and horizon are sums.
struct SteadyState {
  std::vector<Seconds> iteration;   ///< mean per job; infinite where a job came to no end
  std::vector<int64_t> whole;       ///< iterations that began and ended inside [0, horizon]
  double gpu_use = 0;               ///< share of all GPUs' time that is spent computing, 0 … 1
  Seconds horizon{0};               ///< simulated time
  int64_t events = 0;
};

struct PeriodicOptions {
  double warmup = 4;      ///< in iterations alone of the slowest job, not measured
  double measured = 20;   ///< in the same unit
  /// So many sets of first starts are simulated and their mean is taken; 1: the jobs' own. In the steady state of few jobs
  /// much depends on who happened to start when; an answer that only one set of starts makes good is luck.
  int32_t phases = 1;
};

/// The jobs of one network; Run() may be called for many classes and orders. Requires: 0 ≤ release ≤ compute, start ≥ 0,
/// bytes ≥ 0, links within `capacity`, and compute or communication > 0 for every job.
class PeriodicSimulator {
 public:
  PeriodicSimulator(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs,
                    PeriodicOptions options = {});

  size_t jobs() const { return jobs_.size(); }

  /// `classes[j]` ≥ 0, the lowest number is served first. Complexity: that of FluidSimulation::Run.
  SteadyState Run(std::span<const int32_t> classes) const;

 private:
  SteadyState RunPhase(std::span<const int32_t> classes, int32_t phase) const;
  SteadyState Measure(const FluidSimulation& fluid, double warm) const;

  PeriodicOptions options_;
  std::vector<BitsPerSecond> capacity_;              // of the links in use
  std::vector<FluidJob> jobs_;
  std::vector<std::vector<std::vector<LinkLoad>>> loads_;  // per job and burst, links as in capacity_
  std::vector<double> period_;                       // an iteration alone; 0 where it has no end
  double slowest_ = 0;                               // the longest of these
};

}  // namespace weft::planner::flows

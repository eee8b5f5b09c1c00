// Training jobs as a network sees them, and how fast they run together: each job computes for a while, then (or meanwhile)
// sends a fixed number of bytes over fixed links, and starts over when both are done. Strict priorities between classes,
// fair shares inside one. All flows of a job move in lock step, as a collective's do: its slowest link holds all.
//
//   PeriodicSimulator simulator(capacity, jobs);
//   const SteadyState together = simulator.Run(classes);   // class 0 first
//
// Leaves out: latency, and the order of transfers inside one iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"

namespace weft::planner {

/// What a job puts on one link in one iteration, as `flows` flows of equal size.
struct LinkLoad {
  LinkId link;
  Bytes bytes;
  double flows = 1;
};

/// One job. Iterations last max(compute, release + communication).
struct PeriodicJob {
  double gpus = 1;                ///< its weight in the cluster's GPU use
  Seconds compute{0};             ///< per iteration
  Seconds release{0};             ///< when in the iteration communication may start; `compute`: nothing overlaps
  std::vector<LinkLoad> loads;    ///< links distinct
  Seconds start{0};               ///< of the first iteration: the time shift
};

/// Time that the job's communication takes alone: its worst bytes / capacity. Infinite over a dead link.
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

  /// `classes[j]` ≥ 0, the lowest number is served first. Complexity: O(events · jobs) and one fair share per set of jobs
  /// that send at once (kept between events for up to 12 jobs).
  SteadyState Run(std::span<const int32_t> classes) const;

 private:
  struct Load {
    size_t link;
    double bits;
  };
  struct Job {
    double gpus, compute, release, start;
    double alone;             // seconds of communication
    double period;            // an iteration alone; 0 where it has no end
    double speed;             // iterations per bit of its largest flow
    std::vector<Load> shared; // on links that it shares
  };
  struct State;

  void Rates(const std::vector<size_t>& sending, std::span<const int32_t> classes, std::vector<double>* rate) const;
  void FillClass(const std::vector<size_t>& members, std::vector<double>* left, std::vector<double>* rate) const;
  void Refresh(State* state, std::span<const int32_t> classes) const;
  void Step(State* state) const;
  SteadyState Measure(const State& state) const;
  SteadyState RunPhase(std::span<const int32_t> classes, int32_t phase,
                       std::vector<std::vector<double>>* remembered) const;

  PeriodicOptions options_;
  std::vector<double> capacity_;  // of shared links
  std::vector<Job> jobs_;
  double slowest_ = 0;            // iteration alone of the slowest job
};

}  // namespace weft::planner

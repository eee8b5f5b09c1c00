// What a plan would lead to: the present state, run forward under it.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

/// A decision with the jobs that it makes.
struct TrialPlan {
  JobPaths paths;
  std::vector<PeriodicJob> jobs;    ///< on the paths
  std::vector<int32_t> classes;
  std::vector<Gate> gates;
};

TrialPlan MakeTrial(const Situation& situation, const Decision& decision);
/// The classes and gates in force, on the given paths; jobs that have just arrived are in the last class, which is the default, and open.
TrialPlan InForce(const Situation& situation, const JobPaths& paths);

struct Outcome {
  double gpu_use = 0;               ///< by Situation::useful: goodput, where that is given
  double mean_slowdown = 1;
  double p99_slowdown = 1;
  std::vector<double> slowdown;     ///< per job
  int64_t work = 0;                 ///< that it took to find out: FluidSimulation::work()
};

/// What predictions of computing are off by, at most: what fidelity.md says of the cost model, in round figures.
inline constexpr double kProfileSpread = 0.2;

/// Profiles that are wrong: every job's compute and bytes by factors of their own in [1 - spread, 1 + spread].
struct ProfileError {
  uint64_t seed = 0;
  double spread = 0;
};

/// Runs a fork of the situation's state for `iterations` of its slowest job alone, or to the scenario's end if that
/// is nearer. Where much more time is left than that, the first quarter does not count: jobs wait for their new
/// gates.
Outcome Evaluate(const Situation& situation, const TrialPlan& plan, double iterations, ProfileError error = {});

/// What Evaluate() would cost in units of Outcome::work, if every event had the rates solved of all jobs that links tie to its own.
/// Complexity: linear in loads.
double CostOfEvaluating(const Situation& situation, const std::vector<PeriodicJob>& jobs, double iterations);

/// Without a simulation: iterations if every link slowed all jobs that load it alike until they fit in the mean, whatever their
/// classes, and bursts never met. For plans of so many jobs that none can be simulated.
Outcome Estimate(const Situation& situation, const TrialPlan& plan);

}  // namespace weft::planner::jobs

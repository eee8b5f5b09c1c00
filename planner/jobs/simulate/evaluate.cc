#include "planner/jobs/simulate/evaluate.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace weft::planner::inline jobs {
namespace {

constexpr double kLongHorizon = 3;   // times what is simulated
constexpr double kCounted = 0.75;   // of what is simulated counts where more follows

void Distort(const Situation& situation, ProfileError error, FluidSimulation* fluid) {
  if (!(error.spread > 0)) return;
  std::mt19937_64 random(error.seed);
  const auto factor = [&] {  // the same on every platform, which uniform_real_distribution is not
    return 1 + error.spread * (static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  };
  for (const size_t slot : situation.slots) {
    const double compute = factor(), bytes = factor();
    fluid->Distort(slot, compute, bytes);
  }
}

/// Time that the job would take alone if it were as distorted: of one burst on its best paths, of several on these.
double Alone(const Situation& situation, const PeriodicJob& on_paths, size_t j, const FluidSimulation& fluid) {
  const auto [compute, bytes] = fluid.distortion(situation.slots[j]);
  const RoutableJob& job = situation.jobs[j];
  if (compute == 1 && bytes == 1) return situation.alone[j].count();
  if (!job.bursts.empty()) {
    std::vector<BurstTimes> times = TimesOf(on_paths);
    std::vector<double> sending;
    for (const std::vector<LinkLoad>& loads : LoadsOf(on_paths)) {
      sending.push_back(SendingAlone(situation.capacity, loads).count() * bytes);
    }
    for (BurstTimes& burst : times) burst = {burst.release * compute, burst.needed * compute};
    return IterationOf(job.compute * compute, times, sending).count();
  }
  const double sending = std::max(0.0, (situation.alone[j] - job.release).count());
  return std::max(job.compute.count() * compute, job.release.count() * compute + sending * bytes);
}

}  // namespace

TrialPlan MakeTrial(const Situation& situation, const Decision& decision) {
  return {decision.paths, OnPaths(situation, decision.paths), decision.classes, decision.gates};
}

Outcome Evaluate(const Situation& situation, const TrialPlan& plan, double iterations, ProfileError error) {
  FluidSimulation fluid = situation.state->Fork();
  Distort(situation, error, &fluid);
  std::vector<FluidSetting> settings(fluid.jobs());
  Seconds slowest(0);
  for (size_t j = 0; j < plan.jobs.size(); ++j) {
    settings[situation.slots[j]] = {LoadsOf(plan.jobs[j]), plan.classes[j], plan.gates[j]};
    slowest = std::max(slowest, situation.alone[j]);
  }
  fluid.Apply(std::move(settings));
  const Seconds until = fluid.now() + std::min(situation.horizon, iterations * slowest);
  while (fluid.Run(until)) {
  }
  const bool settle = situation.horizon > kLongHorizon * iterations * slowest;
  const double settled = (until - kCounted * iterations * slowest).count();
  Outcome outcome{.work = fluid.work()};
  std::vector<double> all;
  double computing = 0, gpus = 0, sum = 0;
  for (size_t j = 0; j < plan.jobs.size(); ++j) {
    const FluidProgress& progress = fluid.progress(situation.slots[j]);
    // Against the job alone in its fastest way.
    const double handicap = situation.best_alone.empty() ? 1 : situation.best_alone[j] / situation.alone[j];
    const double alone = Alone(situation, plan.jobs[j], j, fluid) * handicap;
    size_t first = 0;
    double begin = progress.begin;
    for (; settle && begin < settled && first + 1 < progress.durations.size(); ++first) {
      begin += progress.durations[first];
    }
    const auto done = static_cast<double>(progress.durations.size() - first);
    // A job that comes to no end counts as if it came to its end now: more would be a guess.
    const double iteration = done > 0 ? (progress.end - begin) / done : until.count() - begin;
    for (size_t i = first; i < progress.durations.size(); ++i) all.push_back(progress.durations[i] / alone);
    if (done == 0) all.push_back(std::max(1.0, iteration / alone));
    outcome.slowdown.push_back(done > 0 ? iteration / alone : std::max(1.0, iteration / alone));
    sum += outcome.slowdown.back();
    gpus += situation.jobs[j].gpus;
    const double compute = situation.jobs[j].compute.count() * fluid.distortion(situation.slots[j]).first;
    const double work = situation.useful.empty() || situation.useful[j] == 0 ? situation.jobs[j].gpus * compute : situation.useful[j];
    computing += std::min(situation.jobs[j].gpus, work / std::max(iteration, alone));
  }
  outcome.gpu_use = computing / gpus;
  outcome.mean_slowdown = sum / static_cast<double>(plan.jobs.size());
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(all.size()))) - 1;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rank), all.end());
  outcome.p99_slowdown = all[rank];
  return outcome;
}

}  // namespace weft::planner::jobs

#include "planner/jobs/decide/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace weft::planner::inline jobs {
namespace {

constexpr double kLoadsPerWork = 16;  // FluidSimulation::work()'s steps of one event
constexpr int kEstimateRounds = 50;
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

TrialPlan InForce(const Situation& situation, const JobPaths& paths) {
  TrialPlan plan{paths, OnPaths(situation, paths), {}, {}};
  for (const size_t slot : situation.slots) {
    const FluidSetting& setting = situation.state->setting(slot);
    const bool arrived = std::ranges::all_of(setting.loads, [](const std::vector<LinkLoad>& burst) { return burst.empty(); });
    plan.classes.push_back(arrived ? situation.classes - 1 : setting.priority);
    plan.gates.push_back(setting.gate);
  }
  return plan;
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

double CostOfEvaluating(const Situation& situation, const std::vector<PeriodicJob>& jobs, double iterations) {
  std::vector<double> asked(situation.capacity.size(), 0);   // of a link, by all that may send at once
  std::vector<std::map<size_t, double>> most(jobs.size());   // per job and link, over its bursts
  double slowest = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    slowest = std::max(slowest, situation.alone[j].count());
    for (const std::vector<LinkLoad>& loads : LoadsOf(jobs[j])) {
      const double alone = SendingAlone(situation.capacity, loads).count();
      for (const LinkLoad& load : loads) {
        double& rate = most[j][load.link.index()];
        if (alone > 0) rate = std::max(rate, static_cast<double>(load.bytes.count()) * 8 / alone);
      }
    }
    for (const auto& [link, rate] : most[j]) asked[link] += rate;
  }
  std::vector<size_t> parent(jobs.size()), user(asked.size(), jobs.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t j) {
    while (parent[j] != j) j = parent[j] = parent[parent[j]];
    return j;
  };
  std::vector<double> loads(jobs.size(), 0), events(jobs.size(), 0);
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (const auto& [link, rate] : most[j]) {
      if (asked[link] <= situation.capacity[link].value() * (1 + 1e-9)) continue;
      if (user[link] == jobs.size()) user[link] = j;
      parent[std::max(root(j), root(user[link]))] = std::min(root(j), root(user[link]));
      loads[j] += 1;
    }
  }
  std::vector<double> group_loads(jobs.size(), 0);
  for (size_t j = 0; j < jobs.size(); ++j) {
    group_loads[root(j)] += loads[j];
    const auto bursts = static_cast<double>(std::max<size_t>(1, jobs[j].bursts.size()));
    events[root(j)] += (1 + bursts) * iterations * slowest / situation.alone[j].count();
  }
  double cost = 0;
  for (size_t j = 0; j < jobs.size(); ++j) cost += events[j] * (1 + group_loads[j] / kLoadsPerWork);
  return cost;
}

Outcome Estimate(const Situation& situation, const TrialPlan& plan) {
  const size_t n = plan.jobs.size();
  std::vector<double> iteration;
  for (const Seconds alone : situation.alone) iteration.push_back(alone.count());
  std::vector<double> load(situation.capacity.size());
  for (int round = 0; round < kEstimateRounds; ++round) {
    std::fill(load.begin(), load.end(), 0);
    for (size_t j = 0; j < n; ++j) {
      for (const LinkLoad& on : plan.jobs[j].loads) load[on.link.index()] += static_cast<double>(on.bytes.count()) * 8 / iteration[j];
    }
    double most = 1;
    for (size_t j = 0; j < n; ++j) {
      double worst = 1;
      for (const LinkLoad& on : plan.jobs[j].loads) {
        const double capacity = situation.capacity[on.link.index()].value();
        if (on.bytes.count() > 0 && capacity > 0) worst = std::max(worst, load[on.link.index()] / capacity);
      }
      iteration[j] *= worst;
      most = std::max(most, worst);
    }
    if (most < 1 + 1e-6) break;
  }
  Outcome outcome{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 1};
  double gpus = 0;
  for (size_t j = 0; j < n; ++j) {
    const RoutableJob& job = situation.jobs[j];
    const double work = situation.useful.empty() || situation.useful[j] == 0 ? job.gpus * job.compute.count() : situation.useful[j];
    const double alone = situation.best_alone.empty() ? situation.alone[j].count() : situation.best_alone[j].count();
    outcome.slowdown.push_back(iteration[j] / alone);
    outcome.gpu_use += std::min(job.gpus, work / iteration[j]);
    outcome.mean_slowdown += outcome.slowdown.back() / static_cast<double>(n);
    outcome.p99_slowdown = std::max(outcome.p99_slowdown, outcome.slowdown.back());
    gpus += job.gpus;
  }
  outcome.gpu_use /= gpus;
  return outcome;
}

}  // namespace weft::planner::jobs

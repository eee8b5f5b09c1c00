#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "planner/baselines/baselines.h"
#include "planner/flows/compression.h"
#include "planner/flows/priority.h"

namespace weft::planner::inline baselines {
namespace {

constexpr int kSampledOrders = 10;  // the paper's m

std::vector<size_t> ByFalling(const std::vector<double>& value) {
  std::vector<size_t> order(value.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value[a] > value[b]; });
  return order;
}

/// A random order of places 0 … n - 1 in which every contention's first comes before its second.
std::vector<size_t> SampleOrder(size_t n, const std::vector<Contention>& contentions, std::mt19937_64* random) {
  std::vector<int32_t> before(n, 0);
  std::vector<std::vector<size_t>> after(n);
  for (const Contention& c : contentions) {
    after[c.first].push_back(c.second);
    ++before[c.second];
  }
  std::vector<size_t> ready, order;
  for (size_t i = 0; i < n; ++i) {
    if (before[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const size_t pick = static_cast<size_t>((*random)() % ready.size());
    const size_t next = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    order.push_back(next);
    for (const size_t i : after[next]) {
      if (--before[i] == 0) ready.push_back(i);
    }
  }
  return order;
}

}  // namespace

JobPaths CruxPaths(const Situation& situation) {
  // Intensity needs the time of communication, which needs paths: the paper measures it, here it is that of the best
  // paths.
  std::vector<double> intensity;
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    const RoutableJob& job = situation.jobs[j];
    const double sending = situation.alone[j].count() - job.release.count();
    intensity.push_back(job.flows.empty() || !(sending > 0) ? std::numeric_limits<double>::infinity()
                                                            : job.gpus * job.compute.count() / sending);
  }
  JobPaths paths(situation.jobs.size());
  std::vector<double> load(situation.capacity.size(), 0);  // bits per second, mean over time
  for (const size_t j : ByFalling(intensity)) {
    for (const RoutableFlow& flow : situation.jobs[j].flows) {
      const double rate = static_cast<double>(flow.bytes.count()) * 8 / situation.alone[j].count();
      size_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (size_t p = 0; p < flow.paths.size(); ++p) {
        double worst = 0;
        for (const LinkId link : flow.paths[p].links) {
          const double capacity = situation.capacity[link.index()].value();
          worst = std::max(worst, capacity > 0 ? (load[link.index()] + rate) / capacity
                                               : std::numeric_limits<double>::max());
        }
        if (worst < least) least = worst, best = p;
      }
      paths[j].push_back(best);
      for (const LinkId link : flow.paths[best].links) load[link.index()] += rate;
    }
  }
  return paths;
}

std::vector<int32_t> CruxClasses(const Situation& situation, const std::vector<PeriodicJob>& jobs) {
  const std::vector<double> priority = CorrectedIntensity(situation.capacity, jobs);
  const std::vector<size_t> by_priority = ByFalling(priority);
  const std::vector<Contention> contentions = Contentions(jobs, by_priority);
  std::mt19937_64 random(situation.seed);
  std::vector<int32_t> classes(jobs.size(), 0);
  double least = std::numeric_limits<double>::infinity();
  for (int sample = 0; sample < kSampledOrders; ++sample) {
    const std::vector<size_t> order = SampleOrder(jobs.size(), contentions, &random);
    std::vector<size_t> place(order.size());
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    CompressionProblem problem{.classes = situation.classes};
    for (const size_t i : order) problem.weight.push_back(std::min(priority[by_priority[i]], 1e12));
    for (const Contention& c : contentions) problem.contentions.push_back({place[c.first], place[c.second]});
    const std::vector<int32_t> by_place = CompressOrder(problem);
    const double loss = CompressionLoss(problem, by_place);
    if (loss >= least) continue;
    least = loss;
    for (size_t i = 0; i < order.size(); ++i) classes[by_priority[order[i]]] = by_place[i];
  }
  return classes;
}

Decision DecideCrux(const Situation& situation) {
  Decision decision{.paths = CruxPaths(situation)};
  const std::vector<PeriodicJob> jobs = OnPaths(situation, decision.paths);
  decision.classes = CruxClasses(situation, jobs);
  decision.gates.assign(jobs.size(), {});
  const std::vector<double> intensity = CorrectedIntensity(situation.capacity, jobs);
  for (const size_t j : ByFalling(intensity)) {
    decision.why.push_back(fmt::format("{}: corrected intensity {:.4g}, class {}", situation.names[j], intensity[j],
                                       decision.classes[j]));
  }
  return decision;
}

}  // namespace weft::planner::baselines

#include "cli/demo/bound.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

using planner::Topology;

NodeId Find(const Topology& topology, const std::string& name) {
  const auto node = topology.FindNode(name);
  WEFT_CHECK(node.has_value(), name);
  return *node;
}

void Limit(Topology& topology, const std::string& from, const std::string& to, BitsPerSecond by, double factor) {
  const auto link = topology.FindLink(Find(topology, from), Find(topology, to));
  WEFT_CHECK(link.has_value(), from + "->" + to);
  const BitsPerSecond left = topology.link(*link).capacity * factor - by;
  topology.SetCapacity(*link, std::max(left, BitsPerSecond(1)));
}

/// One job in the simulation. Times in seconds, amounts in bytes.
struct Running {
  const DataParallelIteration* job = nullptr;
  double start = 0;         // of the present iteration
  size_t bucket = 0;        // that is on the wire, or next
  double left = 0;          // of that bucket
  double reduced = 0;       // when the newest bucket was done
  int done = 0;             // iterations
  double steady_start = 0;  // when the warm-up ended

  double Wire(size_t i) const {
    return 2.0 * (job->ranks - 1) / job->ranks * static_cast<double>(job->buckets[i].bytes.count());
  }
  bool Communicates(double now) const {
    return bucket < job->buckets.size() && start + job->buckets[bucket].ready.count() <= now + 1e-12;
  }
  /// When something happens next to this job if it gets `rate` until then.
  double Next(double now, double rate) const {
    if (bucket == job->buckets.size()) {
      const double backward = start + (job->compute - job->after_backward).count();
      return std::max(backward, reduced) + job->after_backward.count();
    }
    return Communicates(now) ? now + left / rate : start + job->buckets[bucket].ready.count();
  }
};

constexpr int kWarmUp = 10, kIterations = 50;

/// When the jobs begin: job j its k-th iteration not before offsets[j] + k * pace. Pace 0: one after the other.
struct Schedule {
  std::vector<double> offsets;
  double pace = 0;
};

/// Mean iterations in the steady state, what jobs wait for their turn included.
std::vector<double> Simulate(const std::vector<BoundJob>& jobs, const std::vector<double>& rates,
                             const Schedule& schedule) {
  std::vector<Running> running(jobs.size());
  for (size_t j = 0; j < jobs.size(); ++j) {
    running[j].job = &jobs[j].iteration;
    running[j].start = schedule.offsets[j];
    running[j].left = running[j].Wire(0);
  }
  double now = 0;
  const auto finished = [](const Running& job) { return job.done >= kIterations; };
  while (!std::all_of(running.begin(), running.end(), finished)) {
    size_t set = 0;
    for (size_t j = 0; j < running.size(); ++j) set |= size_t{running[j].Communicates(now)} << j;
    double next = 1e300;
    for (const Running& job : running) next = std::min(next, job.Next(now, rates[set]));
    for (size_t j = 0; j < running.size(); ++j) {
      Running& job = running[j];
      const bool due = job.Next(now, rates[set]) <= next + 1e-12;
      if (set >> j & 1) job.left -= rates[set] * (next - now);
      if (!due) continue;
      if (job.bucket == job.job->buckets.size()) {
        job.start = std::max(next, schedule.offsets[j] + (job.done + 1) * schedule.pace);
        job.bucket = 0;
        job.left = job.Wire(0);
        if (++job.done == kWarmUp) job.steady_start = job.start;
        if (job.done == kIterations) job.steady_start = (job.start - job.steady_start) / (kIterations - kWarmUp);
      } else if (set >> j & 1) {
        job.reduced = next;
        if (++job.bucket < job.job->buckets.size()) job.left = job.Wire(job.bucket);
      }
    }
    now = next;
  }
  std::vector<double> means;
  for (const Running& job : running) means.push_back(job.steady_start);
  return means;
}

/// Paces between that of the slowest job without the others and that of all sharing the worst rate all the time. Jobs of
/// different compute that run freely drift past each other, and meet in every phase; at one pace they keep the best.
std::vector<double> Paces(const std::vector<BoundJob>& jobs, const std::vector<double>& rates) {
  constexpr int kGrid = 40;
  double least = 0, most = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const auto at = [&](size_t set) {
      return PredictIteration(jobs[j].iteration, BitsPerSecond(rates[set] * 8)).iteration.count();
    };
    least = std::max(least, at(size_t{1} << j));
    most = std::max(most, at(rates.size() - 1));
  }
  std::vector<double> paces{0};
  if (most < least * 1.001) return paces;  // they do not disturb each other
  for (int step = 0; step < kGrid; ++step) paces.push_back(least + (most - least) * step / kGrid);
  return paces;
}

/// The schedule that gives the least sum of iterations, over grids of paces and, for the second job on, of phases.
std::vector<Seconds> BestSchedule(const std::vector<BoundJob>& jobs, const std::vector<double>& rates) {
  constexpr int kGrid = 20;
  std::vector<double> best;
  double least = 1e300;
  for (const double pace : Paces(jobs, rates)) {
    for (int step = 0; step < kGrid; ++step) {
      Schedule schedule{.offsets = std::vector<double>(jobs.size(), 0.0), .pace = pace};
      for (size_t j = 1; j < jobs.size(); ++j) {
        const double cycle = pace > 0 ? pace : 2 * jobs[j].iteration.compute.count();
        schedule.offsets[j] = cycle * step / kGrid * static_cast<double>(j);
      }
      const std::vector<double> means = Simulate(jobs, rates, schedule);
      double sum = 0;
      for (const double mean : means) sum += mean;
      if (sum < least) {
        least = sum;
        best = means;
      }
    }
  }
  std::vector<Seconds> iterations;
  for (const double mean : best) iterations.push_back(Seconds(mean));
  return iterations;
}

std::string LeafOf(const BoundFabric& fabric, const std::string& host) {
  return fmt::format("leaf{}", (std::stoi(host.substr(1)) - 1) / fabric.hosts_per_leaf + 1);
}

}  // namespace

Bound ComputeBound(const BoundFabric& fabric, const std::vector<BoundJob>& jobs,
                   const std::vector<CableFactor>& cables, const std::vector<BackgroundFlow>& background) {
  planner::FlowProblem problem;
  problem.topology =
      planner::LeafSpine(fabric.leaves, fabric.spines, fabric.hosts_per_leaf, fabric.goodput);
  for (const CableFactor& cable : cables) {
    const std::string leaf = fmt::format("leaf{}", cable.leaf), spine = fmt::format("spine{}", cable.spine);
    Limit(problem.topology, leaf, spine, BitsPerSecond(0), cable.factor);
    Limit(problem.topology, spine, leaf, BitsPerSecond(0), cable.factor);
  }
  for (const BackgroundFlow& flow : background) {
    const std::string spine = fmt::format("spine{}", flow.spine);
    Limit(problem.topology, LeafOf(fabric, flow.from), spine, flow.rate, 1);
    Limit(problem.topology, spine, LeafOf(fabric, flow.to), flow.rate, 1);
  }
  std::vector<planner::FlowDemand> demands;
  std::vector<size_t> job_of;
  uint64_t key = 1;
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (size_t rank = 0; rank < jobs[j].hosts.size(); ++rank) {
      planner::FlowDemand demand;
      demand.key = key++;
      demand.job = jobs[j].name;
      demand.demand = fabric.goodput;
      const NodeId from = Find(problem.topology, jobs[j].hosts[rank]);
      const NodeId to = Find(problem.topology, jobs[j].hosts[(rank + 1) % jobs[j].hosts.size()]);
      for (auto& path : problem.topology.ShortestPaths(from, to)) demand.paths.push_back({std::move(path)});
      demands.push_back(std::move(demand));
      job_of.push_back(j);
    }
  }
  // rates[set]: what the worst flow gets while the jobs of the bit set communicate.
  std::vector<double> rates(size_t{1} << jobs.size(), 0.0);
  double utilisation = 0;
  for (size_t set = 1; set < rates.size(); ++set) {
    problem.flows.clear();
    for (size_t i = 0; i < demands.size(); ++i) {
      if (set >> job_of[i] & 1) problem.flows.push_back(demands[i]);
    }
    utilisation = planner::ChoosePaths(problem).bottleneck_bound;
    rates[set] = fabric.goodput.bytes_per_second() / std::max(1.0, utilisation);
  }
  Bound bound;
  bound.utilisation = utilisation;
  bound.shared_rate = BitsPerSecond(rates.back() * 8);
  for (size_t j = 0; j < jobs.size(); ++j) bound.alone_rates.push_back(BitsPerSecond(rates[size_t{1} << j] * 8));
  bound.iterations = BestSchedule(jobs, rates);
  return bound;
}

std::string ExplainBound(const BoundJob& job, const Bound& bound) {
  const auto& it = job.iteration;
  Bytes total;
  for (const auto& bucket : it.buckets) total += bucket.bytes;
  return fmt::format(
      "{}: bucket i starts at max(ready_i, end of i-1) and takes 2(n-1)/n S_i / rate; optimizer after the last; compute "
      "{} (of it {} after backward), {} in {} buckets, n = {}; rate {} while it communicates alone, {} while all do "
      "(least possible utilisation {:.3f}); best phase and pace",
      job.name, FormatDuration(it.compute), FormatDuration(it.after_backward), FormatBytes(total), it.buckets.size(),
      it.ranks, FormatRate(bound.alone_rates.front()), FormatRate(bound.shared_rate), bound.utilisation);
}

}  // namespace weft::cli

#include "cli/demo/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

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

constexpr int kWarmUp = 10, kIterations = 50;

/// When the jobs begin: job j its k-th iteration not before offsets[j] + k * pace. Pace 0: one after the other.
struct Schedule {
  std::vector<double> offsets;
  double pace = 0;
};

/// The buckets as bursts, all of them needed when the optimizer begins.
planner::FluidJob FluidOf(const DataParallelIteration& iteration, double start) {
  planner::FluidJob job{.compute = iteration.compute, .bursts = {}, .start = Seconds(start)};
  const Seconds backward = iteration.compute - iteration.after_backward;
  for (const Bucket& bucket : iteration.buckets) job.bursts.push_back({std::min(bucket.ready, backward), backward});
  return job;
}

/// Mean iterations in the steady state, what jobs wait for their turn included. Every job's ring is a flow over a link of its own,
/// which gives what it gets alone, and over one for both, which gives twice what both get together.
std::vector<double> Simulate(const std::vector<BoundJob>& jobs, const std::vector<double>& rates,
                             const Schedule& schedule) {
  std::vector<BitsPerSecond> capacity;
  for (size_t j = 0; j < jobs.size(); ++j) capacity.push_back(BitsPerSecond(rates[size_t{1} << j] * 8));
  const LinkId shared(static_cast<int32_t>(jobs.size()));
  capacity.push_back(BitsPerSecond(rates.back() * 8) * static_cast<double>(jobs.size()));
  planner::FluidSimulation fluid(capacity);
  std::vector<planner::FluidSetting> settings;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const DataParallelIteration& iteration = jobs[j].iteration;
    fluid.Add(FluidOf(iteration, schedule.offsets[j]));
    planner::FluidSetting& setting = settings.emplace_back();
    if (schedule.pace > 0) setting.gate = {.period = Seconds(schedule.pace), .first = Seconds(schedule.offsets[j]), .slack = Seconds(schedule.pace)};
    for (const Bucket& bucket : iteration.buckets) {
      const double wire = 2.0 * (iteration.ranks - 1) / iteration.ranks * static_cast<double>(bucket.bytes.count());
      const Bytes bytes(std::llround(wire));
      setting.loads.push_back({{LinkId(static_cast<int32_t>(j)), bytes}, {shared, bytes}});
    }
  }
  fluid.Apply(std::move(settings));
  const auto finished = [&](size_t j) { return fluid.progress(j).durations.size() >= kIterations; };
  Seconds until(0);
  for (const BoundJob& job : jobs) until = std::max(until, job.iteration.compute);
  for (bool done = false; !done;) {
    fluid.Run(until);
    until = 2 * until;
    done = true;
    for (size_t j = 0; j < jobs.size(); ++j) done &= finished(j);
  }
  std::vector<double> means;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const std::vector<double>& durations = fluid.progress(j).durations;
    means.push_back(std::accumulate(durations.begin() + kWarmUp, durations.begin() + kIterations, 0.0) / (kIterations - kWarmUp));
  }
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
  WEFT_CHECK(jobs.size() == 1 || jobs.size() == 2, "a bound of more than two jobs");
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

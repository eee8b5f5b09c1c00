#include "planner/flows/job_paths.h"

#include <algorithm>
#include <map>

#include "planner/flows/priority.h"

namespace weft::planner {
namespace {

constexpr double kGain = 1e-6;

std::vector<BitsPerSecond> Capacities(const Topology& topology) {
  std::vector<BitsPerSecond> capacity;
  for (const Link& link : topology.links()) capacity.push_back(link.capacity);
  return capacity;
}

/// Balanced whole paths: a flow's demand is its bytes per iteration of its job alone.
JobPaths Balanced(const Topology& topology, const std::vector<RoutableJob>& jobs) {
  FlowProblem problem{.topology = topology, .split_gain = 1e9};
  const std::vector<BitsPerSecond> capacity = Capacities(topology);
  for (size_t j = 0; j < jobs.size(); ++j) {
    const PeriodicJob alone = OnPaths(jobs[j], std::vector<size_t>(jobs[j].flows.size(), 0));
    const Seconds time = IterationAlone(capacity, alone);
    const double intensity = GpuIntensity(capacity, alone);
    for (const RoutableFlow& flow : jobs[j].flows) {
      const double rate = static_cast<double>(flow.bytes.count()) * 8 / time.count();
      problem.flows.push_back({.key = problem.flows.size(), .demand = BitsPerSecond(std::max(1.0, rate)),
                               .intensity = intensity, .paths = flow.paths});
    }
  }
  JobPaths paths;
  if (problem.flows.empty()) return JobPaths(jobs.size());
  const FlowPlan plan = ChoosePaths(problem);
  size_t next = 0;
  for (const RoutableJob& job : jobs) {
    paths.emplace_back();
    for (size_t f = 0; f < job.flows.size(); ++f, ++next) {
      const std::vector<double>& shares = plan.flows[next].shares;
      paths.back().push_back(static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin()));
    }
  }
  return paths;
}

}  // namespace

PeriodicJob OnPaths(const RoutableJob& job, const std::vector<size_t>& paths) {
  PeriodicJob made{.gpus = job.gpus, .compute = job.compute, .release = job.release};
  std::map<int32_t, LinkLoad> loads;
  for (size_t f = 0; f < job.flows.size(); ++f) {
    for (const LinkId link : job.flows[f].paths[paths[f]].links) {
      LinkLoad& load = loads.try_emplace(link.value(), LinkLoad{link, Bytes(0), 0}).first->second;
      load.bytes += job.flows[f].bytes;
      load.flows += 1;
    }
  }
  for (const auto& [link, load] : loads) made.loads.push_back(load);
  return made;
}

double GpuUse(const Topology& topology, const std::vector<RoutableJob>& jobs, const JobPaths& paths,
              const PeriodicOptions& simulation) {
  std::vector<PeriodicJob> made;
  for (size_t j = 0; j < jobs.size(); ++j) made.push_back(OnPaths(jobs[j], paths[j]));
  return PeriodicSimulator(Capacities(topology), made, simulation).Run(std::vector<int32_t>(jobs.size(), 0)).gpu_use;
}

JobPathPlan PlanJobPaths(const Topology& topology, const std::vector<RoutableJob>& jobs,
                         const JobPathOptions& options) {
  JobPathPlan plan{.paths = Balanced(topology, jobs)};
  int64_t left = options.evaluations;
  const auto use = [&](const JobPaths& paths) { return GpuUse(topology, jobs, paths, options.simulation); };
  plan.gpu_use = plan.gpu_use_balanced = use(plan.paths);
  for (bool improved = left > 0; improved;) {
    improved = false;
    for (size_t j = 0; j < jobs.size(); ++j) {
      for (size_t f = 0; f < jobs[j].flows.size(); ++f) {
        for (size_t p = 0; p < jobs[j].flows[f].paths.size(); ++p) {
          if (plan.paths[j][f] == p) continue;
          if (left-- <= 0) {
            plan.complete = false;
            return plan;
          }
          JobPaths trial = plan.paths;
          trial[j][f] = p;
          const double value = use(trial);
          if (value <= plan.gpu_use + kGain) continue;
          plan.gpu_use = value;
          plan.paths = std::move(trial);
          improved = true;
        }
      }
    }
  }
  return plan;
}

}  // namespace weft::planner

#include "planner/jobs/joint_group.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "planner/jobs/decide/parts.h"
#include "planner/jobs/decide/windows.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kShortest = 1e-3;     // of the slowest iteration of a group
constexpr double kMostGroupBytes = 0x1p62;   // of one job
constexpr Seconds kLong{1e9};          // they run until somebody asks again

/// The flow's single ways, and last how it goes now, as one path.
RoutableFlow Routable(const JointJob& job, const JointFlow& flow) {
  // Sums over flows stay exact.
  const double most = kMostGroupBytes / static_cast<double>(job.flows.size());
  const double bytes = std::min(most, static_cast<double>(flow.bytes.count()) / job.efficiency);
  RoutableFlow made{.bytes = Bytes(static_cast<int64_t>(bytes)), .paths = {}};
  std::map<LinkId, double> share;
  for (size_t p = 0; p < flow.paths.size(); ++p) {
    if (!(flow.shares[p] > 0)) continue;
    for (const LinkId link : flow.paths[p].links) share[link] += flow.shares[p];
  }
  made.paths = flow.paths;
  made.shares.resize(flow.paths.size());
  made.paths.emplace_back();
  made.shares.emplace_back();
  for (const auto& [link, part] : share) {
    made.paths.back().links.push_back(link);
    made.shares.back().push_back(std::min(1.0, part));
  }
  return made;
}

RoutableJob Routable(const JointJob& job) {
  RoutableJob made{.gpus = static_cast<double>(std::max<int64_t>(1, job.gpus)), .compute = job.compute, .release = job.release, .flows = {}};
  for (const JointFlow& flow : job.flows) made.flows.push_back(Routable(job, flow));
  return made;
}

std::vector<size_t> PathsNow(const RoutableJob& job) {
  std::vector<size_t> paths;
  for (const RoutableFlow& flow : job.flows) paths.push_back(flow.paths.size() - 1);
  return paths;
}

PeriodicJob AsItGoes(const RoutableJob& job) { return OnPaths(job, PathsNow(job)); }

std::vector<BitsPerSecond> Capacities(const Topology& topology) {
  std::vector<BitsPerSecond> capacity;
  for (const Link& link : topology.links()) capacity.push_back(link.capacity);
  return capacity;
}

/// 0 where it comes to no end, or is nothing.
double IterationNow(const std::vector<BitsPerSecond>& capacity, const JointJob& job) {
  const double iteration = IterationAlone(capacity, AsItGoes(Routable(job))).count();
  return std::isfinite(iteration) ? iteration : 0;
}

/// GPU use that the measured iterations come to; 0 where one is not known.
double MeasuredUse(const JointProblem& problem, const std::vector<size_t>& members) {
  double computing = 0, gpus = 0;
  for (const size_t j : members) {
    const JointJob& job = problem.jobs[j];
    if (!(job.measured.count() > 0)) return 0;
    const auto weight = static_cast<double>(std::max<int64_t>(1, job.gpus));
    computing += weight * std::min(1.0, job.compute / job.measured);
    gpus += weight;
  }
  return computing / gpus;
}

/// The windows that are in force; none where only one job has one, or the periods have no common cycle any more.
std::vector<Gate> WindowsInForce(const JointProblem& problem, const std::vector<size_t>& members,
                                 const std::vector<BitsPerSecond>& capacity, const std::vector<PeriodicJob>& jobs) {
  std::vector<std::optional<Seconds>> shift;
  for (const size_t j : members) shift.push_back(problem.jobs[j].shifted ? std::optional(problem.jobs[j].present_shift) : std::nullopt);
  const auto shifted = std::ranges::count_if(shift, [](const auto& one) { return one.has_value(); });
  // Pauses of unknown length: with the slack that long ones need.
  if (auto gates = CommonCycle(capacity, jobs, shift, kKeptStretch, 1); gates && shifted > 1) return *std::move(gates);
  return std::vector<Gate>(members.size());
}

}  // namespace

std::vector<std::vector<size_t>> JointGroups(const JointProblem& problem) {
  std::vector<size_t> parent(problem.jobs.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t j) {
    while (parent[j] != j) j = parent[j] = parent[parent[j]];
    return j;
  };
  const std::vector<BitsPerSecond> capacity = Capacities(problem.topology);
  std::vector<int64_t> user(problem.topology.links().size(), -1);
  std::vector<double> iteration(problem.jobs.size());
  for (size_t j = 0; j < problem.jobs.size(); ++j) {
    iteration[j] = IterationNow(capacity, problem.jobs[j]);
    if (!(iteration[j] > 0)) continue;
    for (const JointFlow& flow : problem.jobs[j].flows) {
      if (flow.bytes.count() <= 0) continue;
      for (const CandidatePath& path : flow.paths) {
        for (const LinkId link : path.links) {
          int64_t& first = user[link.index()];
          if (first < 0) first = static_cast<int64_t>(j);
          const size_t a = root(static_cast<size_t>(first)), b = root(j);
          parent[std::max(a, b)] = std::min(a, b);
        }
      }
    }
  }
  std::map<size_t, std::vector<size_t>> by_root;
  for (size_t j = 0; j < problem.jobs.size(); ++j) {
    if (iteration[j] > 0) by_root[root(j)].push_back(j);
  }
  std::vector<std::vector<size_t>> groups;
  for (auto& [first, members] : by_root) {
    double slowest = 0;
    for (const size_t j : members) slowest = std::max(slowest, iteration[j]);
    std::vector<size_t> kept;
    for (const size_t j : members) {
      if (iteration[j] >= kShortest * slowest) kept.push_back(j);
      else groups.push_back({j});
    }
    groups.push_back(std::move(kept));
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

Situation SituationOf(const JointProblem& problem, const std::vector<size_t>& members) {
  const JointOptions& options = problem.options;
  Situation situation{.topology = problem.topology, .capacity = Capacities(problem.topology), .classes = options.classes,
                      .objective = options.objective, .horizon = kLong};
  situation.measured = MeasuredRules{.paths_fixed = true, .steady = {}, .class_gain = options.class_gain, .shift_gain = options.shift_gain,
                                     .use = MeasuredUse(problem, members), .profile_error = options.profile_error,
                                     .hash_seeds = options.hash_seeds};
  const auto state = std::make_shared<FluidSimulation>(situation.capacity);
  std::vector<int32_t> classes;
  for (const size_t j : members) {
    const JointJob& job = problem.jobs[j];
    situation.jobs.push_back(Routable(job));
    situation.names.push_back(job.name);
    situation.keys.push_back(KeyOf(job.name));
    situation.alone.push_back(IterationAlone(situation.capacity, AsItGoes(situation.jobs.back())));
    situation.ways.emplace_back();
    situation.way.push_back(0);
    situation.present.push_back(PathsNow(situation.jobs.back()));
    situation.slots.push_back(state->Add(FluidOf(situation.jobs.back())));
    situation.measured->steady.push_back(job.stable);
    const bool known = job.present_class >= 0 && job.present_class < options.classes;
    classes.push_back(known ? job.present_class : options.classes - 1);
  }
  const std::vector<PeriodicJob> jobs = OnPaths(situation, situation.present);
  classes = LowestClasses(situation, jobs, std::move(classes));
  const std::vector<Gate> gates = WindowsInForce(problem, members, situation.capacity, jobs);
  std::vector<FluidSetting> settings;
  for (size_t i = 0; i < jobs.size(); ++i) settings.push_back({LoadsOf(jobs[i]), classes[i], gates[i]});
  state->Apply(std::move(settings));
  situation.state = state;
  return situation;
}

}  // namespace weft::planner::jobs

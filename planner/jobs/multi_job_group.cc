#include "planner/jobs/multi_job_group.h"

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

/// How the flow goes now, as one path: its links, and the share of the bytes over each.
std::pair<CandidatePath, std::vector<double>> AsItGoes(const MultiJobFlow& flow) {
  std::map<LinkId, double> share;
  for (size_t p = 0; p < flow.paths.size(); ++p) {
    if (!(flow.shares[p] > 0)) continue;
    for (const LinkId link : flow.paths[p].links) share[link] += flow.shares[p];
  }
  std::pair<CandidatePath, std::vector<double>> made;
  for (const auto& [link, part] : share) {
    made.first.links.push_back(link);
    made.second.push_back(std::min(1.0, part));
  }
  return made;
}

Bytes BytesOf(const MultiJobJob& job, const MultiJobFlow& flow) {
  // Sums over flows stay exact.
  const double most = kMostGroupBytes / static_cast<double>(job.flows.size());
  return Bytes(static_cast<int64_t>(std::min(most, static_cast<double>(flow.bytes.count()) / job.efficiency)));
}

/// As RoutableFlow has them.
std::vector<Bytes> PerBurst(const MultiJobJob& job, const MultiJobFlow& flow) {
  std::vector<Bytes> bytes(job.bursts.size(), Bytes(0));
  if (!bytes.empty()) bytes[std::min(flow.burst, bytes.size() - 1)] = BytesOf(job, flow);
  return bytes;
}

RoutableJob WithoutFlows(const MultiJobJob& job) {
  return {.gpus = static_cast<double>(std::max<int64_t>(1, job.gpus)), .compute = job.compute, .release = job.release, .flows = {},
          .bursts = job.bursts};
}

PeriodicJob AsItGoes(const MultiJobJob& job) {
  RoutableJob made = WithoutFlows(job);
  for (const MultiJobFlow& flow : job.flows) {
    auto [path, shares] = AsItGoes(flow);
    made.flows.push_back({.bytes = BytesOf(job, flow), .paths = {std::move(path)}, .per_burst = PerBurst(job, flow), .shares = {std::move(shares)}});
  }
  return OnPaths(made, std::vector<size_t>(made.flows.size(), 0));
}

std::vector<BitsPerSecond> Capacities(const Topology& topology) {
  std::vector<BitsPerSecond> capacity;
  for (const Link& link : topology.links()) capacity.push_back(link.capacity);
  return capacity;
}

/// 0 where it comes to no end, or is nothing.
double IterationNow(const std::vector<BitsPerSecond>& capacity, const MultiJobJob& job) {
  const double iteration = IterationAlone(capacity, AsItGoes(job)).count();
  return std::isfinite(iteration) ? iteration : 0;
}

/// GPU use that the measured iterations come to; 0 where one is not known.
double MeasuredUse(const MultiJobProblem& problem, const std::vector<size_t>& members) {
  double computing = 0, gpus = 0;
  for (const size_t j : members) {
    const MultiJobJob& job = problem.jobs[j];
    if (!(job.measured.count() > 0)) return 0;
    const auto weight = static_cast<double>(std::max<int64_t>(1, job.gpus));
    computing += weight * std::min(1.0, job.compute / job.measured);
    gpus += weight;
  }
  return computing / gpus;
}

/// The windows that are in force; none where only one job has one, or the periods have no common cycle any more.
std::vector<Gate> WindowsInForce(const MultiJobProblem& problem, const std::vector<size_t>& members,
                                 const std::vector<BitsPerSecond>& capacity, const std::vector<PeriodicJob>& jobs) {
  std::vector<std::optional<Seconds>> shift;
  for (const size_t j : members) shift.push_back(problem.jobs[j].shifted ? std::optional(problem.jobs[j].present_shift) : std::nullopt);
  const auto shifted = std::ranges::count_if(shift, [](const auto& one) { return one.has_value(); });
  // Pauses of unknown length: with the slack that long ones need.
  if (auto gates = CommonCycle(capacity, jobs, shift, kKeptStretch, 1); gates && shifted > 1) return *std::move(gates);
  return std::vector<Gate>(members.size());
}

/// What GroupOf() does.
class GroupMaker {
 public:
  GroupMaker(const MultiJobProblem& problem, std::vector<size_t> members) : problem_(problem) { made_.members = std::move(members); }

  MultiJobGroup Run() {
    Situation& situation = made_.situation;
    const MultiJobOptions& options = problem_.options;
    situation.topology = problem_.topology;
    for (size_t l = 0; l < problem_.background.size(); ++l) {
      const LinkId link(static_cast<int32_t>(l));
      const double left = problem_.topology.link(link).capacity.value() - problem_.background[l].value();
      situation.topology.SetCapacity(link, BitsPerSecond(std::max(0.0, left)));
    }
    situation.capacity = Capacities(situation.topology);
    situation.classes = options.classes, situation.objective = options.objective, situation.horizon = kLong;
    situation.measured = MeasuredRules{.paths_fixed = !options.paths, .steady = {}, .class_gain = options.class_gain,
                                       .shift_gain = options.shift_gain, .use = MeasuredUse(problem_, made_.members),
                                       .profile_error = options.profile_error, .hash_seeds = options.hash_seeds};
    const auto state = std::make_shared<FluidSimulation>(situation.capacity);
    std::vector<int32_t> classes;
    for (const size_t j : made_.members) {
      const MultiJobJob& job = problem_.jobs[j];
      AddJob(job);
      situation.slots.push_back(state->Add(FluidOf(situation.jobs.back())));
      const bool known = job.present_class >= 0 && job.present_class < options.classes;
      classes.push_back(known ? job.present_class : options.classes - 1);
    }
    classes = LowestClasses(situation, made_.now, std::move(classes));
    const std::vector<Gate> gates = WindowsInForce(problem_, made_.members, situation.capacity, made_.now);
    std::vector<FluidSetting> settings(classes.size());
    for (size_t i = 0; i < classes.size(); ++i) {
      settings[i] = {LoadsOf(made_.now[i]), classes[i], gates[i]};
      if (situation.present[i].empty()) settings[i] = {.loads = std::vector<std::vector<LinkLoad>>(settings[i].loads.size())};
    }
    state->Apply(std::move(settings));
    situation.state = state;
    return std::move(made_);
  }

 private:
  void AddJob(const MultiJobJob& job) {
    Situation& situation = made_.situation;
    const bool fixed = !problem_.options.paths, in_force = fixed || job.placed || job.present_class >= 0;
    RoutableJob& made = situation.jobs.emplace_back(WithoutFlows(job));
    std::vector<size_t>& present = situation.present.emplace_back();
    made_.numbers.emplace_back();
    for (const MultiJobFlow& flow : job.flows) {
      made.flows.push_back(Ways(job, flow));
      if (in_force) present.push_back(Present(flow, fixed, &made.flows.back()));
    }
    made_.now.push_back(AsItGoes(job));
    situation.names.push_back(job.name);
    situation.keys.push_back(KeyOf(job.name));
    situation.alone.push_back(IterationAlone(situation.capacity, fixed ? made_.now.back() : BestAlone(situation.topology, made)));
    situation.ways.emplace_back();
    situation.way.push_back(0);
    situation.measured->steady.push_back(job.stable);
  }

  /// The whole paths that are alive, all where none is, and what they can be divided into.
  RoutableFlow Ways(const MultiJobJob& job, const MultiJobFlow& flow) {
    const auto alive = [&](const CandidatePath& path) {
      return std::ranges::all_of(path.links, [&](LinkId link) { return made_.situation.capacity[link.index()].value() > 0; });
    };
    const bool any = std::ranges::any_of(flow.paths, alive);
    RoutableFlow made{.bytes = BytesOf(job, flow), .paths = {}, .per_burst = PerBurst(job, flow)};
    std::vector<size_t>& numbers = made_.numbers.back().emplace_back();
    for (size_t p = 0; p < flow.paths.size(); ++p) {
      if (any && !alive(flow.paths[p])) continue;
      made.paths.push_back(flow.paths[p]);
      numbers.push_back(p);
    }
    if (problem_.options.paths) AddSplits(&made, made_.situation.capacity);
    return made;
  }

  /// The path that is how the flow goes now; one more, if it is none of those that are there.
  static size_t Present(const MultiJobFlow& flow, bool always_one_more, RoutableFlow* made) {
    auto [path, shares] = AsItGoes(flow);
    const bool whole = std::ranges::all_of(shares, [](double share) { return share == 1; });
    for (size_t p = 0; !always_one_more && p < made->paths.size(); ++p) {
      std::vector<LinkId> links = made->paths[p].links;
      std::sort(links.begin(), links.end());
      if (links != path.links) continue;
      const bool divided = p < made->shares.size() && !made->shares[p].empty();
      if (whole && !divided) return p;
      if (!divided || made->shares[p].size() != shares.size()) continue;
      if (std::ranges::equal(made->shares[p], shares, [](double a, double b) { return std::abs(a - b) < kSameShare; })) return p;
    }
    made->shares.resize(made->paths.size());
    made->paths.push_back(std::move(path));
    made->shares.push_back(std::move(shares));
    return made->paths.size() - 1;
  }

  const MultiJobProblem& problem_;
  MultiJobGroup made_;
};

}  // namespace

std::vector<std::vector<size_t>> MultiJobGroups(const MultiJobProblem& problem) {
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
    for (const MultiJobFlow& flow : problem.jobs[j].flows) {
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

std::vector<std::vector<double>> MultiJobGroup::SharesOn(const MultiJobProblem& problem, size_t member,
                                                      const std::vector<size_t>& paths) const {
  const MultiJobJob& job = problem.jobs[members[member]];
  std::vector<std::vector<double>> all;
  for (size_t f = 0; f < paths.size(); ++f) {
    const RoutableFlow& flow = situation.jobs[member].flows[f];
    const bool as_now = paths[f] + 1 == flow.paths.size() && !situation.present[member].empty() && situation.present[member][f] == paths[f];
    if (as_now) {
      all.push_back(job.flows[f].shares);
      continue;
    }
    std::vector<double>& shares = all.emplace_back(job.flows[f].paths.size(), 0);
    const std::vector<double> whole = SharesOf(flow, paths[f]);
    for (size_t p = 0; p < whole.size(); ++p) shares[numbers[member][f][p]] = whole[p];
  }
  return all;
}

MultiJobGroup GroupOf(const MultiJobProblem& problem, std::vector<size_t> members) {
  return GroupMaker(problem, std::move(members)).Run();
}

}  // namespace weft::planner::jobs

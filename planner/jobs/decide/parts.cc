#include "planner/jobs/decide/parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "planner/flows/circle.h"
#include "planner/flows/priority.h"
#include "planner/flows/time_shift.h"

namespace weft::planner::inline jobs {
namespace {

constexpr int kRounds = 4;
constexpr double kLeastLeft = 0.02;       // of a link, that the others leave at least
constexpr size_t kMostShifted = 16;       // jobs of a group
constexpr size_t kMostShiftLinks = 12;    // of all groups together
constexpr CircleOptions kCircles{.most_repeats = 8, .exact_up_to = 3, .evaluations = 20'000, .edges = 256};
constexpr CircleOptions kMultiJobCircles{.most_repeats = 8, .exact_up_to = 3, .evaluations = 6'000, .edges = 256};
constexpr double kAlike = 1.05;           // ratio of periods of jobs of one family
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Bits(const LinkLoad& load) { return static_cast<double>(load.bytes.count()) * 8; }

/// Bits per second while the largest of its bursts is sent.
double MostAtOnce(const LinkUse& use) {
  double most = 0;
  for (const Burst& burst : use.bursts) most = std::max(most, burst.rate.value());
  return most;
}

/// A link on which jobs can collide.
struct Collision {
  LinkId link;
  std::vector<size_t> jobs;
  double overload = 0;   // their rates alone, together, over the capacity
};

/// Jobs of almost one period have one number.
std::vector<int32_t> Families(const Situation& situation, const std::vector<PeriodicJob>& jobs) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<double> period;
  for (const PeriodicJob& job : jobs) period.push_back(IterationAlone(situation.capacity, job).count());
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return period[a] < period[b]; });
  std::vector<int32_t> family(jobs.size(), 0);
  double first = 0;
  int32_t number = 0;
  for (const size_t j : order) {
    if (period[j] > first * kAlike) first = period[j], ++number;
    family[j] = number;
  }
  return family;
}

/// The worst link of every set of jobs, by falling overload; of jobs of one family only, where families are given.
std::vector<Collision> Collisions(const Situation& situation, const std::vector<PeriodicJob>& jobs,
                                  const std::vector<int32_t>& family = {}) {
  std::map<std::pair<int32_t, int32_t>, Collision> by_link;
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (const LinkUse& use : PatternOf(situation.capacity, jobs[j]).uses) {
      Collision& collision = by_link[{use.link.value(), family.empty() ? 0 : family[j]}];
      collision.link = use.link;
      collision.jobs.push_back(j);
      collision.overload += MostAtOnce(use) / situation.capacity[use.link.index()].value();
    }
  }
  std::map<std::vector<size_t>, Collision> worst;
  for (auto& [link, collision] : by_link) {
    if (collision.jobs.size() < 2 || collision.overload <= 1 + 1e-9) continue;
    Collision& best = worst[collision.jobs];
    if (collision.overload > best.overload) best = std::move(collision);
  }
  std::vector<Collision> result;
  for (auto& [who, collision] : worst) result.push_back(std::move(collision));
  std::stable_sort(result.begin(), result.end(),
                   [](const Collision& a, const Collision& b) { return a.overload > b.overload; });
  return result;
}

/// The collisions that tie no two jobs together that others tie already, the worst first: shifts of a graph without
/// loops are cheap to plan, and the simulation judges what was left out.
std::vector<Collision> WithoutLoops(size_t jobs, const std::vector<Collision>& collisions) {
  std::vector<size_t> group(jobs);
  std::iota(group.begin(), group.end(), size_t{0});
  std::vector<Collision> kept;
  for (const Collision& collision : collisions) {
    std::set<size_t> groups;
    for (const size_t j : collision.jobs) groups.insert(group[j]);
    if (groups.size() < collision.jobs.size() || kept.size() == kMostShiftLinks) continue;
    for (size_t& g : group) {
      if (groups.contains(g)) g = *groups.begin();
    }
    kept.push_back(collision);
  }
  return kept;
}

std::vector<std::vector<size_t>> GroupsOf(size_t jobs, const std::vector<Collision>& collisions) {
  std::vector<size_t> parent(jobs);
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t j) {
    while (parent[j] != j) j = parent[j] = parent[parent[j]];
    return j;
  };
  for (const Collision& collision : collisions) {
    for (const size_t j : collision.jobs) {
      const size_t a = root(j), b = root(collision.jobs[0]);
      parent[std::max(a, b)] = std::min(a, b);
    }
  }
  std::map<size_t, std::vector<size_t>> by_root;
  for (size_t j = 0; j < jobs; ++j) by_root[root(j)].push_back(j);
  std::vector<std::vector<size_t>> groups;
  for (auto& [first, members] : by_root) {
    if (members.size() > 1) groups.push_back(std::move(members));
  }
  return groups;
}

/// The periods of a group on one circle; all 0 where none of 12 turns fits.
std::vector<double> CommonPeriods(const Situation& situation, const std::vector<PeriodicJob>& jobs,
                                  const std::vector<size_t>& group, const std::vector<Collision>& collisions) {
  std::vector<CommunicationPattern> patterns;
  for (const size_t j : group) patterns.push_back({IterationAlone(situation.capacity, jobs[j]), {}});
  const LinkCircle circle = MakeCircle(GigabitsPerSecond(1), patterns, kCircles);
  std::vector<double> period(jobs.size(), 0);
  for (size_t i = 0; i < group.size(); ++i) period[group[i]] = circle.jobs[i].period.count();
  double busiest = 1;
  for (const Collision& collision : collisions) {
    double use = 0;
    for (const size_t j : collision.jobs) {
      if (period[j] == 0) continue;
      for (const LinkLoad& load : jobs[j].loads) {
        if (load.link == collision.link) use += Bits(load) / period[j];
      }
    }
    busiest = std::max(busiest, use / situation.capacity[collision.link.index()].value());
  }
  for (double& p : period) p *= busiest;
  return period;
}

/// Mean load per link in bits per second.
std::vector<double> MeanLoads(const Situation& situation, const JobPaths& paths) {
  std::vector<double> load(situation.capacity.size(), 0);
  for (size_t j = 0; j < paths.size(); ++j) {
    for (size_t f = 0; f < paths[j].size(); ++f) {
      const RoutableFlow& flow = situation.jobs[j].flows[f];
      const double rate = static_cast<double>(flow.bytes.count()) * 8 / situation.alone[j].count();
      const std::vector<LinkId>& links = flow.paths[paths[j][f]].links;
      for (size_t i = 0; i < links.size(); ++i) load[links[i].index()] += rate * flow.ShareOn(paths[j][f], i);
    }
  }
  return load;
}

/// What SelfAwarePaths() does: flow by flow, with the loads of all others known.
class SelfAwareChoice {
 public:
  SelfAwareChoice(const Situation& situation, JobPaths paths)
      : situation_(situation), paths_(std::move(paths)), load_(MeanLoads(situation, paths_)), own_(load_.size(), 0) {}

  JobPaths Run() {
    for (int round = 0, moved = 1; round < kRounds && moved > 0; ++round) {
      moved = 0;
      for (size_t j = 0; j < paths_.size(); ++j) moved += PlaceJob(j);
    }
    return std::move(paths_);
  }

 private:
  double Rate(size_t j, size_t f) const {
    return static_cast<double>(situation_.jobs[j].flows[f].bytes.count()) * 8 / situation_.alone[j].count();
  }
  const std::vector<LinkId>& Links(size_t j, size_t f) const {
    return situation_.jobs[j].flows[f].paths[paths_[j][f]].links;
  }

  int PlaceJob(size_t j) {
    const size_t flows = paths_[j].size();
    for (size_t f = 0; f < flows; ++f) {
      const std::vector<LinkId>& links = Links(j, f);
      for (size_t i = 0; i < links.size(); ++i) own_[links[i].index()] += Rate(j, f) * Share(j, f, i);
    }
    int moved = 0;
    for (size_t f = 0; f < flows; ++f) moved += situation_.jobs[j].flows[f].paths.size() > 1 && PlaceFlow(j, f);
    for (size_t f = 0; f < flows; ++f) {
      for (const LinkId link : Links(j, f)) own_[link.index()] = 0;
    }
    return moved;
  }

  double Share(size_t j, size_t f, size_t i) const { return situation_.jobs[j].flows[f].ShareOn(paths_[j][f], i); }

  void Add(size_t j, size_t f, double rate) {
    const std::vector<LinkId>& links = Links(j, f);
    for (size_t i = 0; i < links.size(); ++i) {
      load_[links[i].index()] += rate * Share(j, f, i);
      own_[links[i].index()] += rate * Share(j, f, i);
    }
  }

  bool PlaceFlow(size_t j, size_t f) {
    const double rate = Rate(j, f);
    const size_t old = paths_[j][f];
    Add(j, f, -rate);
    size_t best = old;
    double least = Cost(j, f, old, rate) * (1 - 1e-9);
    for (size_t p = 0; p < situation_.jobs[j].flows[f].paths.size(); ++p) {
      const double cost = p == old ? kInfinity : Cost(j, f, p, rate);
      if (cost < least) least = cost, best = p;
    }
    paths_[j][f] = best;
    Add(j, f, rate);
    return best != old;
  }

  /// The time that the job's own bytes take on the path's worst link, in units of its iteration; a little for all
  /// links.
  double Cost(size_t j, size_t f, size_t path, double rate) const {
    double worst = 0, sum = 0;
    const RoutableFlow& flow = situation_.jobs[j].flows[f];
    for (size_t i = 0; i < flow.paths[path].links.size(); ++i) {
      const LinkId link = flow.paths[path].links[i];
      const double capacity = situation_.capacity[link.index()].value();
      const double others = std::max(0.0, load_[link.index()] - own_[link.index()]);
      const double part =
          capacity > 0 ? (own_[link.index()] + rate * flow.ShareOn(path, i)) / (capacity * std::max(kLeastLeft, 1 - others / capacity)) : 1e9;
      worst = std::max(worst, part);
      sum += part * flow.ShareOn(path, i);
    }
    return worst + 1e-3 * sum;
  }

  const Situation& situation_;
  JobPaths paths_;
  std::vector<double> load_, own_;   // bits per second and link, in the mean: of all jobs, of the one being placed
};

}  // namespace

JobPaths BalancedPaths(const Situation& situation) {
  return BalancedJobPaths(situation.topology, situation.jobs);
}

JobPaths SelfAwarePaths(const Situation& situation, JobPaths start) {
  return SelfAwareChoice(situation, std::move(start)).Run();
}

JobPaths DividedPaths(const Situation& situation) {
  JobPaths paths;
  for (const RoutableJob& job : situation.jobs) {
    std::vector<size_t>& of_job = paths.emplace_back();
    for (size_t f = 0; f < job.flows.size(); ++f) {
      const size_t divided = job.flows[f].divided.size();
      of_job.push_back(divided == 0 ? 0 : job.flows[f].WholePaths() + f % divided);
    }
  }
  return paths;
}

JobPaths PresentPaths(const Situation& situation, const JobPaths& fallback) {
  JobPaths paths = fallback;
  for (size_t j = 0; j < paths.size(); ++j) {
    if (!situation.present[j].empty()) paths[j] = situation.present[j];
  }
  return paths;
}

std::vector<Gate> InterleavingGates(const Situation& situation, const std::vector<PeriodicJob>& jobs,
                                    const InterleaveOptions& options) {
  std::vector<Gate> gates(jobs.size());
  const std::vector<Collision> collisions =
      options.alike ? Collisions(situation, jobs, Families(situation, jobs)) : Collisions(situation, jobs);
  std::vector<double> period(jobs.size(), 0);
  for (const std::vector<size_t>& group : GroupsOf(jobs.size(), collisions)) {
    if (group.size() > kMostShifted) continue;
    const std::vector<double> common = CommonPeriods(situation, jobs, group, collisions);
    for (const size_t j : group) period[j] = common[j] * options.stretch;
  }
  std::vector<ShiftJob> patterns(jobs.size());
  for (size_t j = 0; j < jobs.size(); ++j) patterns[j].period = Seconds(period[j] > 0 ? period[j] : 1);
  for (const Collision& collision : options.loops ? collisions : WithoutLoops(jobs.size(), collisions)) {
    if (period[collision.jobs[0]] == 0) continue;
    for (const size_t j : collision.jobs) {
      for (LinkUse& use : PatternOf(situation.capacity, jobs[j]).uses) {
        if (use.link == collision.link) patterns[j].uses.push_back(std::move(use));
      }
    }
  }
  const ShiftPlan plan = PlanTimeShifts(situation.capacity, patterns, options.loops ? kMultiJobCircles : kCircles);
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (period[j] == 0) continue;
    const Seconds alone = IterationAlone(situation.capacity, jobs[j]);
    gates[j] = {Seconds(period[j]), situation.state->now() + plan.shift[j], Seconds(period[j]) - alone};
  }
  return gates;
}

std::vector<int32_t> LowestClasses(const Situation& situation, const std::vector<PeriodicJob>& jobs, std::vector<int32_t> classes) {
  std::vector<size_t> user(situation.capacity.size(), jobs.size());   // the first of each link
  std::set<size_t> meeting;
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (const LinkLoad& load : jobs[j].loads) {
      if (load.bytes.count() == 0) continue;
      size_t& first = user[load.link.index()];
      if (first == jobs.size()) first = j;
      else if (first != j) meeting.insert({first, j});
    }
  }
  std::set<int32_t> used;
  for (const size_t j : meeting) used.insert(classes[j]);
  for (size_t j = 0; j < classes.size(); ++j) {
    const auto above = static_cast<int32_t>(std::distance(used.upper_bound(classes[j]), used.end()));
    classes[j] = situation.classes - 1 - (meeting.contains(j) ? above : 0);
  }
  return classes;
}

}  // namespace weft::planner::jobs

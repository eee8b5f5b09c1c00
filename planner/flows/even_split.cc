#include "planner/flows/even_split.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "planner/flows/local_search.h"

namespace weft::planner::inline flows {
namespace {

constexpr size_t kMostJobs = 2;  // per way: of many jobs some are always busy, and lanes have a cost
constexpr double kIdle = 0.05;    // of the group's largest demand
// What flows may lose while all are busy, so that the one with least has more while its job alone is: a tenth of what it gains,
// relatively, at least 2 % (parts are coarse), at most 7 %.
constexpr double kLossPerGain = 0.1, kLeastLoss = 0.02, kMostLoss = 0.07;

/// A flow's usable paths in an order of their own, each by the links that it does not share with all others of them.
using Ways = std::vector<std::pair<PathLinks, size_t>>;
using Group = std::vector<std::pair<size_t, Ways>>;

Ways WaysOf(const InstanceFlow& flow) {
  std::map<int32_t, size_t> users;
  for (const size_t p : flow.usable) {
    for (const int32_t link : flow.paths[p]) ++users[link];
  }
  Ways ways;
  for (const size_t p : flow.usable) {
    PathLinks own;
    std::copy_if(flow.paths[p].begin(), flow.paths[p].end(), std::back_inserter(own),
                 [&](int32_t link) { return users[link] < flow.usable.size(); });
    ways.emplace_back(std::move(own), p);
  }
  std::sort(ways.begin(), ways.end());
  return ways;
}

/// What each way carries of the group's demand, in sum 1.
std::vector<double> Carried(const Instance& instance, const Group& group, const Shares& shares) {
  std::vector<double> carried(group.front().second.size());
  double demand = 0;
  for (const auto& [f, ways] : group) {
    demand += instance.flows[f].demand;
    for (size_t i = 0; i < carried.size(); ++i) carried[i] += instance.flows[f].demand * shares[f][ways[i].second];
  }
  for (double& each : carried) each /= demand;
  return carried;
}

/// What jobs load while all others pause.
class JobsAlone {
 public:
  explicit JobsAlone(const Instance& instance) : instance_(instance) {
    for (size_t f = 0; f < instance.flows.size(); ++f) {
      flows_.resize(std::max(flows_.size(), instance.flows[f].job + 1));
      flows_[instance.flows[f].job].push_back(f);
    }
  }

  size_t jobs() const { return flows_.size(); }
  const std::vector<size_t>& flows(size_t job) const { return flows_[job]; }

  /// Bits per second by link.
  std::map<int32_t, double> Loads(size_t job, const Shares& shares) const {
    std::map<int32_t, double> loads;
    for (const size_t f : flows_[job]) {
      const InstanceFlow& flow = instance_.flows[f];
      for (const size_t p : flow.usable) {
        if (shares[f][p] <= 0) continue;
        for (const int32_t link : flow.paths[p]) loads[link] += shares[f][p] * flow.demand;
      }
    }
    return loads;
  }

  /// What flow f has of its demand, at most 1.
  double ServedOf(size_t f, const Shares& shares, const std::map<int32_t, double>& loads) const {
    double served = 1;
    const InstanceFlow& flow = instance_.flows[f];
    for (const size_t p : flow.usable) {
      if (shares[f][p] <= 0) continue;
      for (const int32_t link : flow.paths[p]) {
        served = std::min(served, instance_.capacity[static_cast<size_t>(link)] / loads.at(link));
      }
    }
    return served;
  }

  /// The least of the group's flows.
  double Least(const Group& group, const Shares& shares) const {
    std::map<size_t, std::map<int32_t, double>> loads;
    double least = 1;
    for (const auto& [f, ways] : group) {
      const auto [entry, is_new] = loads.try_emplace(instance_.flows[f].job);
      if (is_new) entry->second = Loads(entry->first, shares);
      least = std::min(least, ServedOf(f, shares, entry->second));
    }
    return least;
  }

 private:
  const Instance& instance_;
  std::vector<std::vector<size_t>> flows_;
};

/// Whether some flow with a choice is held by more than `gain` by its own job's flows alone.
bool AnyHeld(const Instance& instance, const JobsAlone& alone, const Shares& shares, double gain) {
  for (size_t job = 0; job < alone.jobs(); ++job) {
    const auto loads = alone.Loads(job, shares);
    for (const size_t f : alone.flows(job)) {
      if (instance.flows[f].usable.size() >= 2 && alone.ServedOf(f, shares, loads) * (1 + gain) < 1) return true;
    }
  }
  return false;
}

/// The flows of a group that count, beside its largest.
Group BusyOf(const Instance& instance, const Group& group) {
  double most = 0;
  for (const auto& [f, ways] : group) most = std::max(most, instance.flows[f].demand);
  Group busy;
  std::copy_if(group.begin(), group.end(), std::back_inserter(busy),
               [&](const auto& entry) { return instance.flows[entry.first].demand >= kIdle * most; });
  return busy;
}

size_t JobsOf(const Instance& instance, const Group& group) {
  std::set<size_t> jobs;
  for (const auto& [f, ways] : group) jobs.insert(instance.flows[f].job);
  return jobs.size();
}

/// Whether the group's flows, the one with least and all of them in sum, have lost no more than `loss` of their rates, and no other
/// flow more than kLeastLoss. Both as StripedRates() has them.
bool AsGood(const Instance& instance, const Group& group, const std::vector<double>& now, std::vector<double> before, double loss) {
  double least_now = 1e300, least_before = 1e300, sum_now = 0, sum_before = 0;
  for (const auto& [f, ways] : group) {
    least_now = std::min(least_now, now[f] / instance.flows[f].demand);
    least_before = std::min(least_before, before[f] / instance.flows[f].demand);
    sum_now += now[f], sum_before += before[f];
    before[f] = 0;  // the others are left
  }
  const bool others = std::equal(now.begin(), now.end(), before.begin(),
                                 [](double rate, double then) { return rate >= then * (1 - kLeastLoss); });
  return others && least_now >= least_before * (1 - loss) && sum_now >= sum_before * (1 - loss);
}

std::map<std::vector<PathLinks>, Group> Groups(const Instance& instance) {
  std::map<std::vector<PathLinks>, Group> groups;
  for (size_t f = 0; f < instance.flows.size(); ++f) {
    if (instance.flows[f].usable.size() < 2) continue;
    Ways ways = WaysOf(instance.flows[f]);
    std::vector<PathLinks> key;
    for (const auto& [own, path] : ways) key.push_back(own);
    groups[std::move(key)].emplace_back(f, std::move(ways));
  }
  return groups;
}

/// The busy flows of each group that may be split alike.
std::vector<Group> GroupsOfFewJobs(const Instance& instance) {
  std::vector<Group> found;
  for (const auto& [key, group] : Groups(instance)) {
    Group busy = BusyOf(instance, group);
    if (busy.size() >= 2 && JobsOf(instance, busy) <= kMostJobs * key.size()) found.push_back(std::move(busy));
  }
  return found;
}

/// Every flow of the group sends rounded[i] of `units` over its i-th way.
void SetAlike(const Group& group, const std::vector<int32_t>& rounded, int32_t units, Shares& shares) {
  for (const auto& [f, ways] : group) {
    shares[f].assign(shares[f].size(), 0);
    for (size_t i = 0; i < rounded.size(); ++i) shares[f][ways[i].second] = static_cast<double>(rounded[i]) / units;
  }
}

}  // namespace

Shares Evened(const Instance& instance, const Shares& shares, int32_t units) {
  Shares evened = shares;
  for (const Group& busy : GroupsOfFewJobs(instance)) {
    SetAlike(busy, RoundShares({Carried(instance, busy, shares)}, units).front(), units, evened);
  }
  return evened;
}

Shares SplitAlike(const Instance& instance, Shares shares, const std::vector<bool>& moves, double gain, int64_t budget) {
  const JobsAlone jobs(instance);
  if (!AnyHeld(instance, jobs, shares, gain)) return shares;
  std::vector<double> rates = StripedRates(instance, shares);
  const double fullest = Bottleneck(instance, shares);
  for (const Group& busy : GroupsOfFewJobs(instance)) {
    if (std::none_of(busy.begin(), busy.end(), [&](const auto& entry) { return moves[entry.first]; })) continue;
    const double alone = jobs.Least(busy, shares);
    if (alone * (1 + gain) >= 1) continue;
    const std::vector<double> carried = Carried(instance, busy, shares);
    for (const int32_t units : kSplitUnits) {
      budget -= static_cast<int64_t>(instance.flows.size());
      if (budget < 0) return shares;
      const std::vector<int32_t> rounded = RoundShares({carried}, units).front();
      Shares trial = shares;
      SetAlike(busy, rounded, units, trial);
      const double gained = jobs.Least(busy, trial) / alone - 1;
      if (gained <= gain) continue;
      const double loss = std::clamp(kLossPerGain * gained, kLeastLoss, kMostLoss);
      if (Bottleneck(instance, trial) > fullest * (1 + loss)) continue;
      std::vector<double> then = StripedRates(instance, trial);
      if (!AsGood(instance, busy, then, rates, loss)) continue;
      rates = std::move(then);
      shares = std::move(trial);
      break;
    }
  }
  return shares;
}

}  // namespace weft::planner::flows

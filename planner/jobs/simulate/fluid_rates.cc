// Who holds whom, and the rates that follow.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "planner/jobs/simulate/fluid.h"

namespace weft::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSame = 1e-9;
constexpr size_t kMaskBits = 24;     // of a set of sending members: sets of larger groups hardly ever come back
constexpr size_t kMostSets = 4096;   // whose rates a group remembers

}  // namespace

/// Links that can be full, as (job, bits) of their users, with their capacities; of links with the same users and
/// bits the smallest only.
std::vector<std::vector<std::pair<size_t, double>>> FluidSimulation::ContendedLinks(
    std::vector<double>* capacity) const {
  std::vector<std::vector<std::pair<size_t, double>>> users(capacity_.size());
  for (size_t j = 0; j < jobs_.size(); ++j) {
    if (jobs_[j].phase == Phase::kGone || !(jobs_[j].alone < kInfinity)) continue;
    for (const LinkLoad& load : settings_[j].loads) {
      const double bits = jobs_[j].scale * static_cast<double>(load.bytes.count()) * 8;
      if (bits > 0) users[load.link.index()].emplace_back(j, bits);
    }
  }
  std::map<std::vector<std::pair<size_t, double>>, double> tightest;
  for (size_t l = 0; l < users.size(); ++l) {
    if (users[l].size() < 2) continue;
    double together = 0;
    for (const auto& [j, bits] : users[l]) together += bits / jobs_[j].alone;
    if (together <= capacity_[l].value() * (1 + kSame)) continue;
    const auto [at, added] = tightest.try_emplace(std::move(users[l]), capacity_[l].value());
    if (!added) at->second = std::min(at->second, capacity_[l].value());
  }
  std::vector<std::vector<std::pair<size_t, double>>> links;
  for (const auto& [link, rate] : tightest) {
    links.push_back(link);
    capacity->push_back(rate);
  }
  return links;
}

void FluidSimulation::BuildGroups() {
  std::vector<double> capacity;
  const auto links = ContendedLinks(&capacity);
  std::vector<size_t> parent(jobs_.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t j) {
    while (parent[j] != j) j = parent[j] = parent[parent[j]];
    return j;
  };
  for (const auto& link : links) {
    for (const auto& [j, bits] : link) parent[root(j)] = root(link[0].first);
  }
  groups_.clear();
  dirty_.clear();
  std::vector<int32_t> group_of(jobs_.size(), -1);
  for (size_t j = 0; j < jobs_.size(); ++j) {
    if (jobs_[j].phase == Phase::kGone) continue;
    int32_t& g = group_of[root(j)];
    if (g < 0) {
      g = static_cast<int32_t>(groups_.size());
      groups_.emplace_back();
    }
    Group& group = groups_[static_cast<size_t>(g)];
    jobs_[j].group = g;
    jobs_[j].member = group.members.size();
    group.members.push_back(j);
    group.loads.emplace_back();
  }
  for (size_t l = 0; l < links.size(); ++l) {
    Group& group = groups_[static_cast<size_t>(jobs_[links[l][0].first].group)];
    group.users.emplace_back();
    for (const auto& [j, bits] : links[l]) {
      group.loads[jobs_[j].member].push_back({group.capacity.size(), bits});
      group.users.back().push_back(jobs_[j].member);
    }
    group.capacity.push_back(capacity[l]);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.by_class.resize(group.members.size());
    std::iota(group.by_class.begin(), group.by_class.end(), size_t{0});
    std::stable_sort(group.by_class.begin(), group.by_class.end(), [&](size_t a, size_t b) {
      return settings_[group.members[a]].priority < settings_[group.members[b]].priority;
    });
    group.dirty = true;
    dirty_.push_back(g);
  }
}

/// The member grows no further: its rate is the same on all of its links from now on.
void FluidSimulation::Freeze(const Group& group, size_t member, double rate) {
  const double speed = jobs_[group.members[member]].speed;
  for (const Load& load : group.loads[member]) {
    filling_.left[load.link] -= load.bits * rate;
    filling_.demand[load.link] -= load.bits * speed;
    --filling_.growing[load.link];
  }
  solved_ += static_cast<int64_t>(group.loads[member].size());
}

/// Raises the rates of `places` together, progressive filling: at each round the members that a full link or their own
/// pace holds stay behind. A rate below 0 is not known yet.
void FluidSimulation::FillClass(const Group& group, std::span<const size_t> places, std::vector<double>* rate) {
  Filling& f = filling_;
  f.active.clear();
  for (const size_t m : places) {
    for (const Load& load : group.loads[m]) {
      if (f.growing[load.link]++ == 0) f.active.push_back(load.link), f.demand[load.link] = 0;
      f.demand[load.link] += load.bits * jobs_[group.members[m]].speed;
    }
    solved_ += static_cast<int64_t>(group.loads[m].size());
  }
  std::vector<size_t> growing(places.begin(), places.end());
  while (!growing.empty()) {
    solved_ += static_cast<int64_t>(f.active.size() + growing.size());
    const auto pace = [&](size_t m) { return 1 / (jobs_[group.members[m]].alone * jobs_[group.members[m]].speed); };
    double level = kInfinity;
    for (const size_t m : growing) level = std::min(level, pace(m));
    for (const size_t l : f.active) level = std::min(level, std::max(0.0, f.left[l]) / f.demand[l]);
    const double reached = level * (1 + 1e-12);
    const auto hold = [&](size_t m) {
      if ((*rate)[m] < 0) (*rate)[m] = level * jobs_[group.members[m]].speed;
    };
    for (const size_t m : growing) {
      if (pace(m) <= reached) hold(m);
    }
    for (const size_t l : f.active) {
      if (std::max(0.0, f.left[l]) > reached * f.demand[l]) continue;
      for (const size_t m : group.users[l]) hold(m);
    }
    std::erase_if(growing, [&](size_t m) {
      if ((*rate)[m] < 0) return false;
      Freeze(group, m, (*rate)[m]);
      return true;
    });
    std::erase_if(f.active, [&](size_t l) { return f.growing[l] == 0; });
  }
}

void FluidSimulation::Solve(const Group& group, std::vector<double>* rate) {
  solved_ += static_cast<int64_t>(group.members.size() + group.capacity.size());
  rate->assign(group.members.size(), 0);
  filling_.left = group.capacity;
  filling_.demand.assign(group.capacity.size(), 0);
  filling_.growing.assign(group.capacity.size(), 0);
  std::vector<size_t> places;
  for (size_t i = 0; i < group.by_class.size();) {
    places.clear();
    const int32_t priority = settings_[group.members[group.by_class[i]]].priority;
    for (; i < group.by_class.size(); ++i) {
      const size_t m = group.by_class[i], j = group.members[m];
      if (settings_[j].priority != priority) break;
      if (jobs_[j].phase != Phase::kSending || !(jobs_[j].alone > 0) || !(jobs_[j].alone < kInfinity)) continue;
      (*rate)[m] = -1;  // not known yet
      places.push_back(m);
    }
    FillClass(group, places, rate);
  }
}

/// Takes the rates of the group's present set of sending jobs into use.
void FluidSimulation::Refresh(Group* group) {
  group->dirty = false;
  uint64_t set = 0;
  const bool remember = group->members.size() <= kMaskBits;
  for (size_t m = 0; m < group->members.size() && remember; ++m) {
    if (jobs_[group->members[m]].phase == Phase::kSending) set |= uint64_t{1} << m;
  }
  std::vector<double> solved;
  const std::vector<double>* rates = &solved;
  if (remember) {
    if (group->rates.size() >= kMostSets && !group->rates.contains(set)) group->rates.clear();
    std::vector<double>& known = group->rates[set];
    if (known.empty()) Solve(*group, &known);
    rates = &known;
  } else {
    Solve(*group, &solved);
  }
  for (size_t m = 0; m < group->members.size(); ++m) {
    const size_t j = group->members[m];
    if (jobs_[j].phase == Phase::kSending && jobs_[j].alone > 0) SetRate(j, (*rates)[m]);
  }
}

}  // namespace weft::planner

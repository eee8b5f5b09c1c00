// Who holds whom, and the rates that follow.
#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>

#include "planner/network/fluid.h"

namespace weft::planner::inline network {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSame = 1e-9;
constexpr size_t kMostMembers = 24;  // sets of what larger groups send hardly ever come back
constexpr int32_t kMostBits = 63;    // of the number that says which bursts are sent
constexpr size_t kMostSets = 4096;   // whose rates a group remembers

}  // namespace

/// Links that can be full, as the bursts that use them, with their capacities; of links with the same users and
/// bits the smallest only.
std::vector<std::vector<FluidSimulation::Use>> FluidSimulation::ContendedLinks(std::vector<double>* capacity) const {
  std::vector<std::vector<Use>> users(capacity_.size());
  for (size_t j = 0; j < jobs_.size(); ++j) {
    if (jobs_[j].phase == Phase::kGone) continue;
    for (size_t b = 0; b < jobs_[j].bursts; ++b) {
      if (!(bursts_[jobs_[j].first + b].alone < kInfinity)) continue;
      for (const LinkLoad& load : settings_[j].loads[b]) {
        const double bits = jobs_[j].scale * static_cast<double>(load.bytes.count()) * 8;
        if (bits > 0) users[load.link.index()].push_back({j, b, bits});
      }
    }
  }
  std::map<std::vector<Use>, double> tightest;
  for (size_t l = 0; l < users.size(); ++l) {
    if (users[l].empty() || users[l].front().job == users[l].back().job) continue;
    // A job sends one burst at a time.
    double together = 0, most = 0;
    for (size_t u = 0; u < users[l].size(); ++u) {
      const Use& use = users[l][u];
      most = std::max(most, use.bits / bursts_[jobs_[use.job].first + use.burst].alone);
      if (u + 1 < users[l].size() && users[l][u + 1].job == use.job) continue;
      together += most;
      most = 0;
    }
    if (together <= capacity_[l].value() * (1 + kSame)) continue;
    const auto [at, added] = tightest.try_emplace(std::move(users[l]), capacity_[l].value());
    if (!added) at->second = std::min(at->second, capacity_[l].value());
  }
  std::vector<std::vector<Use>> links;
  for (const auto& [link, rate] : tightest) {
    links.push_back(link);
    capacity->push_back(rate);
  }
  return links;
}

void FluidSimulation::BuildGroups() {
  std::vector<double> capacity;
  const std::vector<std::vector<Use>> links = ContendedLinks(&capacity);
  std::vector<size_t> parent(jobs_.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t j) {
    while (parent[j] != j) j = parent[j] = parent[parent[j]];
    return j;
  };
  for (const std::vector<Use>& link : links) {
    for (const Use& use : link) parent[root(use.job)] = root(link[0].job);
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
    group.loads.emplace_back(jobs_[j].bursts);
    group.bits += std::bit_width(jobs_[j].bursts);
  }
  FillGroups(links, capacity);
}

void FluidSimulation::FillGroups(const std::vector<std::vector<Use>>& links, const std::vector<double>& capacity) {
  for (size_t l = 0; l < links.size(); ++l) {
    Group& group = groups_[static_cast<size_t>(jobs_[links[l][0].job].group)];
    group.users.emplace_back();
    for (const Use& use : links[l]) {
      const size_t member = jobs_[use.job].member;
      group.loads[member][use.burst].push_back({group.capacity.size(), use.bits});
      group.users.back().push_back({member, use.burst});
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
  const Job& job = jobs_[group.members[member]];
  const double speed = Current(job).speed;
  for (const Load& load : group.loads[member][job.burst]) {
    filling_.left[load.link] -= load.bits * rate;
    filling_.demand[load.link] -= load.bits * speed;
    --filling_.growing[load.link];
  }
  solved_ += static_cast<int64_t>(group.loads[member][job.burst].size());
}

/// Raises the rates of `places` together, progressive filling: at each round the members that a full link or their own
/// pace holds stay behind. A rate below 0 is not known yet.
void FluidSimulation::FillClass(const Group& group, std::span<const size_t> places, std::vector<double>* rate) {
  Filling& f = filling_;
  f.active.clear();
  for (const size_t m : places) {
    const Job& job = jobs_[group.members[m]];
    for (const Load& load : group.loads[m][job.burst]) {
      if (f.growing[load.link]++ == 0) f.active.push_back(load.link), f.demand[load.link] = 0;
      f.demand[load.link] += load.bits * Current(job).speed;
    }
    solved_ += static_cast<int64_t>(group.loads[m][job.burst].size());
  }
  std::vector<size_t> growing(places.begin(), places.end());
  while (!growing.empty()) {
    solved_ += static_cast<int64_t>(f.active.size() + growing.size());
    const auto pace = [&](size_t m) {
      const Burst& burst = Current(jobs_[group.members[m]]);
      return 1 / (burst.alone * burst.speed);
    };
    double level = kInfinity;
    for (const size_t m : growing) level = std::min(level, pace(m));
    for (const size_t l : f.active) level = std::min(level, std::max(0.0, f.left[l]) / f.demand[l]);
    const double reached = level * (1 + 1e-12);
    const auto hold = [&](size_t m) {
      if ((*rate)[m] < 0) (*rate)[m] = level * Current(jobs_[group.members[m]]).speed;
    };
    for (const size_t m : growing) {
      if (pace(m) <= reached) hold(m);
    }
    for (const size_t l : f.active) {
      if (std::max(0.0, f.left[l]) > reached * f.demand[l]) continue;
      for (const User& user : group.users[l]) {
        if (jobs_[group.members[user.member]].burst == user.burst) hold(user.member);
      }
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
      if (!jobs_[j].sending || !(Current(jobs_[j]).alone > 0) || !(Current(jobs_[j]).alone < kInfinity)) continue;
      (*rate)[m] = -1;  // not known yet
      places.push_back(m);
    }
    FillClass(group, places, rate);
  }
}

/// Takes the rates of the bursts that the group sends now into use.
void FluidSimulation::Refresh(Group* group) {
  group->dirty = false;
  uint64_t set = 0;
  const bool remember = group->members.size() <= kMostMembers && group->bits <= kMostBits;
  for (size_t m = 0; m < group->members.size() && remember; ++m) {
    const Job& job = jobs_[group->members[m]];
    set = set << std::bit_width(job.bursts) | (job.sending ? job.burst + 1 : 0);
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
    if (jobs_[j].sending && Current(jobs_[j]).alone > 0) SetRate(j, (*rates)[m]);
  }
}

std::vector<double> FluidSimulation::LinkBits() const {
  std::vector<double> bits = link_bits_;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    Job job = jobs_[j];
    const double now = job.sending ? Advance(&job) : 0;
    for (size_t b = 0; b < settings_[j].loads.size(); ++b) {
      const double times = bursts_[job.first + b].sent + (b == job.burst ? now : 0);
      for (const LinkLoad& load : settings_[j].loads[b]) {
        bits[load.link.index()] += times * job.scale * static_cast<double>(load.bytes.count()) * 8;
      }
    }
  }
  return bits;
}

/// What the bursts of job j come to on the new plan.
void FluidSimulation::MeasureBursts(size_t j) {
  const Job& job = jobs_[j];
  for (size_t b = 0; b < job.bursts; ++b) {
    Burst& burst = bursts_[job.first + b];
    burst = {};
    if (job.phase == Phase::kGone) continue;
    double largest = 0;
    for (const LinkLoad& load : settings_[j].loads[b]) {
      if (load.bytes.count() == 0) continue;
      const double bits = job.scale * static_cast<double>(load.bytes.count()) * 8;
      const double rate = capacity_[load.link.index()].value();
      burst.alone = std::max(burst.alone, rate > 0 ? bits / rate : kInfinity);
      largest = std::max(largest, bits / load.flows);
    }
    burst.speed = largest > 0 ? 1 / largest : 0;
  }
}

}  // namespace weft::planner::network

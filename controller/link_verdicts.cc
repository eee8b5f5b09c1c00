// The verdicts of a LinkMonitor: which link gives less than believed, and how much.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/parse_units.h"
#include "controller/link_monitor.h"

namespace weft::controller {
namespace {

constexpr double kExplainedInPool = 0.9;   // fullness of the fullest link on a lane's way, as the most that it may have carried
constexpr double kMostFullness = 1.25;     // of one look: what was counted twice does not make up for others

}  // namespace

bool LinkMonitor::IsUnexplained(const LaneWindow& window) const {
  // Each look for itself: two links that were full in turn look like two idle ones on average.
  return std::ranges::none_of(window.looks, [&](const Look& look) { return Fullness(look, window.owner) >= options_.explained; });
}

double LinkMonitor::Fullness(const Look& look, Owner owner) const {
  double fullness = 0;
  for (const auto& [link, load] : look.load) fullness = std::max(fullness, load.most / Available(link, owner).value());
  return fullness;
}

/// Links of the lane that may be what held it back in these windows.
std::vector<LinkId> LinkMonitor::Suspects(const LaneWindow& window) const {
  // Not since the first look: what was full when the trouble began may have been full just before it.
  const double since_s = window.looks[window.looks.size() / 2].time_s;
  std::vector<LinkId> links;
  for (const auto& [link, load] : window.looks.back().load) {
    const auto state = links_.find(link);
    if (state == links_.end()) {
      links.push_back(link);
      continue;
    }
    const Estimate* own = FindEstimate(link, window.owner);
    const double own_s = own == nullptr ? -1e300 : own->exonerated_s;
    if (std::max(state->second.exonerated_s, own_s) < since_s) links.push_back(link);
  }
  return links;
}

std::vector<LinkId> LinkMonitor::Culprits(const LaneKey& lane, const LaneWindow& window) const {
  std::vector<LinkId> links = Suspects(window);
  for (const auto& [other, of] : windows_) {
    if (other == lane || of.owner != window.owner || of.looks.empty()) continue;
    if (static_cast<int>(of.looks.size()) + 1 < options_.windows || !IsUnexplained(of)) continue;
    const std::vector<LinkId> theirs = Suspects(of);
    std::vector<LinkId> both;
    std::set_intersection(links.begin(), links.end(), theirs.begin(), theirs.end(), std::back_inserter(both));
    if (!both.empty()) links = std::move(both);
  }
  std::vector<LinkId> between;
  std::copy_if(links.begin(), links.end(), std::back_inserter(between),
               [&](LinkId link) { return fabric_->IsBetweenSwitches(link); });
  return between.empty() ? links : between;
}

void LinkMonitor::Blame(const LaneUse& lane, const LaneWindow& window, double now_s, std::vector<CapacityChange>& changes) {
  std::map<LinkId, double> seen;
  for (const LinkId link : Culprits(lane.key, window)) {
    // Without the first look, part of which may be older than the trouble.
    seen[link] = window.looks.back().load.at(link).middle();
    for (size_t i = 1; i < window.looks.size(); ++i) seen[link] = std::min(seen[link], window.looks[i].load.at(link).middle());
  }
  Lower(seen, window.owner,
        fmt::format("in {} windows in which flow {:x} of job {} ({} to {}) had a backlog and none of its other links was full",
                    window.looks.size(), lane.key.first, lane.flow->identity.job_id(), lane.flow->identity.local_address(),
                    lane.flow->identity.peer_address()),
        now_s, changes);
  windows_.at(lane.key).looks.clear();
}

void LinkMonitor::AddToPools(const LaneKey& lane, Owner owner, const Look& look) {
  const double fullness = std::min(Fullness(look, owner), kMostFullness);
  for (const auto& [link, load] : look.load) {
    if (!fabric_->IsBetweenSwitches(link)) continue;
    std::deque<PooledLook>& pool = pools_[{link, owner}];
    pool.push_back({look.time_s, lane, fullness, load.middle()});
    while (pool.size() > kPooledLooks || look.time_s - pool.front().time_s > kLookLife) pool.pop_front();
  }
}

void LinkMonitor::ForgetPooled(const std::vector<CapacityChange>& changes) {
  std::set<LaneKey> lanes;
  for (const CapacityChange& change : changes) {
    if (!fabric_->IsBetweenSwitches(change.link)) return pools_.clear();  // who crosses it is not kept
    for (const auto& [key, pool] : pools_) {
      if (key.first != change.link) continue;
      for (const PooledLook& look : pool) lanes.insert(look.lane);
    }
  }
  for (auto& [key, pool] : pools_) std::erase_if(pool, [&](const PooledLook& look) { return lanes.contains(look.lane); });
  std::erase_if(pools_, [](const auto& entry) { return entry.second.empty(); });
}

bool LinkMonitor::IsUnexplained(LinkId link, Owner owner) const {
  const auto found = pools_.find({link, owner});
  if (found == pools_.end() || found->second.size() < kPooledLooks) return false;
  const std::deque<PooledLook>& pool = found->second;
  double sum = 0;
  for (const PooledLook& look : pool) sum += look.fullness;
  const auto full = static_cast<size_t>(std::ranges::count_if(pool, [](const PooledLook& look) { return look.fullness >= kExplainedInPool; }));
  if (full > kFullLooks || sum >= kExplainedInPool * static_cast<double>(pool.size())) return false;
  return std::ranges::any_of(pool, [&](const PooledLook& look) { return look.lane != pool.front().lane; });
}

void LinkMonitor::BlamePooled(const LaneUse& lane, Owner owner, double now_s, std::vector<CapacityChange>& changes) {
  std::map<LinkId, double> seen;
  for (const LinkId link : *lane.links) {
    if (!IsUnexplained(link, owner)) continue;
    double mean = 0;
    for (const PooledLook& look : pools_.at({link, owner})) mean += look.middle / static_cast<double>(kPooledLooks);
    if (mean < kExplainedInPool * Available(link, owner).value()) seen[link] = mean;
  }
  if (seen.empty()) return;
  Lower(seen, owner, fmt::format("to lanes that had a backlog and no full link on their way, in {} of {} windows at least",
                                 kPooledLooks - kFullLooks, kPooledLooks), now_s,
        changes);
}

/// What was seen of each of these links becomes the owner's estimate, or draws one that was low before nearer.
void LinkMonitor::Lower(const std::map<LinkId, double>& links, Owner owner, const std::string& evidence, double now_s,
                        std::vector<CapacityChange>& changes) {
  if (links.empty()) return;
  bool for_all = false;
  for (const auto& [link, seen] : links) {
    Estimate& state = EstimateOf(link, owner);
    if (state.bad()) continue;
    const BitsPerSecond line = fabric_->topology().link(link).line_rate;
    const BitsPerSecond before = state.available;
    // Lowered again soon after a test: the link has not recovered, so the next test can wait longer.
    const double base = options_.recovery_interval.count();
    const bool soon = now_s - state.tested_s < state.interval_s;
    if (soon) {
      state.interval_s = std::min(2 * state.interval_s, kMaxBackoff * base);
    } else if (before >= kRestored * line) {
      state.interval_s = base;
    }
    state.tested_s = -1e300;
    // A known deficit is followed, not believed anew; from where it was before a test that has shown nothing better.
    const double known = soon && seen <= state.untested.value() * kSameRate ? state.untested.value() : before.value();
    const double wanted = known < kRestored * line.value() ? known + kFollowDown * (seen - known) : seen;
    const BitsPerSecond next(std::clamp(wanted, kLeastAvailable * line.value(), line.value()));
    state.confirmed_s = state.seen_s = now_s;
    if (next < before) state.lowered_s = now_s;
    if (known >= kRestored * line.value()) state.looks = 0;  // a first estimate
    changes.push_back(Set(link, owner, next,
                          fmt::format("link {} gave {} where {} was expected, {}", fabric_->topology().LinkName(link),
                                      FormatRate(BitsPerSecond(seen)), FormatRate(before), evidence)));
    for_all |= changes.back().for_all;
  }
  // The same evidence must not be used twice: whoever shared these links is judged again against the new estimate.
  const auto concerns = [&](Owner whose) { return for_all || whose == owner; };
  for (auto& [lane, of] : windows_) {
    const auto crosses = [&](const auto& entry) { return of.looks.back().load.contains(entry.first); };
    if (!of.looks.empty() && concerns(of.owner) && std::ranges::any_of(links, crosses)) of.looks.clear();
  }
  std::erase_if(pools_, [&](const auto& entry) { return concerns(entry.first.second); });
}

}  // namespace weft::controller

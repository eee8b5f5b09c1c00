#include "controller/link_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "common/parse_units.h"

namespace weft::controller {
namespace {

constexpr double kWindowLife = 15;         // seconds: what is older belongs to another phase of the job
constexpr double kQueueingLane = 0.5;      // of the longest round trip
constexpr double kLeastAvailable = 0.02;   // of the line rate: 0 would make paths impossible and ratios infinite
constexpr double kAbove = 1.08;            // of the estimate
constexpr double kTestStep = 1.5;          // enough to be seen as a deficit if it is not there
constexpr double kRestored = 0.95;         // of the line rate
constexpr int kMaxBackoff = 16;
constexpr int kContendedSlots = 3;

}  // namespace

LinkMonitor::LinkState& LinkMonitor::State(LinkId link) {
  const auto [entry, added] = links_.try_emplace(link);
  if (added) {
    entry->second.available = fabric_->topology().link(link).line_rate;
    entry->second.interval_s = options_.recovery_interval.count();
  }
  return entry->second;
}

BitsPerSecond LinkMonitor::Available(LinkId link) const {
  const auto found = links_.find(link);
  return found == links_.end() ? fabric_->topology().link(link).line_rate : found->second.available;
}

std::vector<LinkMonitor::FlowUse> LinkMonitor::Collect(const FlowTable& table, int64_t slot) const {
  std::vector<FlowUse> uses;
  const double slot_s = options_.slot.count();
  for (const auto& [id, flow] : table.flows()) {
    if (flow.stale()) continue;
    FlowUse use{.flow = &flow};
    for (const auto& [port, lane] : flow.lanes) {
      const double bytes = lane.carried.At(slot);
      if (bytes <= 0) continue;
      // A lane of unknown path could be at any link: a verdict on this flow would be a guess.
      const std::vector<LinkId>* links = flow.PathOf(port);
      if (links == nullptr) {
        use.lanes.clear();
        break;
      }
      use.lanes.push_back({links, bytes, lane.rtt_s});
    }
    if (use.lanes.empty()) continue;
    const auto limited = [&](int64_t i) { return flow.waited.At(i) >= options_.limited * slot_s; };
    use.waited = std::min(1.0, flow.waited.At(slot) / slot_s);
    use.interior = limited(slot - 1) && limited(slot) && limited(slot + 1);
    use.edge = limited(slot - 1) || limited(slot) || limited(slot + 1);
    use.rate_scale = 8 / slot_s / (limited(slot) ? use.waited : 1.0);
    uses.push_back(std::move(use));
  }
  return uses;
}

std::vector<double> LinkMonitor::Loads(const std::vector<FlowUse>& uses) const {
  std::vector<double> loads(fabric_->topology().links().size());
  for (const FlowUse& use : uses) {
    for (const LaneUse& lane : use.lanes) {
      for (const LinkId link : *lane.links) loads[link.index()] += lane.bytes * use.rate_scale;
    }
  }
  return loads;
}

void LinkMonitor::FindCollisions(const std::vector<FlowUse>& uses, const std::vector<double>& loads) {
  struct Shared {
    std::vector<uint64_t> flows;
    bool limiting = false;
  };
  std::map<LinkId, Shared> shared;
  for (const FlowUse& use : uses) {
    for (const LaneUse& lane : use.lanes) {
      for (const LinkId link : *lane.links) {
        Shared& entry = shared[link];
        if (entry.flows.empty() || entry.flows.back() != use.flow->id) entry.flows.push_back(use.flow->id);
        entry.limiting |= use.waited >= options_.limited;
      }
    }
  }
  collisions_.clear();
  for (auto& [link, state] : links_) {
    if (!shared.contains(link)) state.contended = 0;
  }
  for (auto& [link, entry] : shared) {
    LinkState& state = State(link);
    const double load = loads[link.index()];
    const bool full = load >= options_.explained * state.available.value();
    state.contended = entry.limiting && entry.flows.size() >= 2 && full ? state.contended + 1 : 0;
    if (state.contended >= kContendedSlots) collisions_.push_back({link, BitsPerSecond(load), std::move(entry.flows)});
  }
}

void LinkMonitor::Accumulate(const FlowUse& use, const std::vector<double>& loads, double now_s) {
  const auto [entry, added] = windows_.try_emplace(use.flow->id);
  FlowWindow& window = entry->second;
  if (added || now_s - window.started_s > kWindowLife) window = FlowWindow{.started_s = now_s};
  const double waited_s = use.waited * options_.slot.count();
  std::set<LinkId> links;
  double longest = 0;
  for (const LaneUse& lane : use.lanes) longest = std::max(longest, lane.rtt_s);
  window.suspects.clear();
  for (const LaneUse& lane : use.lanes) {
    links.insert(lane.links->begin(), lane.links->end());
    if (lane.rtt_s >= kQueueingLane * longest) {
      window.suspects.insert(window.suspects.end(), lane.links->begin(), lane.links->end());
    }
  }
  // What a burst's start and drain carry without waiting is put to the wait between them.
  const double weight = use.waited >= options_.limited ? waited_s : options_.slot.count();
  for (const LinkId link : links) {
    window.all.load[link] += loads[link.index()] * weight;
    if (use.interior) window.interior.load[link] += loads[link.index()] * waited_s;
  }
  window.all.waited_s += waited_s;
  if (use.interior) window.interior.waited_s += waited_s;
}

std::vector<CapacityChange> LinkMonitor::Evaluate(const FlowTable& table, int64_t slot, Seconds now) {
  std::vector<CapacityChange> changes;
  const std::vector<FlowUse> uses = Collect(table, slot);
  const std::vector<double> loads = Loads(uses);
  FindCollisions(uses, loads);
  for (const FlowUse& use : uses) {
    if (!use.edge) continue;
    Accumulate(use, loads, now.count());
    FlowWindow& window = windows_[use.flow->id];
    const double need = options_.window.count();
    if (window.interior.waited_s >= need) {
      CloseWindow(use, window.interior, window, now.count(), changes);
    } else if (window.all.waited_s >= 2 * need) {  // bursts of one or two slots have no interior
      CloseWindow(use, window.all, window, now.count(), changes);
    }
  }
  std::erase_if(windows_, [&](const auto& entry) { return !table.flows().contains(entry.first); });
  return changes;
}

void LinkMonitor::CloseWindow(const FlowUse& use, const Sum& sum, FlowWindow& window, double now_s,
                              std::vector<CapacityChange>& changes) {
  window.seen.clear();
  int full = 0;
  LinkState* last_full = nullptr;
  for (const auto& [link, bits] : sum.load) {
    const double load = bits / sum.waited_s;
    window.seen[link] = load;
    LinkState& state = State(link);
    // A full link on a lane without a queue is full of others' bytes: it does not hold this flow.
    if (std::find(window.suspects.begin(), window.suspects.end(), link) == window.suspects.end()) continue;
    if (load >= options_.explained * state.available.value()) {
      ++full;
      last_full = &state;
      state.exonerated_s = now_s;
    }
  }
  // Only a link that alone explains the wait is known to be the one: beside another full link it may give more by now.
  if (full == 1) last_full->confirmed_s = now_s;
  for (const auto& [link, load] : window.seen) Raise(link, load, now_s, changes);
  window.interior = window.all = Sum();
  window.started_s = now_s;
  if (full > 0) {
    window.deficits = 0;
    return;
  }
  if (window.deficits == 0) window.deficit_since_s = now_s;
  if (++window.deficits >= options_.windows) Blame(*use.flow, window, now_s, changes);
}

void LinkMonitor::Raise(LinkId link, double load, double now_s, std::vector<CapacityChange>& changes) {
  LinkState& state = State(link);
  const BitsPerSecond line = fabric_->topology().link(link).line_rate;
  if (state.available >= line) return;
  if (load < kAbove * state.available.value()) {
    state.above = 0;
    return;
  }
  if (++state.above < 2) return;
  state.above = 0;
  const BitsPerSecond before = state.available;
  state.available = load >= kRestored * line.value() ? line : BitsPerSecond(load);
  state.confirmed_s = now_s;
  changes.push_back({link, before, state.available,
                     fmt::format("link {} carried {}, more than the {} it was planned with",
                                 fabric_->topology().LinkName(link), FormatRate(BitsPerSecond(load)),
                                 FormatRate(before))});
}

std::vector<LinkId> LinkMonitor::Culprits(uint64_t flow, const FlowWindow& window) const {
  const auto suspects_of = [&](const FlowWindow& of) {
    std::vector<LinkId> links;
    for (const LinkId link : of.suspects) {
      const auto state = links_.find(link);
      const bool exonerated = state != links_.end() && state->second.exonerated_s >= window.deficit_since_s;
      if (of.seen.contains(link) && !exonerated) links.push_back(link);
    }
    std::sort(links.begin(), links.end());
    links.erase(std::unique(links.begin(), links.end()), links.end());
    return links;
  };
  std::vector<LinkId> links = suspects_of(window);
  for (const auto& [other, of] : windows_) {
    if (other == flow || of.deficits + 1 < options_.windows) continue;
    const std::vector<LinkId> theirs = suspects_of(of);
    std::vector<LinkId> both;
    std::set_intersection(links.begin(), links.end(), theirs.begin(), theirs.end(), std::back_inserter(both));
    if (!both.empty()) links = std::move(both);
  }
  std::vector<LinkId> between;
  std::copy_if(links.begin(), links.end(), std::back_inserter(between),
               [&](LinkId link) { return fabric_->IsBetweenSwitches(link); });
  return between.empty() ? links : between;
}

void LinkMonitor::Blame(const SendFlow& flow, FlowWindow& window, double now_s, std::vector<CapacityChange>& changes) {
  const std::vector<LinkId> culprits = Culprits(flow.id, window);
  for (const LinkId link : culprits) {
    LinkState& state = State(link);
    const BitsPerSecond line = fabric_->topology().link(link).line_rate;
    const BitsPerSecond before = state.available;
    const BitsPerSecond seen(std::max(window.seen.at(link), kLeastAvailable * line.value()));
    // Lowered again soon after a test: the link has not recovered, so the next test can wait longer.
    const double base = options_.recovery_interval.count();
    const bool soon = now_s - state.tested_s < state.interval_s;
    state.interval_s = soon ? std::min(2 * state.interval_s, kMaxBackoff * base) : base;
    state.tested_s = -1e300;
    state.available = seen;
    state.confirmed_s = now_s;
    state.above = 0;
    changes.push_back({link, before, seen,
                       fmt::format("link {} gave {} where {} was expected, in {} windows in which flow {:x} of job {} "
                                   "({} to {}) waited for the wire and none of its other links was full",
                                   fabric_->topology().LinkName(link), FormatRate(seen), FormatRate(before),
                                   window.deficits, flow.id, flow.identity.job_id(), flow.identity.local_address(),
                                   flow.identity.peer_address())});
  }
  // The same evidence must not be used twice: whoever shared these links is judged again against the new estimate.
  for (auto& [other, of] : windows_) {
    const bool shares = std::any_of(culprits.begin(), culprits.end(),
                                    [&](LinkId link) { return of.seen.contains(link); });
    if (shares) of.deficits = 0;
  }
  window.deficits = 0;
}

std::vector<CapacityChange> LinkMonitor::Recover(Seconds now) {
  std::vector<CapacityChange> changes;
  for (auto& [link, state] : links_) {
    const BitsPerSecond line = fabric_->topology().link(link).line_rate;
    if (state.available >= line || now.count() - state.confirmed_s < state.interval_s) continue;
    const BitsPerSecond before = state.available;
    state.available = std::min(line, before * kTestStep);
    state.tested_s = state.confirmed_s = now.count();
    changes.push_back({link, before, state.available,
                       fmt::format("link {} was planned with {} and not seen to be held to it for {}: tested for more",
                                   fabric_->topology().LinkName(link), FormatRate(before),
                                   FormatDuration(Seconds(state.interval_s)))});
  }
  return changes;
}

}  // namespace weft::controller

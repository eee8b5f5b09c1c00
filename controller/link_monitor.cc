#include "controller/link_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "common/parse_units.h"

namespace weft::controller {
namespace {

constexpr double kLookLife = 20;           // seconds: what is older belongs to another phase of the job
constexpr double kStandingQueue = 0.05;    // round trip over slot
constexpr double kInsideBurst = 0.3;       // bytes of the lesser neighbour slot over those of the slot
constexpr double kPlateau = 0.6;           // bytes of the slot over those of the greater neighbour: else it is an edge
constexpr double kRttGain = 0.2;           // of a new round trip in the usual one
constexpr double kQueueGrew = 1.5;         // round trip over the usual one
constexpr double kQueueingLane = 0.5;      // of the longest round trip
constexpr double kWorstLane = 0.85;        // of the longest round trip
constexpr double kHeldGain = 0.3;          // of a new slot in how much a flow is held
constexpr double kHeldAlike = 0.75;        // of the most held flow of the job
constexpr double kHeldLife = 3;            // seconds
constexpr double kLeastAvailable = 0.02;   // of the line rate: 0 would make paths impossible and ratios infinite
constexpr double kAbove = 1.1;             // of the estimate
constexpr double kHeadroom = 1.1;          // over the load seen, when that is above the estimate: fewer steps up
constexpr double kTestStep = 1.5;          // enough to be seen as a deficit if it is not there
constexpr double kRestored = 0.9;          // of the line rate
constexpr int kMaxBackoff = 16;
constexpr int kContendedSlots = 3;
constexpr double kProbing = 10;            // seconds that a new flow's probes may take before it is judged without

double BytesOf(const SendFlow& flow, int64_t slot) {
  double bytes = 0;
  for (const auto& [port, lane] : flow.lanes) bytes += lane.carried.At(slot);
  return bytes;
}

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

void LinkMonitor::Forget(uint64_t flow, Seconds now) {
  FlowWindow& window = windows_[flow];
  window = FlowWindow{.job = window.job, .usual_rtt_s = window.usual_rtt_s, .since_s = now.count()};
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
    for (const LaneUse& lane : use.lanes) use.rtt_s = std::max(use.rtt_s, lane.rtt_s);
    const auto limited = [&](int64_t i) { return flow.waited.At(i) >= options_.limited * slot_s; };
    use.waited = std::min(1.0, flow.waited.At(slot) / slot_s);
    const bool queue_stands = use.rtt_s >= kStandingQueue * slot_s;
    use.limited = limited(slot);
    if (use.limited && !queue_stands) use.busy = use.waited;
    const double here = BytesOf(flow, slot);
    const auto [fewer, more] = std::minmax({BytesOf(flow, slot - 1), BytesOf(flow, slot + 1)});
    const bool inside_burst = fewer >= kInsideBurst * here && here >= kPlateau * more;
    use.plateau = queue_stands ? inside_burst : limited(slot - 1) && limited(slot) && limited(slot + 1);
    uses.push_back(std::move(use));
  }
  return uses;
}

std::vector<double> LinkMonitor::Loads(const std::vector<FlowUse>& uses) const {
  std::vector<double> loads(fabric_->topology().links().size());
  for (const FlowUse& use : uses) {
    const double busy_s = use.busy * options_.slot.count();
    for (const LaneUse& lane : use.lanes) {
      for (const LinkId link : *lane.links) loads[link.index()] += lane.bytes * 8 / busy_s;
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
        entry.limiting |= use.limited;
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

void LinkMonitor::Accumulate(const FlowUse& use, const std::vector<double>& loads, double now_s,
                             std::vector<CapacityChange>& changes) {
  FlowWindow& window = windows_[use.flow->id];
  Look& next = window.next;
  const double busy_s = use.busy * options_.slot.count();
  std::set<LinkId> links;
  for (const LaneUse& lane : use.lanes) {
    links.insert(lane.links->begin(), lane.links->end());
    if (lane.rtt_s >= kQueueingLane * use.rtt_s) next.queued.insert(lane.links->begin(), lane.links->end());
    if (lane.rtt_s >= kWorstLane * use.rtt_s) next.worst.insert(lane.links->begin(), lane.links->end());
  }
  for (const LinkId link : links) next.load[link] += loads[link.index()] * busy_s;
  next.busy_s += busy_s;
  if (next.busy_s < options_.window.count() - 1e-9) return;
  for (auto& [link, bits] : next.load) bits /= next.busy_s;
  next.time_s = now_s;
  window.looks.push_back(std::exchange(next, Look()));
  const auto is_old = [&](const Look& look) {
    return now_s - look.time_s > kLookLife || look.load.size() != window.looks.back().load.size();
  };
  while (static_cast<int>(window.looks.size()) > options_.windows || is_old(window.looks.front())) {
    window.looks.pop_front();
  }
  Judge(use, window, now_s, changes);
}

/// Takes note of how much the flow is held, and says whether the slot proves anything about its path.
bool LinkMonitor::IsJudged(const FlowUse& use, const std::vector<double>& loads, double now_s) {
  FlowWindow& window = windows_[use.flow->id];
  window.job = use.flow->identity.job_id();
  const bool full = IsFull(use, loads);
  if (full) window.usual_rtt_s += (window.usual_rtt_s > 0 ? kRttGain : 1) * (use.rtt_s - window.usual_rtt_s);
  const double growth = window.usual_rtt_s > 0 ? use.rtt_s / window.usual_rtt_s : 1;
  const bool recent = now_s - window.held_at_s < kHeldLife;
  window.held += (recent ? kHeldGain : 1) * (growth * (1 + use.waited) - window.held);
  window.held_at_s = now_s;
  return full || use.limited || growth >= kQueueGrew;
}

bool LinkMonitor::HoldsItsJob(const FlowWindow& window, double now_s) const {
  return std::none_of(windows_.begin(), windows_.end(), [&](const auto& entry) {
    const FlowWindow& other = entry.second;
    return other.job == window.job && now_s - other.held_at_s < kHeldLife && window.held < kHeldAlike * other.held;
  });
}

bool LinkMonitor::IsFull(const FlowUse& use, const std::vector<double>& loads) const {
  return std::any_of(use.lanes.begin(), use.lanes.end(), [&](const LaneUse& lane) {
    return std::any_of(lane.links->begin(), lane.links->end(), [&](LinkId link) {
      return loads[link.index()] >= options_.explained * Available(link).value();
    });
  });
}

bool LinkMonitor::HasUnlocatedFlow(const FlowTable& table, int64_t slot, double now_s) {
  return std::any_of(table.flows().begin(), table.flows().end(), [&](const auto& entry) {
    const SendFlow& flow = entry.second;
    if (flow.stale() || now_s - flow.opened_s > kProbing) return false;
    return std::any_of(flow.lanes.begin(), flow.lanes.end(), [&](const auto& lane) {
      return lane.second.carried.At(slot) > 0 && flow.PathOf(lane.first) == nullptr;
    });
  });
}

std::vector<CapacityChange> LinkMonitor::Evaluate(const FlowTable& table, int64_t slot, Seconds now) {
  std::vector<CapacityChange> changes;
  const std::vector<FlowUse> uses = Collect(table, slot);
  const std::vector<double> loads = Loads(uses);
  FindCollisions(uses, loads);
  // A young flow whose probes are still out may be what fills a link: until its path is known nobody is judged.
  if (HasUnlocatedFlow(table, slot, now.count())) return changes;
  const double slot_begin_s = static_cast<double>(slot) * options_.slot.count();
  for (const FlowUse& use : uses) {
    if (!use.plateau || !IsJudged(use, loads, now.count())) continue;
    if (slot_begin_s >= windows_[use.flow->id].since_s) Accumulate(use, loads, now.count(), changes);
  }
  std::erase_if(windows_, [&](const auto& entry) { return !table.flows().contains(entry.first); });
  return changes;
}

LinkMonitor::Summary LinkMonitor::Summarize(const FlowWindow& window, size_t first) {
  Summary summary;
  for (size_t i = first; i < window.looks.size(); ++i) {
    const Look& look = window.looks[i];
    for (const auto& [link, load] : look.load) {
      summary.load[link] += load / static_cast<double>(window.looks.size() - first);
    }
    summary.queued.insert(look.queued.begin(), look.queued.end());
    summary.worst.insert(look.worst.begin(), look.worst.end());
  }
  return summary;
}

bool LinkMonitor::IsUnexplained(const FlowWindow& window) const {
  const auto explains = [&](const Look& look, LinkId link, double load) {
    // A full link on a lane without a queue is full of others' bytes: it does not hold this flow.
    return look.queued.contains(link) && load >= options_.explained * Available(link).value();
  };
  // Each look for itself: two links that were full in turn look like two idle ones on average.
  return std::none_of(window.looks.begin(), window.looks.end(), [&](const Look& look) {
    return std::any_of(look.load.begin(), look.load.end(),
                       [&](const auto& entry) { return explains(look, entry.first, entry.second); });
  });
}

void LinkMonitor::Judge(const FlowUse& use, FlowWindow& window, double now_s, std::vector<CapacityChange>& changes) {
  const Summary summary = Summarize(window);
  int full = 0;
  LinkState* last_full = nullptr;
  for (const auto& [link, load] : summary.load) {
    LinkState& state = State(link);
    if (!summary.queued.contains(link) || load < options_.explained * state.available.value()) continue;
    ++full;
    last_full = &state;
    state.exonerated_s = now_s;
  }
  // Only a link that alone explains the wait is known to be the one: beside another full link it may give more by now.
  if (full == 1) last_full->confirmed_s = now_s;
  if (static_cast<int>(window.looks.size()) < options_.windows) return;
  for (const auto& [link, load] : summary.load) Raise(link, load, now_s, changes);
  // A striped flow runs at the pace of its slowest lane over that lane's share: what its other lanes carry says how it is
  // split, not what their links give. It may raise an estimate, never lower one.
  if (use.lanes.size() > 1) return;
  if (full == 0 && IsUnexplained(window) && HoldsItsJob(window, now_s)) Blame(*use.flow, window, now_s, changes);
}

void LinkMonitor::Raise(LinkId link, double load, double now_s, std::vector<CapacityChange>& changes) {
  LinkState& state = State(link);
  const BitsPerSecond line = fabric_->topology().link(link).line_rate;
  if (state.available >= line || load < kAbove * state.available.value()) return;
  const BitsPerSecond before = state.available;
  state.available = load >= kRestored * line.value() ? line : std::min(line, BitsPerSecond(load * kHeadroom));
  state.confirmed_s = now_s;
  changes.push_back({link, before, state.available,
                     fmt::format("link {} carried {}, more than the {} it was planned with",
                                 fabric_->topology().LinkName(link), FormatRate(BitsPerSecond(load)),
                                 FormatRate(before))});
}

std::vector<LinkId> LinkMonitor::Culprits(uint64_t flow, const FlowWindow& window) const {
  // Not since the first look: what was full when the trouble began may have been full just before it.
  const double since_s = window.looks[window.looks.size() / 2].time_s;
  const auto suspects_of = [&](const Summary& summary) {
    std::vector<LinkId> links;
    for (const LinkId link : summary.worst) {
      const auto state = links_.find(link);
      const bool exonerated = state != links_.end() && state->second.exonerated_s >= since_s;
      if (summary.load.contains(link) && !exonerated) links.push_back(link);
    }
    return links;
  };
  std::vector<LinkId> links = suspects_of(Summarize(window));
  for (const auto& [other, of] : windows_) {
    if (other == flow || of.looks.empty() || static_cast<int>(of.looks.size()) + 1 < options_.windows) continue;
    if (!IsUnexplained(of)) continue;
    const std::vector<LinkId> theirs = suspects_of(Summarize(of));
    std::vector<LinkId> both;
    std::set_intersection(links.begin(), links.end(), theirs.begin(), theirs.end(), std::back_inserter(both));
    if (!both.empty()) links = std::move(both);
  }
  std::vector<LinkId> between;
  std::copy_if(links.begin(), links.end(), std::back_inserter(between),
               [&](LinkId link) { return fabric_->IsBetweenSwitches(link); });
  return between.empty() ? links : between;
}

void LinkMonitor::Blame(const SendFlow& flow, const FlowWindow& window, double now_s, std::vector<CapacityChange>& changes) {
  const std::vector<LinkId> culprits = Culprits(flow.id, window);
  // Without the first look, part of which may be older than the trouble.
  const Summary summary = Summarize(window, window.looks.size() > 1 ? 1 : 0);
  for (const LinkId link : culprits) {
    LinkState& state = State(link);
    const BitsPerSecond line = fabric_->topology().link(link).line_rate;
    const BitsPerSecond before = state.available;
    const BitsPerSecond seen(std::max(summary.load.at(link), kLeastAvailable * line.value()));
    // Lowered again soon after a test: the link has not recovered, so the next test can wait longer.
    const double base = options_.recovery_interval.count();
    const bool soon = now_s - state.tested_s < state.interval_s;
    state.interval_s = soon ? std::min(2 * state.interval_s, kMaxBackoff * base) : base;
    state.tested_s = -1e300;
    state.available = seen;
    state.confirmed_s = now_s;
    changes.push_back({link, before, seen,
                       fmt::format("link {} gave {} where {} was expected, in {} windows in which flow {:x} of job {} "
                                   "({} to {}) waited for the wire and none of its other links was full",
                                   fabric_->topology().LinkName(link), FormatRate(seen), FormatRate(before),
                                   window.looks.size(), flow.id, flow.identity.job_id(), flow.identity.local_address(),
                                   flow.identity.peer_address())});
  }
  // The same evidence must not be used twice: whoever shared these links is judged again against the new estimate.
  const uint64_t id = flow.id;
  for (auto& [other, of] : windows_) {
    const std::map<LinkId, double> theirs = Summarize(of).load;
    const bool shares =
        std::any_of(culprits.begin(), culprits.end(), [&](LinkId link) { return theirs.contains(link); });
    if (shares || other == id) of.looks.clear();
  }
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

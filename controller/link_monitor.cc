#include "controller/link_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/parse_units.h"

namespace weft::controller {
namespace {

constexpr double kLeastBacklog = 0.1;      // of a slot: less says nothing
constexpr double kFirstLooks = 2;          // that the first estimate is worth: those that follow it count as much each
constexpr double kTestStep = 1.5;          // enough to be seen as a deficit if it is not there
constexpr int kContendedSlots = 3;
constexpr double kContending = 0.3;        // of a slot that a lane on a full link is backlogged
constexpr double kMoving = 0.5;            // seconds until new weights are in force and old bytes have left

}  // namespace

CapacityChange LinkMonitor::Hold(LinkId link, Owner owner, Badness badness, double share, const std::string& why) {
  Estimate& own = EstimateOf(link, owner);
  if (!own.bad()) own.before_bad = own.available;
  own.shares[static_cast<size_t>(badness)] = std::max(share, kLeastAvailable);
  const BitsPerSecond most = std::min(own.shares[0], own.shares[1]) * fabric_->topology().link(link).line_rate;
  return Set(link, owner, std::min(own.before_bad, most), fmt::format("link {} {}", fabric_->topology().LinkName(link), why));
}

void LinkMonitor::Forget(uint64_t flow, Seconds now) {
  std::erase_if(windows_, [&](const auto& entry) { return entry.first.first == flow; });
  moved_s_[flow] = now.count();
}

std::vector<LinkMonitor::LaneUse> LinkMonitor::Collect(const FlowTable& table, int64_t slot) const {
  std::vector<LaneUse> uses;
  const double slot_s = options_.slot.count();
  for (const auto& [id, flow] : table.flows()) {
    if (flow.stale()) continue;
    for (const auto& [port, lane] : flow.lanes) {
      const double carried = lane.carried.At(slot) * 8;
      const bool queued = lane.backlog.At(slot - 1) >= kLeastBacklog * slot_s;
      const double before = std::max(0.0, lane.carried.At(slot - 1) - (queued ? lane.delivered.At(slot - 1) : 0)) * 8;
      if (carried <= 0 && before <= 0) continue;
      const std::vector<LinkId>* links = flow.PathOf(port);
      if (links == nullptr) continue;
      const double backlog_s = std::min(slot_s, lane.backlog.At(slot));
      LaneUse use{.key = {id, port}, .flow = &flow, .links = links, .carried = carried, .before = before};
      if (backlog_s >= kLeastBacklog * slot_s) {
        use.backlog = backlog_s / slot_s;
        use.rate = lane.delivered.At(slot) * 8 / backlog_s;
      }
      uses.push_back(use);
    }
  }
  return uses;
}

LinkMonitor::UsesByLink LinkMonitor::ByLink(const std::vector<LaneUse>& uses) const {
  UsesByLink by_link(fabric_->topology().links().size());
  for (size_t i = 0; i < uses.size(); ++i) {
    for (const LinkId link : *uses[i].links) by_link[link.index()].push_back(i);
  }
  return by_link;
}

LinkMonitor::Load LinkMonitor::Seen(const LaneUse& lane, const std::vector<size_t>& on_link,
                                    const std::vector<LaneUse>& uses) const {
  Load load{lane.rate, lane.rate, lane.rate};
  const double slot_s = options_.slot.count();
  for (const size_t i : on_link) {
    const LaneUse& other = uses[i];
    if (other.key == lane.key || (other.flow->doubted && other.flow->owner != lane.flow->owner)) continue;
    const double in_backlog = std::min(other.carried, other.rate * other.backlog * slot_s);
    // What trickled in beside its backlog, if it had any. It is counted where it was sent, and may have stood in a queue since then: what
    // came in this slot may be what was sent in the one before.
    const double spread = (other.carried - in_backlog) / slot_s;
    const double sent_before = other.before / slot_s;
    // At least so much of the other's backlog fell into this lane's, and at most.
    const double least = std::max(0.0, lane.backlog + other.backlog - 1) / lane.backlog;
    const double most = std::min(1.0, other.backlog / lane.backlog);
    load.low += other.rate * least + spread;
    load.high += other.rate * most + spread;
    load.most += other.rate * most + std::max(spread, sent_before);
  }
  return load;
}

bool LinkMonitor::IsFull(const Load& load, BitsPerSecond available) const {
  return load.high >= options_.explained * available.value();
}

void LinkMonitor::FindCollisions(const std::vector<LaneUse>& uses, const UsesByLink& by_link) {
  collisions_.clear();
  for (auto& [link, state] : links_) {
    if (by_link[link.index()].empty()) state.contended = 0;
  }
  for (size_t index = 0; index < by_link.size(); ++index) {
    const std::vector<size_t>& on_link = by_link[index];
    if (on_link.empty()) continue;
    const LinkId link(static_cast<int32_t>(index));
    LinkState& state = links_[link];
    Load most;
    std::vector<uint64_t> flows;
    for (const size_t i : on_link) {
      if (uses[i].carried <= 0 || uses[i].flow->doubted) continue;
      if (flows.empty() || flows.back() != uses[i].key.first) flows.push_back(uses[i].key.first);
      if (uses[i].backlog < kContending) continue;
      const Load load = Seen(uses[i], on_link, uses);
      if (load.high > most.high) most = load;
    }
    // A lane that has the link to itself is no collision, however many send on it at other times.
    const bool shared = flows.size() >= 2 && most.high > 0 && IsFull(most, Available(link));
    state.contended = shared ? state.contended + 1 : 0;
    if (state.contended >= kContendedSlots) {
      collisions_.push_back({link, BitsPerSecond(most.high), std::move(flows)});
    }
  }
}

bool LinkMonitor::SameLinks(const Look& a, const Look& b) {
  return std::equal(a.load.begin(), a.load.end(), b.load.begin(), b.load.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

std::vector<CapacityChange> LinkMonitor::Evaluate(const FlowTable& table, int64_t slot, Seconds now) {
  std::vector<CapacityChange> changes;
  const double now_s = now.count();
  const double slot_begin_s = static_cast<double>(slot) * options_.slot.count();
  uses_ = Collect(table, slot);
  const std::vector<LaneUse>& uses = uses_;
  const auto by_link = ByLink(uses);
  DropEstimates(table, now_s, changes);
  CountOwners(table, changes);
  FindCollisions(uses, by_link);
  std::erase_if(windows_, [&](const auto& entry) { return !table.flows().contains(entry.first.first); });
  std::erase_if(pools_, [&](const auto& entry) { return now_s - entry.second.back().time_s > kLookLife; });
  std::erase_if(moved_s_, [&](const auto& entry) { return !table.flows().contains(entry.first); });
  // A young flow whose probes are still out may be what fills a link.
  const std::set<LinkId> unsure = Unsure(table, slot, now_s);
  Pause(unsure);
  for (const LaneUse& use : uses) {
    if (std::ranges::any_of(*use.links, [&](LinkId link) { return unsure.contains(link); })) continue;
    const auto moved = moved_s_.find(use.key.first);
    if (use.backlog <= 0 || (moved != moved_s_.end() && slot_begin_s < moved->second + kMoving)) continue;
    LaneWindow& window = windows_[use.key];
    // The lane's packets take another way than in the slot before: what was seen belongs to that one.
    const auto differs = [&](const Look& look) {
      return !look.load.empty() && !std::ranges::all_of(*use.links, [&](LinkId link) { return look.load.contains(link); });
    };
    if (differs(window.next) || differs(window.glance)) window = LaneWindow();
    window.owner = use.flow->owner;
    if (window.glance.load.empty()) window.glance.begin_s = slot_begin_s;
    const Look seen = LookAt(use, by_link, uses);
    window.next.Add(seen);
    window.glance.Add(seen);
    Judge(use, window, slot_begin_s + options_.slot.count(), now_s, changes);
  }
  RaiseToCarried(table, slot, changes);
  ForgetPooled(changes);
  return changes;
}

void LinkMonitor::Look::Add(const Look& part) {
  for (const auto& [link, seen] : part.load) {
    Load& sum = load[link];
    sum = {sum.low + seen.low * part.backlog_s, sum.high + seen.high * part.backlog_s, sum.most + seen.most * part.backlog_s};
  }
  backlog_s += part.backlog_s;
}

LinkMonitor::Look LinkMonitor::Look::Mean(double now_s) const {
  Look mean{now_s, begin_s, backlog_s, {}};
  for (const auto& [link, sum] : load) mean.load[link] = {sum.low / backlog_s, sum.high / backlog_s, sum.most / backlog_s};
  return mean;
}

LinkMonitor::Look LinkMonitor::LookAt(const LaneUse& use, const UsesByLink& by_link, const std::vector<LaneUse>& uses) const {
  Look look;
  look.backlog_s = use.backlog * options_.slot.count();
  for (const LinkId link : *use.links) look.load[link] = Seen(use, by_link[link.index()], uses);
  return look;
}

bool LinkMonitor::IsOver(const Look& glance, Owner owner, double end_s) const {
  const double window_s = options_.window.count() - kSameTime;
  if (glance.backlog_s >= window_s) return true;
  return end_s - glance.begin_s >= window_s && glance.backlog_s >= kGlance * options_.window.count() &&
         Fullness(glance.Mean(end_s), owner) < kFarFromFull;
}

void LinkMonitor::Judge(const LaneUse& use, LaneWindow& window, double end_s, double now_s, std::vector<CapacityChange>& changes) {
  const bool is_whole = window.next.backlog_s >= options_.window.count() - kSameTime;
  if (is_whole) {
    const Look look = std::exchange(window.next, Look()).Mean(now_s);
    FollowLook(look, window.owner, now_s, changes);
    AddToPools(use.key, window.owner, look);
  } else if (window.next.backlog_s >= kGlance * options_.window.count()) {
    Exonerate(window.next.Mean(now_s), window.owner, now_s);  // as soon as a glance may blame
  }
  if (IsOver(window.glance, window.owner, end_s)) {
    window.looks.push_back(std::exchange(window.glance, Look()).Mean(now_s));
    const auto is_old = [&](const Look& look) {
      return now_s - look.time_s > kLookLife || !SameLinks(look, window.looks.back());
    };
    while (static_cast<int>(window.looks.size()) > options_.windows || is_old(window.looks.front())) window.looks.pop_front();
    if (static_cast<int>(window.looks.size()) >= options_.windows && IsUnexplained(window)) {
      Blame(use, window, now_s, changes);
      return;
    }
  }
  if (is_whole) BlamePooled(use, window.owner, now_s, changes);
}

void LinkMonitor::Exonerate(const Look& look, Owner owner, double now_s) {
  for (const auto& [link, load] : look.load) {
    if (load.low >= options_.explained * Available(link).value()) links_[link].exonerated_s = now_s;
    else if (load.low >= options_.explained * Available(link, owner).value()) EstimateOf(link, owner).exonerated_s = now_s;
  }
}

void LinkMonitor::FollowLook(const Look& look, Owner owner, double now_s, std::vector<CapacityChange>& changes) {
  Exonerate(look, owner, now_s);
  LinkId fullest = look.load.begin()->first;
  double fullest_share = 0;
  for (const auto& [link, load] : look.load) {
    const double share = load.high / Available(link, owner).value();
    if (share > fullest_share) {
      fullest = link;
      fullest_share = share;
    }
  }
  for (const auto& [link, load] : look.load) {
    // A link carries what it carries; that it gives no more shows only on the one that holds the lane.
    const bool holds = link == fullest && fullest_share >= options_.explained;
    if (holds || load.low > Available(link, owner).value()) Follow(link, owner, load, now_s, changes);
  }
}

/// Moves a lowered estimate towards what a lane that the link holds has seen of it.
void LinkMonitor::Follow(LinkId link, Owner owner, const Load& load, double now_s, std::vector<CapacityChange>& changes) {
  if (FindEstimate(link, owner) == nullptr) return;
  Estimate& state = EstimateOf(link, owner);
  const BitsPerSecond line = fabric_->topology().link(link).line_rate;
  if (state.bad() || state.available >= line) return;
  const BitsPerSecond of_all = Available(link);
  // A test that meets its link is over: the link gives what is seen, however near to what was tried.
  if (now_s - state.tested_s < state.interval_s && load.high < state.available.value()) {
    state.available = BitsPerSecond(std::clamp(load.middle(), state.untested.value(), state.available.value()));
    state.interval_s = std::min(2 * state.interval_s, kMaxBackoff * options_.recovery_interval.count());
    state.tested_s = -1e300;
  }
  state.confirmed_s = state.seen_s = now_s;
  const double seen = std::clamp(state.available.value(), load.low, std::max(load.low, load.high));
  const double follow = std::max(seen > state.available.value() ? kFollowUp : kFollowDown,
                                 1 / (kFirstLooks + static_cast<double>(++state.looks)));
  const double next = state.available.value() + follow * (seen - state.available.value());
  state.available = next >= kRestored * line.value()
                        ? line
                        : BitsPerSecond(std::clamp(next, kLeastAvailable * line.value(), line.value()));
  const BitsPerSecond before = state.announced;
  if (std::abs(state.available.value() - before.value()) < kWorthTelling * before.value()) return;
  if (state.available < before) state.lowered_s = now_s;
  state.announced = state.available;
  changes.push_back({link, before, state.available,
                     fmt::format("link {} carried {} for lanes that it held back, planned with {}",
                                 fabric_->topology().LinkName(link), FormatRate(BitsPerSecond(load.middle())),
                                 FormatRate(before)),
                     owner, alone_ || Available(link) != of_all});
}

std::vector<CapacityChange> LinkMonitor::Recover(Seconds now) {
  std::vector<CapacityChange> changes;
  for (auto& [link, state] : links_) {
    const BitsPerSecond line = fabric_->topology().link(link).line_rate;
    for (auto& [owner, own] : state.estimates) {
      if (own.bad() || own.available >= line || now.count() - own.confirmed_s < own.interval_s) continue;
      const BitsPerSecond before = own.available;
      own.untested = before;
      own.tested_s = own.confirmed_s = now.count();
      changes.push_back(Set(link, owner, std::min(line, before * kTestStep),
                            fmt::format("link {} was planned with {} and not seen to be held to it for {}: tested for more",
                                        fabric_->topology().LinkName(link), FormatRate(before),
                                        FormatDuration(Seconds(own.interval_s)))));
    }
  }
  return changes;
}

}  // namespace weft::controller

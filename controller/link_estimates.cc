// The link monitor's book: whose estimates there are, what they come to for all, and when they are dropped.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/parse_units.h"
#include "controller/link_monitor.h"

namespace weft::controller {

LinkMonitor::Estimate& LinkMonitor::EstimateOf(LinkId link, Owner owner) {
  const auto [entry, added] = links_[link].estimates.try_emplace(owner);
  if (added) {
    entry->second.available = entry->second.announced = fabric_->topology().link(link).line_rate;
    entry->second.interval_s = options_.recovery_interval.count();
  }
  return entry->second;
}

const LinkMonitor::Estimate* LinkMonitor::FindEstimate(LinkId link, Owner owner) const {
  const auto state = links_.find(link);
  if (state == links_.end()) return nullptr;
  const auto own = state->second.estimates.find(owner);
  return own == state->second.estimates.end() ? nullptr : &own->second;
}

size_t LinkMonitor::estimates() const {
  size_t count = 0;
  for (const auto& [link, state] : links_) count += state.estimates.size();
  return count;
}

BitsPerSecond LinkMonitor::Available(LinkId link) const {
  const BitsPerSecond line = fabric_->topology().link(link).line_rate;
  const auto found = links_.find(link);
  if (found == links_.end()) return line;
  BitsPerSecond least = line, second = line;
  for (const auto& [owner, estimate] : found->second.estimates) {
    second = std::min(second, std::max(least, estimate.available));
    least = std::min(least, estimate.available);
  }
  return alone_ ? least : second;
}

BitsPerSecond LinkMonitor::Available(LinkId link, Owner owner) const {
  const BitsPerSecond all = Available(link);
  const Estimate* own = FindEstimate(link, owner);
  return own == nullptr ? all : std::min(all, own->available);
}

CapacityChange LinkMonitor::Set(LinkId link, Owner owner, BitsPerSecond to, std::string reason) {
  Estimate& own = EstimateOf(link, owner);
  const BitsPerSecond all = Available(link), before = own.available;
  own.available = own.announced = to;
  const bool for_all = alone_ || Available(link) != all;
  if (for_all) return {link, alone_ ? before : all, Available(link), std::move(reason), owner, true};
  return {link, before, to, std::move(reason), owner, false};
}

void LinkMonitor::CountOwners(const FlowTable& table, std::vector<CapacityChange>& changes) {
  std::set<Owner> owners;
  for (const auto& [id, flow] : table.flows()) {
    if (!flow.stale()) owners.insert(flow.owner);
  }
  for (const auto& [link, state] : links_) {
    const BitsPerSecond line = fabric_->topology().link(link).line_rate;
    for (const auto& [owner, estimate] : state.estimates) {
      if (estimate.available < line) owners.insert(owner);
    }
  }
  if (alone_ == (owners.size() <= 1)) return;
  std::map<LinkId, BitsPerSecond> before;
  for (const auto& [link, state] : links_) before[link] = Available(link);
  alone_ = !alone_;
  for (const auto& [link, was] : before) {
    if (Available(link) == was) continue;
    changes.push_back({link, was, Available(link),
                       fmt::format("link {}: {}", fabric_->topology().LinkName(link),
                                   alone_ ? "whose flows have found it to give less is the only user"
                                          : "flows of another user are here, and only one has found it to give less")});
  }
}

void LinkMonitor::KeepLeast(std::map<Owner, Estimate>* estimates) {
  if (estimates->size() <= kMostOwners) return;
  std::vector<std::pair<BitsPerSecond, Owner>> order;
  for (const auto& [owner, own] : *estimates) order.emplace_back(own.available, owner);
  std::nth_element(order.begin(), order.begin() + kMostOwners, order.end());
  for (size_t i = kMostOwners; i < order.size(); ++i) estimates->erase(order[i].second);
}

void LinkMonitor::DropEstimates(const FlowTable& table, double now_s, std::vector<CapacityChange>& changes) {
  std::set<Owner> here;
  for (const auto& [id, flow] : table.flows()) here.insert(flow.owner);
  const double life_s = kMaxBackoff * options_.recovery_interval.count();
  for (auto& [link, state] : links_) {
    if (state.estimates.empty()) continue;
    const BitsPerSecond line = fabric_->topology().link(link).line_rate, before = Available(link);
    std::erase_if(state.estimates, [&](const auto& entry) {
      const auto& [owner, own] = entry;
      if (own.bad()) return false;
      // As a new one would be: neither a test that may fail yet, nor what speaks for the link, hangs on it.
      const bool says_nothing =
          own.available >= line && now_s - own.tested_s >= own.interval_s && now_s - own.exonerated_s > kLookLife;
      return says_nothing || (!here.contains(owner) && now_s - own.seen_s > life_s);
    });
    KeepLeast(&state.estimates);
    const BitsPerSecond after = Available(link);
    if (after == before) continue;
    changes.push_back({link, before, after,
                       fmt::format("link {}: a user who has found it to give less has no flows any more, and it was not seen for {}",
                                   fabric_->topology().LinkName(link), FormatDuration(Seconds(life_s)))});
  }
}

void LinkMonitor::RaiseToCarried(const FlowTable& table, int64_t slot, std::vector<CapacityChange>& changes) {
  struct Carried {
    Estimate* estimate = nullptr;
    int64_t first = 0;  // slot
    double bits = 0;
  };
  const double slot_s = options_.slot.count();
  const auto longest = std::min<int64_t>(std::llround(kCarriedLong / slot_s), SlotRing::kSlots - 2);
  std::map<std::pair<LinkId, Owner>, Carried> lowered;
  for (auto& [link, state] : links_) {
    for (auto& [owner, own] : state.estimates) {
      if (own.bad() || own.available >= fabric_->topology().link(link).line_rate) continue;
      const double since = std::max(own.lowered_s / slot_s, -1.0);
      const int64_t first = std::max(static_cast<int64_t>(std::floor(since)) + 1, slot - longest + 1);
      if (static_cast<double>(slot - first + 1) * slot_s < std::min(kCarriedShort, static_cast<double>(longest) * slot_s)) continue;
      lowered[{link, owner}] = {&own, first, 0};
    }
  }
  if (lowered.empty()) return;
  for (const auto& [id, flow] : table.flows()) {
    for (const auto& [port, lane] : flow.lanes) {
      const std::vector<LinkId>* links = flow.PathOf(port);
      if (links == nullptr) continue;
      for (const LinkId link : *links) {
        const auto of = lowered.find({link, flow.owner});
        if (of != lowered.end()) of->second.bits += lane.carried.Sum(of->second.first, slot) * 8;
      }
    }
  }
  for (const auto& [key, carried] : lowered) {
    const auto& [link, owner] = key;
    Estimate& own = *carried.estimate;
    const BitsPerSecond line = fabric_->topology().link(link).line_rate;
    const BitsPerSecond rate = std::min(line, BitsPerSecond(carried.bits / (static_cast<double>(slot - carried.first + 1) * slot_s)));
    if (rate <= own.available) continue;
    const BitsPerSecond of_all = Available(link), before = own.announced;
    own.available = rate;
    if (rate.value() - before.value() < kWorthTelling * before.value()) continue;
    own.announced = rate;
    changes.push_back({link, before, rate,
                       fmt::format("link {} carried {}, planned with {}", fabric_->topology().LinkName(link), FormatRate(rate), FormatRate(before)),
                       owner, alone_ || Available(link) != of_all});
  }
}

}  // namespace weft::controller

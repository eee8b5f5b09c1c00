#include "controller/class_watch.h"

#include <algorithm>
#include <set>

namespace weft::controller {
namespace {

constexpr double kWaiting = 0.5;            // of a slot that a lane must have had a backlog
constexpr double kTogether = 0.5;           // of a slot that it and a lane of a later class must have waited at the same time
constexpr double kFull = 0.7, kOver = 1.2;  // what was carried while it waited, over what the link is believed to give
constexpr double kTellsApart = 0.15;        // declared share less what a link without classes gives
constexpr double kUndeclared = 0.75;

}  // namespace

double ClassWatch::Declared(int32_t own, const Loads& loads) const {
  double earlier = 0, all = 0;
  for (const auto& [index, load] : loads) {
    if (static_cast<size_t>(index) >= shares_.size() || shares_[static_cast<size_t>(index)] <= 0) return kUndeclared;
    all += shares_[static_cast<size_t>(index)];
    if (index <= own) earlier += shares_[static_cast<size_t>(index)];
  }
  return all > 0 ? earlier / all : kUndeclared;
}

ClassWatch::Seen ClassWatch::Look(const LinkMonitor::LaneUse& use, int32_t own, const Loads& loads, double available,
                                  double now_s) const {
  Seen none{.time_s = -1};
  double later = 0, earlier = use.rate - std::max(use.rate, use.carried / slot_s_);
  int lanes = 0, all = 0;
  double waiting = 0;             // of a lane of a later class
  for (const auto& [index, load] : loads) {
    (index <= own ? earlier : later) += index <= own ? load.waiting : load.carried;
    lanes += index <= own ? load.lanes : 0;
    all += load.lanes;
    if (index > own) waiting = std::max(waiting, load.backlog);
  }
  if (use.backlog + waiting - 1 < kTogether) return none;
  // Later classes may have had the link to themselves for the rest of the slot: at least so much was theirs while this one waited.
  later = std::max(0.0, (later - (1 - use.backlog) * available) / use.backlog);
  const double total = earlier + later;
  if (lanes == all || later <= 0 || total < kFull * available || total > kOver * available) return none;
  const double alike = static_cast<double>(lanes) / all, declared = Declared(own, loads);
  if (declared - alike < kTellsApart) return none;
  return {.time_s = now_s, .got = earlier / total, .wanted = (alike + declared) / 2, .declared = declared};
}

void ClassWatch::See(const LinkMonitor& monitor, const std::function<std::optional<int32_t>(const SendFlow&)>& class_of, int32_t last,
                     double now_s) {
  std::erase_if(looks_, [&](const auto& entry) { return now_s - entry.second.back().time_s > kLookLife; });
  if (now_s - changed_s_ < kSettle) return;
  std::map<LinkId, Loads> loads;
  for (const LinkMonitor::LaneUse& use : monitor.uses()) {
    const std::optional<int32_t> own = class_of(*use.flow);
    if (!own || use.carried <= 0) continue;
    for (const LinkId link : *use.links) {
      ClassLoad& load = loads[link][*own];
      load.carried += use.carried / slot_s_;
      load.waiting += std::max(use.backlog > 0 ? use.rate : 0, use.carried / slot_s_);
      ++load.lanes;
      load.backlog = std::max(load.backlog, use.backlog);
    }
  }
  std::set<std::pair<LinkId, std::string>> seen;
  for (const LinkMonitor::LaneUse& use : monitor.uses()) {
    const std::string& job = use.flow->identity.job_id();
    const std::optional<int32_t> own = class_of(*use.flow);
    if (use.backlog < kWaiting || use.carried <= 0 || !own || *own >= last) continue;
    // A link that its class and earlier ones fill by themselves is what the lane waits for: the other links owe it nothing.
    const auto holds = [&](LinkId link) {
      double earlier = 0;
      for (const auto& [index, load] : loads[link]) earlier += index <= *own ? load.carried : 0;
      return earlier >= use.backlog * kFull * monitor.Available(link, use.flow->owner).value();
    };
    if (std::ranges::any_of(*use.links, holds)) continue;
    for (const LinkId link : *use.links) {
      const Seen look = Look(use, *own, loads[link], monitor.Available(link, use.flow->owner).value(), now_s);
      if (look.time_s < 0 || !seen.insert({link, job}).second) continue;
      std::deque<Seen>& looks = looks_[{link, job}];
      looks.push_back(look);
      while (looks.size() > kLooks || now_s - looks.front().time_s > kLookLife) looks.pop_front();
      if (looks.size() < kLooks) continue;
      double got = 0, wanted = 0;
      for (const Seen& one : looks) {
        got += one.got / kLooks;
        wanted += one.wanted / kLooks;
      }
      const bool told = std::ranges::any_of(found_, [&](const Inversion& one) { return one.job == job; });
      if (got < wanted && !told) found_.push_back({job, link, *own, got, look.declared});
    }
  }
}

std::vector<Inversion> ClassWatch::Take() { return std::exchange(found_, {}); }

void ClassWatch::Changed(double now_s) {
  looks_.clear();
  found_.clear();
  changed_s_ = now_s;
}

double ClassWatch::Withdraw(const std::string& job, double now_s) {
  Hold& hold = holds_[job];
  const double hold_s = std::min(kLongestHold, kHold * static_cast<double>(int64_t{1} << std::min(hold.times, 10)));
  ++hold.times;
  hold.until_s = now_s + hold_s;
  return hold_s;
}

bool ClassWatch::IsWithdrawn(const std::string& job) const {
  const auto hold = holds_.find(job);
  return hold != holds_.end() && hold->second.until_s > 0;
}

std::vector<std::string> ClassWatch::EndHolds(double now_s) {
  std::vector<std::string> jobs;
  for (auto& [job, hold] : holds_) {
    if (hold.until_s <= 0 || now_s < hold.until_s) continue;
    hold.until_s = 0;
    jobs.push_back(job);
  }
  return jobs;
}

void ClassWatch::Forget(const std::string& job) {
  holds_.erase(job);
  std::erase_if(looks_, [&](const auto& entry) { return entry.first.second == job; });
  std::erase_if(found_, [&](const Inversion& one) { return one.job == job; });
}

}  // namespace weft::controller

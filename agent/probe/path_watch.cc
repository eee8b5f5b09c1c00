#include "agent/probe/path_watch.h"

#include <algorithm>

namespace weft::agent {
namespace {

constexpr Seconds kWaysInterval{5};
constexpr int kAttempts = 3;
constexpr Seconds kNever{1e18};

}  // namespace

void PathWatch::SetWays(const std::vector<WatchedWay>& ways) {
  ways_.clear();
  for (const WatchedWay& way : ways) {
    const auto found = ways_.find({way.ttl, way.hop});
    if (found == ways_.end() && ways_.size() >= kMostHops) continue;
    Ways& of = ways_[{way.ttl, way.hop}];
    if (of.all.size() >= kMostWays) continue;
    if (way.lane) of.lanes.push_back(of.all.size());
    of.all.push_back(way);
  }
}

std::optional<Probe> PathWatch::Next(Seconds now, ProbeBudget& budget, uint64_t random) {
  if (options_.watch_interval.count() <= 0) return std::nullopt;
  ways_due_ = std::max(ways_due_, now + (now >= ways_due_ ? kWaysInterval : Seconds(0)));
  if (now < next_) return std::nullopt;
  if (!question_) {
    if (ways_.empty()) return std::nullopt;
    auto at = ways_.upper_bound(last_);
    if (at == ways_.end()) at = ways_.begin();
    last_ = at->first;
    const Ways& of = at->second;
    const bool lane = !of.lanes.empty() && random % 2 == 0;
    random /= 2;
    question_ = Question{.way = of.all[lane ? of.lanes[random % of.lanes.size()] : random % of.all.size()]};
  }
  const ProbePlace place{question_->way.source, 0, question_->way.ttl};
  if (question_->attempts >= kAttempts) return std::nullopt;
  if (!budget.TakeSpare(place, now)) {
    next_ = budget.SpareAt(place, now);
    return std::nullopt;
  }
  const WatchedWay& way = question_->way;
  ++question_->attempts;
  question_->sent = now;
  next_ = now + options_.watch_interval;
  return Probe{.source = way.source, .destination = way.destination, .source_port = way.source_port,
               .destination_port = way.destination_port, .ttl = static_cast<uint8_t>(way.ttl)};
}

Seconds PathWatch::Wake() const {
  if (options_.watch_interval.count() <= 0) return kNever;
  if (!question_) return ways_.empty() ? ways_due_ : std::min(ways_due_, next_);
  return std::min(ways_due_, question_->attempts > 0 ? std::max(next_, question_->sent + options_.answer_timeout) : next_);
}

void PathWatch::OnTimeExceeded(const Probe& sent, Ipv4 from) {
  if (!question_) return;
  const WatchedWay& way = question_->way;
  const bool same = way.source == sent.source && way.destination == sent.destination && way.source_port == sent.source_port &&
                    way.destination_port == sent.destination_port && way.ttl == sent.ttl;
  if (!same) return;
  question_->answer = from;
  if (from == way.hop) question_.reset();
}

std::optional<WatchedWay> PathWatch::TakeChanged(Seconds now) {
  if (!question_) return std::nullopt;
  const bool silent = question_->attempts >= kAttempts && now >= question_->sent + options_.answer_timeout;
  if (question_->answer == 0 && !silent) return std::nullopt;
  const WatchedWay way = question_->way;
  question_.reset();
  // Not asked again before the tracer has looked, which takes ports anew.
  ways_.erase({way.ttl, way.hop});
  ways_due_ = now + kWaysInterval;
  return way;
}

}  // namespace weft::agent

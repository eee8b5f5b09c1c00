#include "agent/probe/destination.h"

#include <algorithm>

namespace weft::agent {
namespace {

constexpr int kFullTtl = 64;
constexpr int kMaxHops = 30;
constexpr int kMaxCorrections = 8;
constexpr Seconds kNever{1e18};

/// Hosts start at 64 (Linux, BSD), 128 (Windows) or 255 (many switches).
int InitialTtl(int left) { return left <= 64 ? 64 : left <= 128 ? 128 : 255; }

}  // namespace

void ProbeQuery::Expire(Seconds now, const TracerOptions& options) {
  if (!done && attempts >= options.attempts && now >= sent + options.answer_timeout) done = true;
}
bool ProbeQuery::Due(Seconds now, const TracerOptions& options) const {
  return !done && attempts < options.attempts && (attempts == 0 || now >= sent + options.answer_timeout);
}
Seconds ProbeQuery::Wake(Seconds now, const TracerOptions& options) const {
  if (done) return kNever;
  return attempts == 0 ? now : sent + options.answer_timeout;
}
void ProbeQuery::Sent(Seconds now) {
  ++attempts;
  sent = now;
}
void ProbeQuery::Answer(Ipv4 from) {
  answer = from;
  done = true;
}

DestinationTrace::DestinationTrace(Ipv4 source, Ipv4 destination, uint16_t source_port, uint16_t closed_port)
    : source_(source), destination_(destination), source_port_(source_port), closed_port_(closed_port) {
  distance_.ttl = kFullTtl;
}

DestinationTrace DestinationTrace::Afresh() const {
  DestinationTrace again(source_, destination_, source_port_, closed_port_);
  if (first_.done && first_.answer != 0) again.first_ = first_;
  return again;
}

void DestinationTrace::SetDistance(int hops) {
  hops_ = hops;
  distance_.done = true;
  if (hops == 0) {
    state_ = State::kReady;
    return;
  }
  if (!first_.done) first_ = {.ttl = 1};
  last_ = {.ttl = hops, .done = hops == 1};
  confirm_ = {.ttl = hops + 1};
}

std::optional<ProbePlace> DestinationTrace::PlaceOf(const ProbeQuery& query) const {
  if (&query == &first_) return ProbePlace{source_, 0, 1};
  if (&query == &last_) return ProbePlace{source_, destination_, last_.ttl};
  return std::nullopt;  // the destination's resets are not limited
}

void DestinationTrace::Settle(Seconds now, const TracerOptions& options) {
  if (state_ == State::kSilent && now >= silent_since_ + options.destination_retry) {
    *this = DestinationTrace(source_, destination_, source_port_, closed_port_);
  }
  if (state_ != State::kAsking) return;
  if (hops_ < 0) {
    distance_.Expire(now, options);
    if (distance_.done) {
      state_ = State::kSilent;
      silent_since_ = now;
    }
    return;
  }
  for (ProbeQuery* query : {&first_, &last_, &confirm_}) query->Expire(now, options);
  if (first_.done && last_.done && confirm_.done) state_ = State::kReady;
}

std::optional<Probe> DestinationTrace::Next(Seconds now, const TracerOptions& options, ProbeBudget& budget) {
  Settle(now, options);
  if (state_ != State::kAsking) return std::nullopt;
  const auto put = [&](ProbeQuery& query) -> std::optional<Probe> {
    if (!query.Due(now, options)) return std::nullopt;
    const std::optional<ProbePlace> place = PlaceOf(query);
    if (place && !budget.Take(*place, now)) return std::nullopt;
    query.Sent(now);
    return Probe{.source = source_,
                 .destination = destination_,
                 .source_port = source_port_,
                 .destination_port = closed_port_,
                 .ttl = static_cast<uint8_t>(query.ttl)};
  };
  if (hops_ < 0) return put(distance_);
  for (ProbeQuery* query : {&first_, &last_, &confirm_}) {
    if (auto probe = put(*query)) return probe;
  }
  return std::nullopt;
}

Seconds DestinationTrace::Wake(Seconds now, const TracerOptions& options, ProbeBudget& budget) const {
  if (state_ == State::kSilent) return silent_since_ + options.destination_retry;
  if (state_ == State::kReady) return kNever;
  if (hops_ < 0) return distance_.Wake(now, options);
  Seconds wake = kNever;
  for (const ProbeQuery* query : {&first_, &last_, &confirm_}) {
    Seconds at = query->Wake(now, options);
    const std::optional<ProbePlace> place = PlaceOf(*query);
    if (place && query->Due(now, options)) at = std::max(at, budget.ReadyAt(*place, now));
    wake = std::min(wake, at);
  }
  return wake;
}

void DestinationTrace::OnTimeExceeded(int ttl, Ipv4 from, ProbeBudget& budget) {
  if (hops_ < 0 || state_ == State::kSilent) return;
  if (ttl == 1) {
    first_.Answer(from);
    budget.Answered({source_, 0, 1}, from);
  }
  if (ttl == hops_) last_.Answer(from);
  // What should have arrived did not: the way there is longer than the way back.
  if (ttl == hops_ + 1 && hops_ < kMaxHops && ++corrections_ <= kMaxCorrections) {
    const ProbeQuery first = first_;
    SetDistance(hops_ + 1);
    first_ = first;
    last_.Answer(from);
  }
}

void DestinationTrace::OnArrived(int ttl, int left) {
  if (hops_ < 0) {
    const int hops = InitialTtl(left) - left;
    if (hops <= kMaxHops) SetDistance(hops);
    return;
  }
  if (ttl == hops_ + 1) confirm_.done = true;
  // What should have ended on the way arrived: the way there is shorter than the way back.
  if (ttl <= hops_ && ttl > 0 && ++corrections_ <= kMaxCorrections) SetDistance(ttl - 1);
}

}  // namespace weft::agent

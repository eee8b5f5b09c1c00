#include "agent/probe/budget.h"

#include <algorithm>

namespace weft::agent {

double ProbeBudget::Rate(const Bucket& bucket) const {
  return rate_per_s_ * static_cast<double>(std::max<size_t>(1, bucket.switches.size()));
}

/// A slower host has a smaller burst too: it may begin at the same moment as all others.
double ProbeBudget::Burst() const { return std::max(1.0, options_.burst * std::min(1.0, rate_per_s_ / options_.rate_per_s)); }

ProbeBudget::Bucket& ProbeBudget::Filled(const ProbePlace& place, Seconds now) {
  auto [it, is_new] = buckets_.try_emplace(place);
  Bucket& bucket = it->second;
  if (is_new) {
    bucket.tokens = Burst();
  } else {
    const double most = Burst() * static_cast<double>(std::max<size_t>(1, bucket.switches.size()));
    const double more = std::max(0.0, (now - bucket.filled).count()) * Rate(bucket);
    bucket.tokens = std::min(most, bucket.tokens + more);
  }
  bucket.filled = now;
  return bucket;
}

bool ProbeBudget::Take(const ProbePlace& place, Seconds now) {
  Bucket& bucket = Filled(place, now);
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

bool ProbeBudget::TakeSpare(const ProbePlace& place, Seconds now) { return SpareAt(place, now) <= now && Take(place, now); }

Seconds ProbeBudget::HasAt(const ProbePlace& place, double tokens, Seconds now) {
  const Bucket& bucket = Filled(place, now);
  if (bucket.tokens >= tokens) return now;
  // A little late rather than a little early: an early caller would come back at once, again and again.
  return now + Seconds((tokens - bucket.tokens) / Rate(bucket) + 1e-6);
}

Seconds ProbeBudget::ReadyAt(const ProbePlace& place, Seconds now) { return HasAt(place, 1, now); }
Seconds ProbeBudget::SpareAt(const ProbePlace& place, Seconds now) { return HasAt(place, std::min(Burst(), 1 + Burst() / 2), now); }

void ProbeBudget::Answered(const ProbePlace& place, Ipv4 from) {
  const auto it = buckets_.find(place);
  if (it == buckets_.end() || !it->second.switches.insert(from).second) return;
  // The second switch and every further one brings its own burst, less what chance has already sent its way.
  if (it->second.switches.size() > 1) it->second.tokens += std::max(0.0, Burst() - 2);
}

}  // namespace weft::agent

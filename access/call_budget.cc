#include "access/call_budget.h"

#include <algorithm>

namespace weft::access {
namespace {

constexpr char kOthers[] = "";  // those beyond kMostBuckets

}  // namespace

CallRate RateOf(Access access) {
  switch (access) {
    case Access::kSession: return {.per_s = 10, .most = 512};
    case Access::kRead: return {.per_s = 50, .most = 200};
    case Access::kSubmit: return {.per_s = 20, .most = 400};
    case Access::kOperate: return {.per_s = 10, .most = 50};
  }
  return {.per_s = 1, .most = 1};
}

CallRate CallBudget::Rate(Access access) const {
  const CallRate one = RateOf(access);
  return {.per_s = one.per_s * times_, .most = one.most * times_};
}

double CallBudget::Filled(const Bucket& bucket, Access access, Seconds now) const {
  const CallRate rate = Rate(access);
  return std::min(rate.most, bucket.tokens + rate.per_s * std::max(0.0, (now - bucket.at).count()));
}

CallBudget::Bucket& CallBudget::BucketOf(const Key& key, Seconds now) {
  if (const auto known = buckets_.find(key); known != buckets_.end()) return known->second;
  if (buckets_.size() >= kMostBuckets) {
    // A full bucket is as good as none.
    std::erase_if(buckets_, [&](const auto& entry) {
      return Filled(entry.second, entry.first.second, now) >= Rate(entry.first.second).most;
    });
  }
  const Bucket fresh{.tokens = Rate(key.second).most, .at = now};
  if (buckets_.size() >= kMostBuckets) return buckets_.try_emplace({kOthers, key.second}, fresh).first->second;
  return buckets_.try_emplace(key, fresh).first->second;
}

Seconds CallBudget::Take(const std::string& caller, Access access, Seconds now) {
  Bucket& bucket = BucketOf({caller, access}, now);
  bucket.tokens = Filled(bucket, access, now);
  bucket.at = std::max(bucket.at, now);
  if (bucket.tokens < 1) return Seconds((1 - bucket.tokens) / Rate(access).per_s);
  bucket.tokens -= 1;
  return Seconds(0);
}

}  // namespace weft::access

#include "runtime/bucket_exchange.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/check.h"
#include "runtime/priority.h"

namespace weft::runtime {
std::vector<Bucket> PlanBuckets(std::span<const int64_t> elements, Bytes size) {
  WEFT_CHECK(!elements.empty() && size.count() > 0, "buckets of something, of some size");
  const int64_t limit = size.count() / static_cast<int64_t>(sizeof(float));
  std::vector<Bucket> buckets;
  int64_t offset = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (buckets.empty() || buckets.back().elements + elements[i] > limit) {
      buckets.push_back({.first_parameter = i, .offset = offset});
    }
    ++buckets.back().parameters;
    buckets.back().elements += elements[i];
    offset += elements[i];
  }
  return buckets;
}

size_t BucketExchange::MemoryElements(std::span<const int64_t> parameter_elements) {
  return static_cast<size_t>(std::accumulate(parameter_elements.begin(), parameter_elements.end(), kRiders));
}

BucketExchange::BucketExchange(std::span<const int64_t> parameter_elements, Bytes bucket_size, int ranks,
                               std::span<float> memory, Reduce reduce)
    : buckets_(PlanBuckets(parameter_elements, bucket_size)),
      ranks_(ranks),
      reduce_(std::move(reduce)),
      memory_(memory),
      pending_(buckets_.size()),
      ready_(buckets_.size()) {
  WEFT_CHECK(memory.size() == MemoryElements(parameter_elements), "memory of another size");
  float* next = memory_.data();
  for (const int64_t elements : parameter_elements) {
    gradients_.emplace_back(next, static_cast<size_t>(elements));
    next += elements;
  }
  for (size_t b = 0; b < buckets_.size(); ++b) bucket_of_.insert(bucket_of_.end(), buckets_[b].parameters, b);
  if (reduce_) {
    thread_ = std::jthread([this](const std::stop_token& stop) { Communicate(stop); });
  }
}

BucketExchange::~BucketExchange() = default;

std::span<float> BucketExchange::gradient(size_t parameter) { return gradients_[parameter]; }

std::span<float> BucketExchange::Memory(const Bucket& bucket) {
  const int64_t riders = &bucket == &buckets_.back() ? kRiders : 0;
  return {memory_.data() + bucket.offset, static_cast<size_t>(bucket.elements + riders)};
}

void BucketExchange::Begin() {
  {
    const std::lock_guard lock(mutex_);
    WEFT_CHECK(!reduce_ || reduced_ == submitted_, "a step begins before the last one was waited for");
    submitted_ = reduced_ = 0;
  }
  next_ = 0;
  std::fill(memory_.begin(), memory_.end(), 0.0f);
  for (size_t b = 0; b < buckets_.size(); ++b) pending_[b] = buckets_[b].parameters;
}

void BucketExchange::SetContribution(float loss, bool stop) {
  WEFT_CHECK(next_ < buckets_.size(), "the last bucket is gone already");
  memory_[memory_.size() - 2] = loss;
  memory_[memory_.size() - 1] = stop ? 1.0f : 0.0f;
}

void BucketExchange::GradientReady(size_t parameter) {
  const size_t bucket = bucket_of_[parameter];
  WEFT_CHECK(pending_[bucket] > 0, "a gradient is ready twice");
  --pending_[bucket];
  const size_t before = next_;
  while (next_ < buckets_.size() && pending_[next_] == 0) ++next_;
  if (next_ == before) return;
  std::fill(ready_.begin() + static_cast<std::ptrdiff_t>(before), ready_.begin() + static_cast<std::ptrdiff_t>(next_),
            clock_.Now());
  Submit();
}

void BucketExchange::Submit() {
  if (!reduce_) return;
  {
    const std::lock_guard lock(mutex_);
    submitted_ = next_;
  }
  changed_.notify_all();
}

Result<StepAgreement> BucketExchange::Wait() {
  WEFT_CHECK(next_ == buckets_.size(), "waiting for buckets that are not complete");
  if (reduce_) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return error_ || reduced_ == buckets_.size(); });
    if (error_) return Fail(*error_);
  }
  return StepAgreement{.loss = memory_[memory_.size() - 2], .stop = memory_[memory_.size() - 1] > 0};
}

void BucketExchange::Communicate(const std::stop_token& stop) {
  PreferShortTurns();
  const float share = 1.0f / static_cast<float>(ranks_);
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return reduced_ < submitted_; })) {
    const size_t index = reduced_;
    const std::span<float> memory = Memory(buckets_[index]);
    lock.unlock();
    const Status status = reduce_(memory);
    if (status) {
      for (float& value : memory) value *= share;
    }
    lock.lock();
    if (!status) {
      error_ = status.error().WithContext("all-reduce of bucket " + std::to_string(index));
    } else {
      ++reduced_;
    }
    changed_.notify_all();
    if (error_) return;
  }
}

}  // namespace weft::runtime

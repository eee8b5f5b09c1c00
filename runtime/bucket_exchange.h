// Gradients of one step, exchanged while backward still runs. The gradients of all parameters lie in one memory, in the
// order in which backward makes them, cut into buckets. When the last gradient of a bucket is there the bucket goes to
// one communication thread, which reduces the buckets in their order; that order is the same on all ranks, whatever the
// order in which gradients became ready.
//
// Two numbers ride along at the end of the last bucket, so that they cost no message of their own: the loss and the
// wish to stop. No torch here: backward writes through views and calls GradientReady().
//
//   exchange.Begin();
//   exchange.SetContribution(loss, stop);      // before the last gradient is ready
//   ... exchange.GradientReady(i) for every i, from one thread ...
//   WEFT_ASSIGN_OR_RETURN(StepAgreement agreed, exchange.Wait());
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::runtime {

/// A run of parameters that is reduced as one message.
struct Bucket {
  size_t first_parameter = 0;
  size_t parameters = 0;
  int64_t offset = 0;    ///< of the first element in the gradient memory
  int64_t elements = 0;  ///< gradients only, without what rides along

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// Cuts parameters of `elements` floats each, in the order given, into runs of at most `size`; a parameter larger than
/// that is a bucket of its own. Requires: at least one parameter, a positive size. Complexity: linear.
std::vector<Bucket> PlanBuckets(std::span<const int64_t> elements, Bytes size);

/// What the ranks agree on at the end of a step.
struct StepAgreement {
  float loss = 0;     ///< mean over the ranks
  bool stop = false;  ///< some rank wished that this step be the last
};

class BucketExchange {
 public:
  /// Sums over all ranks in place; called on the communication thread, one bucket at a time.
  using Reduce = std::function<Status(std::span<float>)>;

  /// Elements of the memory that an exchange needs: the gradients and what rides along.
  static size_t MemoryElements(std::span<const int64_t> parameter_elements);

  /// `memory` is lent for the life of the exchange, so that whoever registered it for sending may forget it before it
  /// is freed. Without `reduce` nothing is exchanged and no thread started; results are then this rank's own.
  /// Requires: as PlanBuckets; ranks >= 1; MemoryElements() of memory.
  /// Threads: all calls from one, except that Reduce is called on the communication thread.
  BucketExchange(std::span<const int64_t> parameter_elements, Bytes bucket_size, int ranks, std::span<float> memory,
                 Reduce reduce);
  /// Waits for a reduction under way.
  ~BucketExchange();
  BucketExchange(const BucketExchange&) = delete;
  BucketExchange& operator=(const BucketExchange&) = delete;

  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// When the last gradient of each bucket and of those before it was there in the newest step (CLOCK_MONOTONIC).
  const std::vector<Seconds>& ready() const { return ready_; }
  /// Where the gradient of a parameter lies; stays in place for the life of the exchange.
  std::span<float> gradient(size_t parameter);

  /// Starts a step: all gradients are zero again. Requires: the step before was waited for.
  void Begin();
  /// This rank's part of the agreement. Requires: between Begin() and the last GradientReady().
  void SetContribution(float loss, bool stop);
  /// The gradient is complete. Requires: once per parameter and step.
  void GradientReady(size_t parameter);
  /// Blocks until every bucket holds the mean over the ranks. Requires: all gradients are ready.
  /// Errors: those of Reduce, with the bucket in front; the exchange is unusable afterwards.
  [[nodiscard]] Result<StepAgreement> Wait();

 private:
  static constexpr int64_t kRiders = 2;  // loss, stop

  std::span<float> Memory(const Bucket& bucket);
  void Submit();
  void Communicate(const std::stop_token& stop);

  // Constant after construction.
  std::vector<Bucket> buckets_;
  std::vector<std::span<float>> gradients_;  // by parameter
  std::vector<size_t> bucket_of_;            // by parameter
  int ranks_;
  Reduce reduce_;

  // A bucket's part belongs to the caller until the bucket is submitted, to the communication thread until it is reduced,
  // and to the caller again; the lock below hands it over.
  std::span<float> memory_;

  // The caller's thread only.
  std::vector<size_t> pending_;  // by bucket: gradients that are not ready
  size_t next_ = 0;              // first bucket that is not complete
  std::vector<Seconds> ready_;   // by bucket
  SystemClock clock_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  size_t submitted_ = 0;
  size_t reduced_ = 0;
  std::optional<Error> error_;

  std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace weft::runtime

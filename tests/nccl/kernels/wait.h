// How a kernel waits for memory that another rank, or NCCL's proxy thread, writes.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace weft::nccl_test {

inline uint64_t LoadAcquire(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void StoreRelease(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/// Waits of one block of a kernel. A GPU spins and takes no processor time; here the ranks share a few cores, so a wait
/// yields at once and sleeps when it gets long.
class Waits {
 public:
  /// `abort` is the communicator's flag. Not owned.
  explicit Waits(const volatile uint32_t* abort) : abort_(abort) {}

  /// NCCL wants the kernel to end. Every wait returns from then on, and no data may be touched.
  bool aborted() const { return aborted_; }

  /// Returns when `ready()`, or when the communicator was aborted.
  template <class Ready>
  void Until(const Ready& ready) {
    for (int turn = 0; !aborted_ && !ready(); ++turn) Pause(turn);
  }

  /// One pause of a caller that polls several things by turns; `turn` counts them since the last progress.
  void Pause(int turn) {
    if (abort_ != nullptr && __atomic_load_n(abort_, __ATOMIC_RELAXED) != 0) aborted_ = true;
    if (turn < kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  static constexpr int kYields = 2000;                      // about a millisecond where nobody else wants the core
  static constexpr std::chrono::microseconds kSleep{50};

  const volatile uint32_t* abort_;
  bool aborted_ = false;
};

}  // namespace weft::nccl_test

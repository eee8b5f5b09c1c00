// Who may take a slot of the sections that the profiler face, the tuner face and the watchdog write
// (abi/observations.h). Slots are taken and closed rarely, under a mutex; what is counted in them is not.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "netplugin/abi/observations.h"

namespace weft::net {

/// What is constant about a communicator, as far as the interface version tells.
struct CommunicatorIdentity {
  uint64_t comm = 0;         ///< 0: not named
  int rank = -1;             ///< -1: not named
  int ranks = 0;
  int nodes = 0;
  const char* name = nullptr;
};

class Observer {
 public:
  /// `observations` is zeroed memory that outlives the observer.
  explicit Observer(abi::Observations* observations) : observations_(*observations) {}

  /// A slot for one more user of a communicator. A tuner, which knows no rank, joins the slot that the profiler has
  /// opened for the same id. nullptr when all are in use; closed ones are taken again oldest first. Threads: any.
  abi::CommunicatorSlot* Open(const CommunicatorIdentity& identity);
  /// For each Open() that was not nullptr; the last one closes the slot.
  void Close(abi::CommunicatorSlot* slot);

  /// A zeroed stall with its generation odd: the caller fills the identity and calls Publish(). nullptr when all are
  /// open. Threads: the background thread.
  abi::StallSlot* NewStall();
  static void Publish(abi::StallSlot* stall);

 private:
  abi::Observations& observations_;
  std::mutex mutex_;  // guards the rest
  uint32_t users_[abi::kMaxCommunicators] = {};
  uint32_t used_ = 0;
  std::deque<uint32_t> closed_;
  uint32_t next_stall_ = 0;
};

/// Adds to a counter that several threads write. Relaxed: a number with nothing behind it.
template <typename Integer>
void Count(std::atomic<Integer>& counter, Integer by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace weft::net

// Events of the profiler face: a fixed number of slots, taken and given back without a lock and without allocation.
//
// What NCCL holds as an event handle is an index and a generation, never an address: NCCL has been seen to stop events
// twice, to change the state of stopped ones and to hand over parents that are gone (NVIDIA/nccl#1658, #1992, #2112), and
// such a call finds another generation and does nothing. Each pool has a key of its own in its handles: with PXN those of
// another process come here, and where both run in containers both may be process 1.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "netplugin/abi/observations.h"

namespace weft::net {

enum class EventKind : uint32_t { kOperation, kProxyOp, kProxyStep, kKernel };

/// One event. Only `life` and `next` mean anything in a free slot. All fields that a second thread may touch are atomic;
/// relaxed, since the hand-over is `life` (acquire and release).
struct Event {
  /// Generation (high 32 bits; odd: live), bit 31: stopped, low 31 bits: children that are alive.
  std::atomic<uint64_t> life{0};
  std::atomic<uint32_t> next{0};  // in the free list: index + 1
  EventKind kind = EventKind::kOperation;
  abi::CommunicatorSlot* slot = nullptr;  // of the context that started it
  std::atomic<uint32_t> context{0};       // number of the context that started it; 0: not said yet
  uint64_t parent = 0;                    // handle
  uint64_t start_ns = 0;

  // Operation. Constant after the start, except the last three.
  abi::Operation operation = abi::Operation::kPointToPoint;
  uint64_t sequence = 0, bytes = 0;
  std::atomic<uint32_t> algorithm{0};
  uint32_t protocol = 0, channels = 0;
  std::atomic<uint64_t> end_ns{0};        // of the child that ended last, or of the operation's own stop
  std::atomic<uint32_t> children{0};      // ever
  std::atomic<uint64_t> kernel_ns{0};

  // Proxy operation: whom it talks to. Operation and proxy operation: what its steps waited for.
  int32_t peer = -1;
  std::atomic<uint64_t> waits_ns[abi::kWaits] = {};

  // Step: what it waits for since when; kWaits: not known yet. Kernel: start by the GPU's clock.
  uint32_t waiting = abi::kWaits;
  uint64_t since_ns = 0;
  uint64_t gpu_start_ns = 0, gpu_stop_ns = 0;
};

class EventPool {
 public:
  static constexpr uint32_t kCapacity = 16384;

  EventPool();

  /// A live event, all its fields as in a new one; nullptr when all are taken. Complexity: O(1). Threads: any.
  Event* Take(EventKind kind);
  /// Requires: the caller has ended the event's life (End() returned true).
  void Give(Event* event);

  /// Never 0.
  uint64_t Handle(const Event* event) const;
  /// Not 0, and no event's: for what NCCL wants to have a handle and is not followed.
  uint64_t HandleOfNone() const { return key_; }
  /// The live event behind a handle of whatever origin, or nullptr.
  Event* Find(uint64_t handle);

  /// One more child of the live event behind `handle`; nullptr if it has ended.
  Event* AddChild(uint64_t handle);
  /// The reverse.
  static void RemoveChild(Event* event) { event->life.fetch_sub(1, std::memory_order_acq_rel); }
  /// Its own stop: false if it was stopped before.
  bool MarkStopped(uint64_t handle);
  /// Ends a stopped event without children; false if it is not that (any more).
  bool End(Event* event);
  /// Ends a live event whatever its children; false if somebody else did.
  bool EndNow(uint64_t handle, Event* event);

  /// Slots that were ever taken are those below.
  uint32_t used() const;
  Event& at(uint32_t index) { return events_[index]; }

 private:
  static constexpr uint64_t kStopped = uint64_t{1} << 31;
  static constexpr uint64_t kChildren = kStopped - 1;

  uint64_t GenerationOf(uint64_t handle) const;

  const std::unique_ptr<Event[]> events_;
  const uint64_t key_;  // random
  // Head of the free list: a count that changes with every take (high) and index + 1 (low; 0: empty).
  std::atomic<uint64_t> free_{0};
  std::atomic<uint32_t> used_{0};
};

}  // namespace weft::net

// The process's telemetry segment (abi/segment.h): who may take a slot, and how the data thread writes its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "netplugin/abi/observations.h"
#include "netplugin/abi/segment.h"
#include "netplugin/environment.h"
#include "netplugin/tcp/socket.h"

namespace weft::net {

/// Adds to a counter that only the calling thread writes: a plain load and store, no locked instruction. On x86-64 in one
/// instruction, which the compiler does not make of two atomic accesses; several of these are in every message.
inline void Bump(std::atomic<uint64_t>& counter, uint64_t by) {
#ifdef __x86_64__
  asm("addq %1, %0" : "+m"(counter) : "re"(by) : "cc");
#else
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
#endif
}

/// What is constant about a flow.
struct FlowIdentity {
  uint64_t flow = 0;
  uint64_t comm = 0;
  abi::Direction direction = abi::Direction::kSend;
  int rank = -1;
  int peer_rank = -1;
  uint32_t device = 0;
  Address local;
  Address peer;
  uint16_t peer_port = 0;  ///< as abi::FlowSlot
};

class Telemetry {
 public:
  /// Where the kernel grants no sealed memory file, the counters live in private memory and no agent sees them.
  static std::unique_ptr<Telemetry> Create(const Environment& environment, int net_version);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  int fd() const { return fd_.get(); }  ///< -1: no agent can see it
  abi::ProcessInfo& process() { return segment_->process; }
  /// An agent reads the segment at present. Written by the background thread; relaxed: nothing is published by it.
  std::atomic<bool> observed{false};
  /// What observer.h hands out.
  abi::Observations* observations() { return &file_->observations; }
  abi::BackgroundSlot* background() { return &file_->background; }

  /// Takes a slot and publishes it. When all are open the flow gets a private one and is counted as dropped; closed
  /// slots are taken again oldest first, and only when many wait or all others are open, so that the agent sees final counters
  /// long enough. Threads: any.
  abi::FlowSlot* Open(const FlowIdentity& identity);
  void Close(abi::FlowSlot* slot);

 private:
  Telemetry() = default;
  abi::FlowSlot* TakeSlot();

  Fd fd_;
  abi::TelemetryFile* file_ = nullptr;
  abi::TelemetrySegment* segment_ = nullptr;  // its first part
  std::mutex mutex_;  // guards the rest
  uint32_t used_ = 0;  // slots taken at least once, as the segment says too
  std::deque<abi::FlowSlot*> closed_;
  std::vector<std::unique_ptr<abi::FlowSlot>> private_;
  // How many flows were opened to a peer, by direction, address and rank.
  std::map<std::tuple<abi::Direction, std::string, int>, uint32_t> ordinals_;
};

/// The data thread's hand on its slot. All but CloseIdleBurst() is called by that thread only.
class FlowRecorder {
 public:
  static constexpr uint64_t kBurstGapNs = 2'000'000;

  explicit FlowRecorder(abi::FlowSlot* slot) : slot_(slot) {}

  abi::FlowSlot& slot() { return *slot_; }
  const abi::FlowSlot& slot() const { return *slot_; }
  abi::LaneTelemetry& lane(uint32_t index) { return slot_->lanes[index]; }

  /// `bytes` bytes moved.
  void Active(uint64_t now, uint64_t bytes) {
    if (open_burst_.load(std::memory_order_relaxed) == 0 || now - last_active_ > kBurstGapNs) StartBurst(now);
    last_active_ = now;
    slot_->last_progress_ns.store(now, std::memory_order_relaxed);
    Bump(burst_bytes_, bytes);
  }

  void Completed(uint64_t bytes, uint64_t posted, uint64_t now) {
    Bump(slot_->messages, 1);
    Bump(slot_->bytes, bytes);
    const uint64_t us = (now - posted) / 1000;
    const auto bucket = static_cast<uint32_t>(63 ^ std::countl_zero(us | 1));  // one instruction, which bit_width() is not
    Bump(slot_->histogram[bucket < abi::kHistogramBuckets ? bucket : abi::kHistogramBuckets - 1], 1);
  }

  /// When bytes last moved, 0: never.
  uint64_t last_active() const { return last_active_; }

  bool waiting() const { return waiting_since_ != 0; }
  void WaitBegins(uint64_t now) { waiting_since_ = now; }
  /// `at`: now, or earlier, when what was waited for came; nothing is counted where that was before it was waited for.
  void WaitEnds(std::atomic<uint64_t>& counter, uint64_t at) {
    Bump(counter, at > waiting_since_ ? at - waiting_since_ : 0);
    waiting_since_ = 0;
  }

  /// Background thread: what was handed to the kernel will be on its way for `left` ns more, as far as is known at `now`.
  /// On slow links a burst goes on in which nobody has anything to do for long.
  void Draining(uint64_t now, uint64_t left);
  /// Background thread: ends a burst that is over though nobody sends any more.
  void CloseIdleBurst(uint64_t now);

 private:
  void StartBurst(uint64_t now);
  void EmitBurst(uint64_t now);
  /// When the wire was last busy, as far as is known at `now`.
  uint64_t BusyUntil(uint64_t now) const;

  abi::FlowSlot* slot_;
  uint64_t last_active_ = 0;
  uint64_t waiting_since_ = 0;
  // Two threads may end a burst; whoever finds the lock taken leaves it to the other and never waits. Acquire and
  // release on the lock order the ring entries; the two values below are also read without it, as hints.
  std::atomic<bool> burst_lock_{false};
  std::atomic<uint64_t> open_burst_{0};  // start time, 0: none
  std::atomic<uint64_t> burst_bytes_{0};
  std::atomic<uint64_t> draining_until_{0};
};

}  // namespace weft::net

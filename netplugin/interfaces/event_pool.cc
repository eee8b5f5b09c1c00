#include "netplugin/interfaces/event_pool.h"

#include <algorithm>

#include "netplugin/tcp/socket.h"

namespace weft::net {
namespace {

// A handle has 48 bits of value: 32 of generation above 16 of index + 1, the top one of which is never used; all of them
// exclusive-or the pool's key, which has that bit.
constexpr uint32_t kIndexBits = 16;
constexpr uint64_t kUnusedBit = 1u << (kIndexBits - 1);
static_assert(EventPool::kCapacity < kUnusedBit);

uint32_t Generation(uint64_t life) { return static_cast<uint32_t>(life >> 32); }

void Reset(Event* event) {
  event->slot = nullptr;
  event->context.store(0, std::memory_order_relaxed);
  event->parent = event->start_ns = 0;
  event->operation = abi::Operation::kPointToPoint;
  event->sequence = event->bytes = 0;
  event->algorithm.store(0, std::memory_order_relaxed);
  event->protocol = event->channels = 0;
  event->end_ns.store(0, std::memory_order_relaxed);
  event->children.store(0, std::memory_order_relaxed);
  event->kernel_ns.store(0, std::memory_order_relaxed);
  event->peer = -1;
  for (auto& wait : event->waits_ns) wait.store(0, std::memory_order_relaxed);
  event->waiting = abi::kWaits;
  event->since_ns = event->gpu_start_ns = event->gpu_stop_ns = 0;
}

}  // namespace

EventPool::EventPool() : events_(new Event[kCapacity]), key_((RandomBits() >> kIndexBits) | kUnusedBit) {}

uint64_t EventPool::GenerationOf(uint64_t handle) const { return (handle ^ key_) >> kIndexBits; }

Event* EventPool::Take(EventKind kind) {
  Event* event = nullptr;
  uint64_t head = free_.load(std::memory_order_acquire);
  while ((head & UINT32_MAX) != 0) {
    Event* first = &events_[(head & UINT32_MAX) - 1];
    const uint64_t rest = ((head >> 32) + 1) << 32 | first->next.load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(head, rest, std::memory_order_acq_rel, std::memory_order_acquire)) {
      event = first;
      break;
    }
  }
  if (!event) {
    if (used_.load(std::memory_order_relaxed) >= kCapacity) return nullptr;
    const uint32_t index = used_.fetch_add(1, std::memory_order_relaxed);
    if (index >= kCapacity) return nullptr;
    event = &events_[index];
  }
  Reset(event);
  event->kind = kind;
  // Release: whoever finds the new generation finds the fields.
  const uint64_t generation = Generation(event->life.load(std::memory_order_relaxed)) + uint64_t{1};
  event->life.store(generation << 32, std::memory_order_release);
  return event;
}

void EventPool::Give(Event* event) {
  const uint64_t index = static_cast<uint64_t>(event - events_.get()) + 1;
  uint64_t head = free_.load(std::memory_order_relaxed);
  do {
    event->next.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | index, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
}

uint64_t EventPool::Handle(const Event* event) const {
  const uint64_t generation = Generation(event->life.load(std::memory_order_relaxed));
  return (generation << kIndexBits | (static_cast<uint64_t>(event - events_.get()) + 1)) ^ key_;
}

Event* EventPool::Find(uint64_t handle) {
  const uint64_t index = (handle ^ key_) & ((1u << kIndexBits) - 1);
  const uint64_t generation = GenerationOf(handle);
  if (index == 0 || index > kCapacity || (generation & 1) == 0) return nullptr;
  Event* event = &events_[index - 1];
  return Generation(event->life.load(std::memory_order_acquire)) == generation ? event : nullptr;
}

Event* EventPool::AddChild(uint64_t handle) {
  Event* event = Find(handle);
  if (!event) return nullptr;
  uint64_t life = event->life.load(std::memory_order_acquire);
  do {
    if (Generation(life) != GenerationOf(handle) || (life & kChildren) == kChildren) return nullptr;
  } while (!event->life.compare_exchange_weak(life, life + 1, std::memory_order_acq_rel, std::memory_order_acquire));
  event->children.fetch_add(1, std::memory_order_relaxed);
  return event;
}

bool EventPool::MarkStopped(uint64_t handle) {
  Event* event = Find(handle);
  if (!event) return false;
  uint64_t life = event->life.load(std::memory_order_acquire);
  do {
    if (Generation(life) != GenerationOf(handle) || (life & kStopped) != 0) return false;
  } while (!event->life.compare_exchange_weak(life, life | kStopped, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
  return true;
}

bool EventPool::End(Event* event) {
  uint64_t life = event->life.load(std::memory_order_acquire);
  if ((Generation(life) & 1) == 0 || (life & UINT32_MAX) != kStopped) return false;
  return event->life.compare_exchange_strong(life, (uint64_t{Generation(life)} + 1) << 32, std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
}

bool EventPool::EndNow(uint64_t handle, Event* event) {
  uint64_t life = event->life.load(std::memory_order_acquire);
  do {
    if (Generation(life) != GenerationOf(handle)) return false;
  } while (!event->life.compare_exchange_weak(life, (uint64_t{Generation(life)} + 1) << 32, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
  return true;
}

uint32_t EventPool::used() const { return std::min(used_.load(std::memory_order_relaxed), kCapacity); }

}  // namespace weft::net

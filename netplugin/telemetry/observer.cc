#include "netplugin/telemetry/observer.h"

#include <cstring>

namespace weft::net {
namespace {

template <typename Slot>
void Store(Slot& state, abi::SlotState value) {
  state.store(static_cast<uint32_t>(value), std::memory_order_release);
}

/// All counters of the slot, which are zero bits; the two words in front stay.
template <typename Slot>
void ClearBehindGeneration(Slot* slot) {
  constexpr size_t kFront = offsetof(Slot, generation) + sizeof slot->generation;
  std::memset(reinterpret_cast<char*>(slot) + kFront, 0, sizeof *slot - kFront);
}

}  // namespace

abi::CommunicatorSlot* Observer::Open(const CommunicatorIdentity& identity) {
  const std::lock_guard lock(mutex_);
  auto& slots = observations_.communicators;
  if (identity.rank < 0 && identity.comm != 0) {
    for (uint32_t i = 0; i < used_; ++i) {
      if (users_[i] == 0 || slots[i].comm != identity.comm || slots[i].ranks != identity.ranks) continue;
      ++users_[i];
      return &slots[i];
    }
  }
  uint32_t index = used_;
  if (used_ < abi::kMaxCommunicators) {
    ++used_;
  } else if (!closed_.empty()) {
    index = closed_.front();
    closed_.pop_front();
  } else {
    return nullptr;
  }
  users_[index] = 1;
  abi::CommunicatorSlot& slot = slots[index];
  const uint32_t generation = slot.generation.load(std::memory_order_relaxed);
  Store(slot.state, abi::SlotState::kFree);
  slot.generation.store(generation + 1, std::memory_order_release);  // odd: identity is being written
  ClearBehindGeneration(&slot);
  slot.comm = identity.comm;
  slot.rank = identity.rank;
  slot.ranks = identity.ranks;
  slot.nodes = identity.nodes;
  if (identity.name) std::strncpy(slot.name, identity.name, sizeof slot.name - 1);
  for (abi::PeerWait& peer : slot.peers) peer.peer.store(-1, std::memory_order_relaxed);
  slot.peers[abi::kMaxPeers - 1].peer.store(-2, std::memory_order_relaxed);
  slot.generation.store(generation + 2, std::memory_order_release);
  Store(slot.state, abi::SlotState::kOpen);
  return &slot;
}

void Observer::Close(abi::CommunicatorSlot* slot) {
  if (!slot) return;
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<uint32_t>(slot - observations_.communicators);
  if (users_[index] == 0 || --users_[index] > 0) return;
  Store(slot->state, abi::SlotState::kClosed);
  closed_.push_back(index);
}

abi::StallSlot* Observer::NewStall() {
  for (uint32_t i = 0; i < abi::kMaxStalls; ++i) {
    abi::StallSlot& stall = observations_.stalls[(next_stall_ + i) % abi::kMaxStalls];
    if (stall.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(abi::SlotState::kOpen)) continue;
    next_stall_ = (next_stall_ + i + 1) % abi::kMaxStalls;
    const uint32_t generation = stall.generation.load(std::memory_order_relaxed);
    Store(stall.state, abi::SlotState::kFree);
    stall.generation.store(generation + 1, std::memory_order_release);
    ClearBehindGeneration(&stall);
    return &stall;
  }
  return nullptr;
}

void Observer::Publish(abi::StallSlot* stall) {
  stall->generation.fetch_add(1, std::memory_order_release);  // even again
  Store(stall->state, abi::SlotState::kOpen);
}

}  // namespace weft::net

// The data thread's side of a flow's policy: which lanes carry how much.
#include <cerrno>
#include <cstring>

#include "netplugin/abi/seqlock.h"
#include "netplugin/tcp/send_comm.h"

namespace weft::net {

/// Called when the table, the mapping or a lane changed since the last look.
void SendComm::ApplyPolicy(const PolicyMapping& mapping, uint64_t epoch, uint32_t attention) {
  if (lost_.load(std::memory_order_relaxed)) return Fail(lanes_[0], ECONNABORTED);
  if (&mapping != seen_mapping_) {
    // Release: every read of an older mapping is over by now.
    generation_in_use_.store(mapping.generation(), std::memory_order_release);
    seen_mapping_ = nullptr;  // the one before may be gone, and its address another one's
  }
  if (epoch != seen_epoch_ || &mapping != seen_mapping_) {
    if (!ReadWanted(mapping, epoch)) return;  // the writer is at it: ask again at the next message
    seen_epoch_ = epoch;
    seen_mapping_ = &mapping;
  }
  if (noticed_.load(std::memory_order_relaxed)) AllTags().limited = true;
  Reweigh();
  if (CloseRetired()) seen_attention_ = attention;
}

/// Queues the last chunk of each lane that is to be given up, behind what it still holds. False: ask again.
bool SendComm::CloseRetired() {
  bool all = true;
  for (Lane& lane : lanes_) {
    if (lane.state.load(std::memory_order_acquire) != abi::LaneState::kActive || lane.closing) continue;
    if (!lane.retire.load(std::memory_order_relaxed)) continue;
    if (Index(lane) == 0 && tags_) {  // asked for before tags were counted: what the receiver says comes this way
      lane.retire.store(false, std::memory_order_relaxed);
      continue;
    }
    if (lane.weight > 0 || lane.queued == kQueue) {
      all = false;
      continue;
    }
    Push(lane, {{kChunkMagic, kChunkCloseLane, 0, 0, 0, 0, 0, 0, 0, 0}, nullptr, nullptr});
    lane.closing = true;
  }
  return all;
}

bool SendComm::ReadWanted(const PolicyMapping& mapping, uint64_t epoch) {
  abi::FlowPolicy entry;
  const abi::PolicyRead result = abi::ReadFlowPolicy(mapping.table(), flow_, &entry);
  if (result == abi::PolicyRead::kBusy) return false;
  // What is refused is counted by the background thread, which reads the same entry.
  const uint64_t now = NowNs();
  applied_listed_ = result == abi::PolicyRead::kFound && !CheckFlowPolicy(entry, now);
  if (!applied_listed_) return true;
  recorder_.slot().policy_epoch.store(epoch, std::memory_order_relaxed);
  // A renewed lease alone is no reason to hurry.
  const uint64_t lease = entry.lease_until_ns;
  entry.lease_until_ns = applied_.lease_until_ns;
  const bool changed = std::memcmp(&entry, &applied_, sizeof entry) != 0;
  entry.lease_until_ns = lease;
  applied_ = entry;
  gate_.Set(entry, now);
  CountHeld();
  if (changed) services_.background.Wake();  // to open lanes, mark and pace
  return true;
}

/// Asked before chunks are dealt, while the flow has a time window.
bool SendComm::GateOpens(const PolicyMapping& mapping) {
  if (deal_ == next_) return true;  // nothing to hold
  const uint64_t now = NowNs();
  bool open = true;
  if (Leased(applied_, applied_listed_ ? &mapping.table() : nullptr, now)) {
    open = gate_.Opens(now, recorder_.last_active());
  } else {
    gate_.Release(now);
  }
  CountHeld();
  return open;
}

void SendComm::CountHeld() {
  uint64_t ns = 0;
  if (!gate_.TakeHeld(&ns)) return;
  Bump(recorder_.slot().gate_held_ns, ns);
  Bump(recorder_.slot().gate_holds, 1);
}

/// Puts the wanted weights in force on the lanes that are there. When none of those is, the present ones go on.
void SendComm::Reweigh() {
  std::array<uint32_t, abi::kMaxLanes> weights{};
  uint64_t total = 0;
  for (Lane& lane : lanes_) {
    if (lane.state.load(std::memory_order_acquire) != abi::LaneState::kActive) continue;
    for (const abi::LanePolicy& wanted : applied_.lanes) {
      if (wanted.source_port == 0) break;
      if (wanted.source_port == lane.telemetry->source_port.load(std::memory_order_relaxed) && !lane.retire.load(std::memory_order_relaxed)) {
        weights[Index(lane)] = wanted.weight;
      }
    }
    total += weights[Index(lane)];
  }
  if (total == 0) return;
  bool changed = false;
  for (Lane& lane : lanes_) changed = changed || lane.weight != weights[Index(lane)];
  if (!changed) return;
  weighted_count_ = 0;
  for (Lane& lane : lanes_) {
    lane.weight = weights[Index(lane)];
    lane.served = 0;
    recorder_.lane(Index(lane)).weight.store(lane.weight, std::memory_order_relaxed);
    if (lane.weight > 0) weighted_[weighted_count_++] = static_cast<uint8_t>(Index(lane));
  }
}

void SendComm::CloseLane(Lane& lane) {
  const std::lock_guard lock(lanes_mutex_);  // the background thread may be reading its options
  Fd(lane.fd).Reset();
  lane.fd = -1;
  lane.head_sent = 0;
  lane.closing = false;
  lane.retire.store(false, std::memory_order_relaxed);
  SetLaneState(lane, abi::LaneState::kNone);  // release: from here on the background thread's
}

}  // namespace weft::net

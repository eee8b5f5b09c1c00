#include "netplugin/telemetry/watchdog.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "netplugin/log.h"

namespace weft::net {
namespace {

uint64_t Load(const std::atomic<uint64_t>& value) { return value.load(std::memory_order_relaxed); }

/// Changes with every byte and every message.
uint64_t Moved(const Comm& comm, const abi::FlowSlot& slot) {
  uint64_t sum = comm.in_flight.requests() + Load(slot.messages) + Load(slot.bytes);
  for (const abi::LaneTelemetry& lane : slot.lanes) sum += Load(lane.bytes);
  return sum;
}

StallEvidence EvidenceOf(const Comm& comm, const abi::FlowSlot& slot) {
  StallEvidence evidence;
  evidence.silent_ns = comm.SilentNs();
  evidence.wire_busy_ns = Load(slot.wire_busy_ns);
  for (const abi::LaneTelemetry& lane : slot.lanes) {
    evidence.retransmits += Load(lane.retransmits);
    const uint32_t state = lane.state.load(std::memory_order_relaxed);
    if (state == static_cast<uint32_t>(abi::LaneState::kActive)) ++evidence.usable_lanes;
  }
  return evidence;
}

std::string PeerText(const abi::FlowSlot& slot) {
  Address peer;
  peer.family = slot.family == 6 ? AF_INET6 : AF_INET;
  std::memcpy(peer.bytes, slot.peer_address, sizeof peer.bytes);
  peer.port = slot.peer_port;
  return peer.Text();
}

std::string PortsText(const abi::StallSlot& stall) {
  std::string text;
  for (const uint16_t port : stall.ports) {
    if (port == 0) continue;
    if (!text.empty()) text += ',';
    text += std::to_string(port);
  }
  return text.empty() ? "none" : text;
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

void FillIdentity(const Comm& comm, const abi::FlowSlot& slot, uint64_t since_ns, abi::StallSlot* stall) {
  stall->flow = slot.flow;
  stall->comm = slot.comm;
  stall->direction = slot.direction;
  stall->rank = slot.rank;
  stall->peer_rank = slot.peer_rank;
  stall->family = slot.family;
  std::memcpy(stall->peer_address, slot.peer_address, sizeof stall->peer_address);
  stall->peer_port = slot.peer_port;
  for (uint32_t i = 0; i < abi::kMaxLanes; ++i) {
    const abi::LaneTelemetry& lane = slot.lanes[i];
    if (lane.state.load(std::memory_order_acquire) != static_cast<uint32_t>(abi::LaneState::kActive)) continue;
    stall->ports[i] = static_cast<uint16_t>(lane.source_port.load(std::memory_order_relaxed));
  }
  stall->since_ns = since_ns;
  stall->bytes_in_flight.store(comm.in_flight.bytes(), std::memory_order_relaxed);
  stall->requests.store(comm.in_flight.requests(), std::memory_order_relaxed);
}

}  // namespace

abi::StallCause CauseOf(abi::Direction direction, const StallEvidence& before, const StallEvidence& now,
                        uint64_t stalled_ns) {
  if (now.usable_lanes == 0) return abi::StallCause::kNoLane;
  if (direction == abi::Direction::kReceive) return abi::StallCause::kPeerSendsNothing;
  // A host whose process does not read still answers the probes of its closed window, which come at doubling distances
  // from some 200 ms on; from a host that is gone nothing has come since before the standstill. Retransmissions alone say
  // little: segments that met a full buffer are sent again too.
  const bool known = now.silent_ns != UINT64_MAX;
  if (known ? now.silent_ns > stalled_ns / 20 * 19 : now.retransmits > before.retransmits) {
    return abi::StallCause::kNoAcknowledgement;
  }
  // TCP counts as busy only while the receiver's window is open: a sender with bytes to send that is not busy waits for
  // the peer's process.
  const uint64_t busy = now.wire_busy_ns - std::min(now.wire_busy_ns, before.wire_busy_ns);
  return busy < stalled_ns / 2 ? abi::StallCause::kPeerDoesNotRead : abi::StallCause::kUnknown;
}

const char* CauseText(abi::StallCause cause) {
  switch (cause) {
    case abi::StallCause::kPeerDoesNotRead: return "the peer does not read";
    case abi::StallCause::kNoAcknowledgement: return "nothing is acknowledged and segments are sent again";
    case abi::StallCause::kPeerSendsNothing: return "the peer sends nothing";
    case abi::StallCause::kNoLane: return "no connection is usable";
    case abi::StallCause::kUnknown: break;
  }
  return "cause unknown";
}

void Watchdog::Add(Comm* comm) {
  const abi::FlowSlot* slot = comm->slot();
  if (!slot || (settings_.after_s == 0 && settings_.action != StallAction::kAbort)) return;
  const std::lock_guard lock(mutex_);
  watched_.push_back({.comm = comm, .slot = slot});
}

void Watchdog::Remove(Comm* comm) {
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(watched_, comm, &Watched::comm);
  if (it == watched_.end()) return;
  if (it->stall) Over(*it, NowNs(), true);
  if (it->unlogged > 0) {
    Log(nccl::kLogInfo, "flow with rank %d at %s was closed; it stood still %llu times more than was logged",
        it->slot->peer_rank, PeerText(*it->slot).c_str(), static_cast<unsigned long long>(it->unlogged));
  }
  watched_.erase(it);
}

void Watchdog::Sweep(const Tick& tick) {
  if (!tick.sample) return;
  const std::lock_guard lock(mutex_);
  for (Watched& watched : watched_) Look(watched, tick.now);
}

void Watchdog::AbortIfDropped(Watched& watched, uint64_t now) const {
  const bool asked = settings_.action == StallAction::kAbort && errors_are_dropped_.load(std::memory_order_relaxed);
  if (!asked || !watched.comm->in_flight.failed.load(std::memory_order_relaxed)) return;
  if (watched.failed_ns == 0) watched.failed_ns = now;
  if (now - watched.failed_ns < kDroppedNs) return;
  Log(nccl::kLogWarn, "flow with rank %d at %s failed %.1f s ago, and NCCL up to 2.27 forgets such errors: aborting the process "
      "(WEFT_STALL_ACTION)", watched.slot->peer_rank, PeerText(*watched.slot).c_str(), Seconds(now - watched.failed_ns));
  std::abort();
}

void Watchdog::Look(Watched& watched, uint64_t now) {
  AbortIfDropped(watched, now);
  if (settings_.after_s == 0) return;
  const uint64_t moved = Moved(*watched.comm, *watched.slot);
  const bool waits = watched.comm->in_flight.requests() > 0;
  if (!waits || moved != watched.moved || watched.since_ns == 0) {
    if (watched.stall) Over(watched, now, false);
    watched.moved = moved;
    watched.since_ns = now;
    watched.evidence = EvidenceOf(*watched.comm, *watched.slot);
    watched.said = false;
    return;
  }
  const uint64_t stalled = now - watched.since_ns;
  if (stalled < uint64_t{settings_.after_s} * 1'000'000'000) return;
  if (!watched.said) Begin(watched, now);
  if (watched.stall) Update(watched, now);
  if (settings_.action != StallAction::kReport && stalled >= uint64_t{settings_.action_after_s} * 1'000'000'000) {
    GiveUp(watched, now);
  }
}

void Watchdog::Begin(Watched& watched, uint64_t now) {
  watched.said = true;
  const abi::FlowSlot& slot = *watched.slot;
  const auto direction = static_cast<abi::Direction>(slot.direction);
  const uint64_t stalled = now - watched.since_ns;
  const abi::StallCause cause = CauseOf(direction, watched.evidence, EvidenceOf(*watched.comm, slot), stalled);
  abi::StallSlot spare{};  // where all slots hold open stalls: the log line is still said
  abi::StallSlot* stall = observer_.NewStall();
  FillIdentity(*watched.comm, slot, watched.since_ns, stall ? stall : &spare);
  LogBegin(watched, now, cause, stall ? *stall : spare);
  if (!stall) return;
  stall->cause.store(static_cast<uint32_t>(cause), std::memory_order_relaxed);
  stall->until_ns.store(now, std::memory_order_relaxed);
  watched.stall = stall;
  Observer::Publish(stall);
}

void Watchdog::LogBegin(Watched& watched, uint64_t now, abi::StallCause cause, const abi::StallSlot& stall) {
  watched.logged = now >= watched.next_log_ns;
  if (!watched.logged) {
    ++watched.unlogged;
    return;
  }
  const abi::FlowSlot& slot = *watched.slot;
  const std::string again = watched.unlogged == 0 ? "" : "; " + std::to_string(watched.unlogged) + " times more before";
  Log(nccl::kLogWarn,
      "%s rank %d at %s has not moved for %.1f s: %s; %llu requests with %llu bytes in flight, ports %s%s",
      slot.direction == static_cast<uint32_t>(abi::Direction::kSend) ? "send to" : "receive from", slot.peer_rank,
      PeerText(slot).c_str(), Seconds(now - watched.since_ns), CauseText(cause),
      static_cast<unsigned long long>(watched.comm->in_flight.requests()),
      static_cast<unsigned long long>(watched.comm->in_flight.bytes()), PortsText(stall).c_str(), again.c_str());
  watched.next_log_ns = now + kLogEveryNs;
  watched.unlogged = 0;
}

void Watchdog::Update(Watched& watched, uint64_t now) {
  abi::StallSlot& stall = *watched.stall;
  const auto direction = static_cast<abi::Direction>(watched.slot->direction);
  const auto cause = CauseOf(direction, watched.evidence, EvidenceOf(*watched.comm, *watched.slot), now - watched.since_ns);
  stall.cause.store(static_cast<uint32_t>(cause), std::memory_order_relaxed);
  stall.until_ns.store(now, std::memory_order_relaxed);
}

void Watchdog::Over(Watched& watched, uint64_t now, bool closed) {
  watched.stall->until_ns.store(now, std::memory_order_relaxed);
  watched.stall->state.store(static_cast<uint32_t>(abi::SlotState::kClosed), std::memory_order_release);
  watched.stall = nullptr;
  if (!watched.logged) return;
  Log(nccl::kLogInfo, "flow with rank %d at %s %s after %.1f s", watched.slot->peer_rank,
      PeerText(*watched.slot).c_str(), closed ? "was closed" : "moves again", Seconds(now - watched.since_ns));
}

void Watchdog::GiveUp(Watched& watched, uint64_t now) {
  if (watched.comm->in_flight.given_up.load(std::memory_order_relaxed)) return;
  const bool abort = settings_.action == StallAction::kAbort;
  Log(nccl::kLogWarn, "flow with rank %d at %s stood still for %.1f s: %s (WEFT_STALL_ACTION)",
      watched.slot->peer_rank, PeerText(*watched.slot).c_str(), Seconds(now - watched.since_ns),
      abort ? "aborting the process" : "its requests fail");
  if (watched.stall) watched.stall->aborted.store(1, std::memory_order_relaxed);
  if (abort) std::abort();
  // Relaxed: the data thread reads it at its next call, and acts on nothing else.
  watched.comm->in_flight.given_up.store(true, std::memory_order_relaxed);
}

}  // namespace weft::net

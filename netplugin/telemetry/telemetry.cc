#include "netplugin/telemetry/telemetry.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "netplugin/log.h"

namespace weft::net {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/// So many closed slots wait before one is taken again in place of one that never was: each keeps its final counters for as many flows.
constexpr size_t kClosedKept = 256;

/// Zeroed shared memory of fixed size that only this mapping can write; nullptr where the kernel refuses.
void* MapSealed(uint64_t bytes, Fd* fd) {
  fd->Reset(memfd_create("weft-telemetry", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd->valid() || ftruncate(fd->get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  // Kernels before 5.1 do not know this one; the agent maps read-only anyway.
  fcntl(fd->get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  if (fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    munmap(memory, bytes);
    return nullptr;
  }
  return memory;
}

void* MapPrivate(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();  // stopped at the plugin's edge
  return memory;
}

void ResetCounters(abi::FlowSlot* slot) {
  for (auto* counter : {&slot->messages, &slot->bytes, &slot->wait_peer_ns, &slot->wait_wire_ns,
                        &slot->last_progress_ns, &slot->policy_epoch, &slot->burst_count, &slot->wire_busy_ns,
                        &slot->gate_held_ns, &slot->gate_holds}) {
    counter->store(0, std::memory_order_relaxed);
  }
  for (auto& bucket : slot->histogram) bucket.store(0, std::memory_order_relaxed);
  for (auto& silent : slot->silent_ms) silent.store(0, std::memory_order_relaxed);
  for (auto& lane : slot->lanes) {
    lane.state.store(0, std::memory_order_relaxed);
    lane.source_port.store(0, std::memory_order_relaxed);
    for (auto* counter : {&lane.bytes, &lane.wire_bytes, &lane.retransmits, &lane.backlog_ns, &lane.backlog_bytes}) {
      counter->store(0, std::memory_order_relaxed);
    }
    lane.rtt_us.store(0, std::memory_order_relaxed);
    lane.weight.store(0, std::memory_order_relaxed);
  }
}

}  // namespace

std::unique_ptr<Telemetry> Telemetry::Create(const Environment& environment, int net_version) {
  std::unique_ptr<Telemetry> telemetry(new Telemetry);
  void* memory = MapSealed(sizeof(abi::TelemetryFile), &telemetry->fd_);
  if (!memory) {
    Log(nccl::kLogWarn, "no sealed memory file for telemetry (%s); running without an agent", std::strerror(errno));
    telemetry->fd_.Reset();
    memory = MapPrivate(sizeof(abi::TelemetryFile));
  }
  // All atomics are zero bits, which is what the kernel's pages hold.
  telemetry->file_ = static_cast<abi::TelemetryFile*>(memory);
  telemetry->segment_ = &telemetry->file_->telemetry;
  abi::InitTelemetryHeader(telemetry->segment_);
  abi::AddObservationSections(telemetry->file_);
  abi::ProcessInfo& process = telemetry->segment_->process;
  environment.job_id.copy(process.job, sizeof process.job - 1);
  process.pid = getpid();
  process.rank = environment.rank;
  process.world = environment.world;
  process.net_version = net_version;
  return telemetry;
}

Telemetry::~Telemetry() { munmap(file_, sizeof(abi::TelemetryFile)); }

abi::FlowSlot* Telemetry::TakeSlot() {
  if (used_ < abi::kMaxFlows && closed_.size() < kClosedKept) {
    abi::FlowSlot* slot = &segment_->flows[used_++];
    // Release, though the slot itself says when there is something to read: an agent that sees the number sees no less than free.
    segment_->process.slots_used.store(used_, std::memory_order_release);
    return slot;
  }
  if (!closed_.empty()) {
    abi::FlowSlot* slot = closed_.front();
    closed_.pop_front();
    return slot;
  }
  Bump(segment_->process.flows_dropped, 1);  // under mutex_: one writer at a time
  private_.push_back(std::make_unique<abi::FlowSlot>());
  return private_.back().get();
}

abi::FlowSlot* Telemetry::Open(const FlowIdentity& identity) {
  const std::lock_guard lock(mutex_);
  abi::FlowSlot* slot = TakeSlot();
  const uint32_t generation = slot->generation.load(std::memory_order_relaxed);
  slot->state.store(static_cast<uint32_t>(abi::SlotState::kFree), std::memory_order_relaxed);
  slot->generation.store(generation + 1, std::memory_order_release);  // odd: identity is being written
  ResetCounters(slot);
  slot->flow = identity.flow;
  slot->comm = identity.comm;
  slot->direction = static_cast<uint32_t>(identity.direction);
  Address peer_host = identity.peer;
  peer_host.port = 0;
  slot->ordinal = ordinals_[{identity.direction, peer_host.Text(), identity.peer_rank}]++;
  slot->rank = identity.rank;
  slot->peer_rank = identity.peer_rank;
  slot->device = identity.device;
  slot->family = identity.peer.family == AF_INET6 ? 6 : 4;
  std::memcpy(slot->local_address, identity.local.bytes, sizeof slot->local_address);
  std::memcpy(slot->peer_address, identity.peer.bytes, sizeof slot->peer_address);
  slot->peer_port = identity.peer_port;
  slot->generation.store(generation + 2, std::memory_order_release);
  slot->state.store(static_cast<uint32_t>(abi::SlotState::kOpen), std::memory_order_release);
  return slot;
}

void Telemetry::Close(abi::FlowSlot* slot) {
  const std::lock_guard lock(mutex_);
  slot->state.store(static_cast<uint32_t>(abi::SlotState::kClosed), std::memory_order_release);
  const auto is_this = [slot](const auto& owned) { return owned.get() == slot; };
  if (std::erase_if(private_, is_this) == 0) closed_.push_back(slot);
}

void FlowRecorder::Draining(uint64_t now, uint64_t left) {
  const uint64_t said = draining_until_.load(std::memory_order_relaxed);
  // Where nothing is left the wire was busy until some time before, and not until what was said earlier.
  draining_until_.store(left > 0 ? now + left : std::min(said, now), std::memory_order_relaxed);
}

uint64_t FlowRecorder::BusyUntil(uint64_t now) const {
  const uint64_t draining = std::min(now, draining_until_.load(std::memory_order_relaxed));
  return std::max(slot_->last_progress_ns.load(std::memory_order_relaxed), draining);
}

void FlowRecorder::EmitBurst(uint64_t now) {
  const uint64_t count = slot_->burst_count.load(std::memory_order_relaxed);
  abi::Burst& burst = slot_->bursts[count % abi::kBurstRing];
  burst.start_ns.store(open_burst_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  burst.end_ns.store(BusyUntil(now), std::memory_order_relaxed);
  burst.bytes.store(burst_bytes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  slot_->burst_count.store(count + 1, std::memory_order_release);  // release: the entry is there
  open_burst_.store(0, std::memory_order_relaxed);
}

void FlowRecorder::StartBurst(uint64_t now) {
  const bool open = open_burst_.load(std::memory_order_relaxed) != 0;
  if (open && now <= draining_until_.load(std::memory_order_relaxed) + kBurstGapNs) return;  // it goes on
  if (burst_lock_.exchange(true, std::memory_order_acquire)) return;
  if (open_burst_.load(std::memory_order_relaxed) != 0) EmitBurst(now);
  burst_bytes_.store(0, std::memory_order_relaxed);
  open_burst_.store(now, std::memory_order_relaxed);
  burst_lock_.store(false, std::memory_order_release);
}

void FlowRecorder::CloseIdleBurst(uint64_t now) {
  const auto over = [&] {
    const uint64_t busy_until = BusyUntil(now);
    return open_burst_.load(std::memory_order_relaxed) != 0 && now > busy_until && now - busy_until > kBurstGapNs;
  };
  if (!over() || burst_lock_.exchange(true, std::memory_order_acquire)) return;
  if (over()) EmitBurst(now);
  burst_lock_.store(false, std::memory_order_release);
}

}  // namespace weft::net

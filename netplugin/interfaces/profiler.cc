#include "netplugin/interfaces/profiler.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "netplugin/log.h"

namespace weft::net {
namespace {

using abi::Wait;

void StoreMax(std::atomic<uint64_t>& counter, uint64_t value) {
  uint64_t seen = counter.load(std::memory_order_relaxed);
  while (seen < value && !counter.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

/// The entry of `peer`, claimed if need be; the last one takes those for whom there is no room.
abi::PeerWait& EntryOf(abi::CommunicatorSlot& slot, int32_t peer) {
  for (uint32_t i = 0; i + 1 < abi::kMaxPeers; ++i) {
    int32_t there = slot.peers[i].peer.load(std::memory_order_relaxed);
    if (there == peer) return slot.peers[i];
    if (there != -1) continue;
    if (slot.peers[i].peer.compare_exchange_strong(there, peer, std::memory_order_relaxed) || there == peer) {
      return slot.peers[i];
    }
  }
  return slot.peers[abi::kMaxPeers - 1];
}

uint64_t Load(const std::atomic<uint64_t>& value) { return value.load(std::memory_order_relaxed); }

/// What a step waits for in `state`; kWaits for states that are none of a step's.
uint32_t WaitOf(int state) {
  switch (state) {
    case nccl::kStateSendGpuWait: return static_cast<uint32_t>(Wait::kSendGpu);
    case nccl::kStateSendPeerWait: return static_cast<uint32_t>(Wait::kSendPeer);
    case nccl::kStateSendWait: return static_cast<uint32_t>(Wait::kSendWire);
    case nccl::kStateRecvWait: return static_cast<uint32_t>(Wait::kReceive);
    case nccl::kStateRecvFlushWait: return static_cast<uint32_t>(Wait::kReceiveFlush);
    case nccl::kStateRecvGpuWait: return static_cast<uint32_t>(Wait::kReceiveGpu);
    default: return abi::kWaits;
  }
}

template <size_t N>
uint32_t IndexOf(const char* name, const std::string_view (&names)[N]) {
  if (!name) return UINT32_MAX;
  const auto* found = std::find(std::begin(names), std::end(names), name);
  return found == std::end(names) ? UINT32_MAX : static_cast<uint32_t>(found - std::begin(names));
}

/// COLLNET_DIRECT, COLLNET_CHAIN and NVLS (between nodes): their network operations are NCCL's collnet transport's.
bool IsCollNet(uint32_t algorithm) { return algorithm >= 2 && algorithm <= 4; }

}  // namespace

int MaskOf(abi::ProfileLevel level) {
  uint64_t mask = 0;
  if (level >= abi::ProfileLevel::kCollectives) mask |= nccl::kEventColl | nccl::kEventP2p | nccl::kEventProxyOp;
  if (level >= abi::ProfileLevel::kSteps) mask |= nccl::kEventProxyStep;
  if (level >= abi::ProfileLevel::kKernels) mask |= nccl::kEventKernelCh;
  return static_cast<int>(mask);
}

abi::ProfileLevel LevelAt(const abi::PolicyTable& table, abi::ProfileLevel own, uint64_t now) {
  const uint64_t until = table.profile_until_ns.load(std::memory_order_relaxed);
  if (until <= now || until - now > abi::kLongestLeaseNs) return own;
  const uint32_t level = table.profile.load(std::memory_order_relaxed);
  const bool known = level <= static_cast<uint32_t>(abi::ProfileLevel::kKernels);
  return known ? static_cast<abi::ProfileLevel>(level) : abi::ProfileLevel::kOff;
}

abi::Operation OperationOf(const char* function) {
  static constexpr std::string_view kNames[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
  const uint32_t index = IndexOf(function, kNames);
  return index == UINT32_MAX ? abi::Operation::kPointToPoint : static_cast<abi::Operation>(index);
}

uint32_t AlgorithmOf(const char* name) {
  static constexpr std::string_view kNames[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN",
                                                "NVLS", "NVLS_TREE", "PAT"};
  return IndexOf(name, kNames);
}

uint32_t ProtocolOf(const char* name) {
  static constexpr std::string_view kNames[] = {"LL", "LL128", "SIMPLE"};
  return IndexOf(name, kNames);
}

uint64_t ElementBytes(const char* datatype) {
  if (!datatype) return 1;
  const std::string_view name(datatype);
  if (name.ends_with("64")) return 8;
  if (name.ends_with("32")) return 4;
  return name.ends_with("16") ? 2 : 1;
}

uint64_t ElementBytes(uint8_t datatype) {
  static constexpr uint8_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};  // ncclInt8 to ncclBfloat16
  return datatype < std::size(kBytes) ? kBytes[datatype] : 1;
}

Profiler::Context* Profiler::Open(const CommunicatorIdentity& identity, int* mask) {
  std::unique_ptr<Context> context(OpenNext(mask));
  Name(*context, identity);
  return context.release();
}

Profiler::Context* Profiler::OpenNext(int* mask) {
  const std::lock_guard lock(mutex_);
  auto context = std::make_unique<Context>(this, nullptr, ++opened_);
  ++contexts_;
  mask_ = mask;
  SetLevel(level_);
  return context.release();
}

Profiler::Context* Profiler::OpenUnnamed(int* mask) {
  {
    const std::lock_guard lock(mutex_);
    fixed_ = true;
    level_ = own_;
  }
  return OpenNext(mask);
}

void Profiler::Name(Context& context, const CommunicatorIdentity& identity) {
  if (context.slot.load(std::memory_order_acquire) != nullptr || context.refused.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (context.slot.load(std::memory_order_relaxed) != nullptr) return;
  abi::CommunicatorSlot* slot = observer_.Open(identity);
  if (slot == nullptr) {
    context.refused.store(true, std::memory_order_relaxed);
    Log(nccl::kLogWarn, "profiler: communicator %s is not followed: this process has %u already",
        identity.name != nullptr && *identity.name != 0 ? identity.name : "without a name", abi::kMaxCommunicators);
    return;
  }
  open_.push_back(slot);
  slot->profile.store(static_cast<uint32_t>(level_), std::memory_order_relaxed);
  context.slot.store(slot, std::memory_order_release);
}

void Profiler::Close(Context* context) {
  const std::unique_ptr<Context> owned(context);
  abi::CommunicatorSlot* slot = owned->slot.load(std::memory_order_acquire);
  const std::lock_guard lock(mutex_);
  std::erase(open_, slot);
  closed_.push_back({.context = owned->number});
  if (--contexts_ == 0) mask_ = nullptr;
  // Its events hold the slot's address, which stays mapped; what is still alive counts into a closed slot or its next
  // owner's, which the agent's differences bear.
  if (slot != nullptr) observer_.Close(slot);
}

void Profiler::SetLevel(abi::ProfileLevel level) {
  level_ = level;
  // NCCL reads it without a lock on any thread.
  if (mask_) __atomic_store_n(mask_, MaskOf(level), __ATOMIC_RELAXED);
  for (abi::CommunicatorSlot* slot : open_) {
    slot->profile.store(static_cast<uint32_t>(level), std::memory_order_relaxed);
  }
}

uint64_t Profiler::Start(const Context& context, const EventStart& start, uint64_t now) {
  // Up to NCCL 2.27 nothing in a group is told where the group itself has no handle, and it comes before its first operation.
  if (start.type == nccl::kEventGroup) return pool_.HandleOfNone();
  if (context.slot.load(std::memory_order_acquire) == nullptr) return 0;
  switch (start.type) {
    case nccl::kEventColl:
    case nccl::kEventP2p: return StartOperation(context, start, now);
    case nccl::kEventProxyOp: return StartChild(context, start, EventKind::kProxyOp, now);
    case nccl::kEventProxyStep: return StartChild(context, start, EventKind::kProxyStep, now);
    case nccl::kEventKernelCh: return StartChild(context, start, EventKind::kKernel, now);
    default: return 0;
  }
}

uint64_t Profiler::StartOperation(const Context& context, const EventStart& start, uint64_t now) {
  abi::CommunicatorSlot* slot = context.slot.load(std::memory_order_relaxed);
  abi::OperationCounters& counters = slot->operations[static_cast<uint32_t>(start.operation)];
  // Of point-to-point operations NCCL keeps no number; ours is their count.
  const uint64_t before = counters.started.fetch_add(1, std::memory_order_relaxed);
  const bool numbered = start.operation != abi::Operation::kPointToPoint;
  const uint64_t sequence = numbered ? start.sequence : before;
  counters.last_started.store(sequence, std::memory_order_relaxed);
  counters.last_started_ns.store(now, std::memory_order_relaxed);
  Event* event = pool_.Take(EventKind::kOperation);
  if (!event) {
    Count(slot->events_dropped);
    // Nobody will see its end; left open, it would make the rank look hung for ever.
    Count(counters.finished);
    return 0;
  }
  event->slot = slot;
  event->context.store(context.number, std::memory_order_relaxed);
  event->start_ns = now;
  event->operation = start.operation;
  event->sequence = sequence;
  event->bytes = start.bytes;
  event->algorithm.store(start.algorithm, std::memory_order_relaxed);
  event->protocol = start.protocol;
  event->channels = start.channels;
  return pool_.Handle(event);
}

uint64_t Profiler::StartChild(const Context& context, const EventStart& start, EventKind kind, uint64_t now) {
  // With PXN the operation belongs to another process, and its handle to that process's pool.
  static const int own_pid = getpid();
  const bool foreign = kind == EventKind::kProxyOp && start.pid != own_pid;
  if (kind == EventKind::kProxyOp && !foreign) {
    const Event* operation = pool_.Find(start.parent);
    if (operation && IsCollNet(operation->algorithm.load(std::memory_order_relaxed))) return 0;  // NCCL never ends it: the collective would be open for ever
  }
  Event* parent = foreign ? nullptr : pool_.AddChild(start.parent);
  if (!parent && kind != EventKind::kProxyOp) return 0;
  Event* event = pool_.Take(kind);
  if (!event) {
    if (parent) EventPool::RemoveChild(parent);
    Count(context.slot.load(std::memory_order_relaxed)->events_dropped);
    return 0;
  }
  event->slot = context.slot.load(std::memory_order_relaxed);
  event->context.store(context.number, std::memory_order_relaxed);
  event->start_ns = event->since_ns = now;
  event->parent = parent ? start.parent : 0;
  event->peer = start.peer;
  event->gpu_start_ns = start.gpu_ns;
  return pool_.Handle(event);
}

void Profiler::Stop(uint64_t handle, uint64_t now) {
  Event* event = pool_.Find(handle);
  if (!event) return;
  switch (event->kind) {
    case EventKind::kOperation:
      StoreMax(event->end_ns, now);
      pool_.MarkStopped(handle);
      return;
    case EventKind::kProxyOp:
      StopProxyOp(event, now);
      break;
    case EventKind::kProxyStep:
      State(handle, 0, 0, now);
      break;
    case EventKind::kKernel:
      StopKernel(event, now);
      break;
  }
  EndChild(event, handle, now);
}

/// Adds the time in the state that a step leaves to its network operation.
void Profiler::State(uint64_t handle, int state, uint64_t gpu_ns, uint64_t now) {
  Event* event = pool_.Find(handle);
  if (!event) return;
  if (event->kind == EventKind::kKernel && state == nccl::kStateKernelChStop) event->gpu_stop_ns = gpu_ns;
  if (event->kind != EventKind::kProxyStep) return;
  if (event->waiting < abi::kWaits && now > event->since_ns) {
    if (Event* parent = pool_.Find(event->parent)) Count(parent->waits_ns[event->waiting], now - event->since_ns);
  }
  event->waiting = WaitOf(state);
  event->since_ns = now;
}

void Profiler::StopProxyOp(Event* event, uint64_t) {
  abi::CommunicatorSlot& slot = *event->slot;
  Event* parent = pool_.Find(event->parent);
  for (uint32_t i = 0; i < abi::kWaits; ++i) {
    const uint64_t waited = Load(event->waits_ns[i]);
    if (waited == 0) continue;
    Count(slot.waits_ns[i], waited);
    if (parent) Count(parent->waits_ns[i], waited);
  }
  const uint64_t send = Load(event->waits_ns[static_cast<uint32_t>(Wait::kSendPeer)]);
  const uint64_t receive = Load(event->waits_ns[static_cast<uint32_t>(Wait::kReceive)]);
  if (event->peer < 0 || send + receive == 0) return;
  abi::PeerWait& peer = EntryOf(slot, event->peer);
  Count(peer.send_ns, send);
  Count(peer.receive_ns, receive);
}

void Profiler::StopKernel(Event* event, uint64_t) {
  Event* parent = pool_.Find(event->parent);
  if (!parent || event->gpu_stop_ns <= event->gpu_start_ns) return;
  StoreMax(parent->kernel_ns, event->gpu_stop_ns - event->gpu_start_ns);
}

void Profiler::EndChild(Event* event, uint64_t handle, uint64_t now) {
  Event* parent = pool_.Find(event->parent);
  if (!pool_.EndNow(handle, event)) return;  // stopped twice
  pool_.Give(event);
  if (!parent) return;
  StoreMax(parent->end_ns, now);
  EventPool::RemoveChild(parent);
}

void Profiler::Sweep(const Tick& tick) {
  const std::lock_guard lock(mutex_);
  // Also without a context: the next one then starts at the right level.
  const abi::ProfileLevel level = fixed_ ? own_ : LevelAt(policies_.current()->table(), own_, tick.now);
  if (level != level_) SetLevel(level);
  GiveUpAbandoned(tick.now);
  const uint32_t used = pool_.used();
  for (uint32_t i = 0; i < used; ++i) {
    Event& event = pool_.at(i);
    const uint64_t end = Load(event.end_ns);
    const bool alone = event.children.load(std::memory_order_relaxed) == 0;
    if (end == 0 || tick.now < end || tick.now - end < (alone ? kAloneNs : kQuietNs)) continue;
    if (!pool_.End(&event)) continue;  // not stopped, not an operation, or a child lives
    Finish(&event);
    pool_.Give(&event);
  }
}

void Profiler::GiveUpAbandoned(uint64_t now) {
  std::vector<uint32_t> due;
  std::erase_if(closed_, [&](Closed& closed) {
    if (closed.seen_ns == 0) closed.seen_ns = now;
    if (now - closed.seen_ns < kAbandonedNs) return false;
    due.push_back(closed.context);
    return true;
  });
  if (due.empty()) return;
  const uint32_t used = pool_.used();
  for (uint32_t i = 0; i < used; ++i) {
    Event& event = pool_.at(i);
    const uint64_t handle = pool_.Handle(&event);  // before the number: if the slot changes hands in between, EndNow() refuses
    const uint32_t context = event.context.load(std::memory_order_relaxed);
    if (pool_.Find(handle) == nullptr || std::find(due.begin(), due.end(), context) == due.end()) continue;
    if (pool_.EndNow(handle, &event)) pool_.Give(&event);
  }
}

/// Background thread; the event is nobody else's any more.
void Profiler::Finish(Event* event) {
  abi::CommunicatorSlot& slot = *event->slot;
  abi::OperationCounters& counters = slot.operations[static_cast<uint32_t>(event->operation)];
  const uint64_t end = Load(event->end_ns);
  Count(counters.bytes, event->bytes);
  Count(counters.busy_ns, end - std::min(end, event->start_ns));
  StoreMax(counters.last_finished, event->sequence);
  StoreMax(counters.last_finished_ns, end);
  const uint64_t number = slot.recent_count.load(std::memory_order_relaxed);
  abi::OperationRecord& record = slot.recent[number % abi::kRecentOperations];
  record.end_ns.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // before all that follows
  record.sequence.store(event->sequence, std::memory_order_relaxed);
  record.start_ns.store(event->start_ns, std::memory_order_relaxed);
  record.bytes.store(event->bytes, std::memory_order_relaxed);
  record.kernel_ns.store(Load(event->kernel_ns), std::memory_order_relaxed);
  record.operation.store(static_cast<uint32_t>(event->operation), std::memory_order_relaxed);
  record.algorithm.store(event->algorithm.load(std::memory_order_relaxed), std::memory_order_relaxed);
  record.protocol.store(event->protocol, std::memory_order_relaxed);
  record.channels.store(event->channels, std::memory_order_relaxed);
  for (uint32_t i = 0; i < abi::kWaits; ++i) {
    record.waits_ns[i].store(Load(event->waits_ns[i]), std::memory_order_relaxed);
  }
  record.end_ns.store(end, std::memory_order_release);  // release: the rest is there
  slot.recent_count.store(number + 1, std::memory_order_release);
  Count(counters.finished);
}

}  // namespace weft::net

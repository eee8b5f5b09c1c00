#include "agent/telemetry_reader.h"

#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

namespace weft::agent {
namespace {

using abi::Direction;
using abi::LaneState;
using abi::SlotState;

constexpr double kDoubtSilentS = 0.3;      // two times that TCP sends again
constexpr int64_t kDoubtRetransmits = 10;  // from one sample to the next
constexpr int64_t kLargestEpoch = int64_t{1} << 40;
constexpr uint64_t kLongestBurstNs = 3'600'000'000'000;  // an hour; more is nonsense

/// Saturating: the segment may hold anything.
int64_t ToInt64(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
}
int64_t Load(const std::atomic<uint64_t>& counter) { return ToInt64(counter.load(std::memory_order_relaxed)); }
double LoadSeconds(const std::atomic<uint64_t>& ns) {
  return static_cast<double>(ns.load(std::memory_order_relaxed)) * 1e-9;
}

std::string FormatAddress(const uint8_t (&bytes)[16], uint32_t family) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
  return text;
}

const char* LaneStateName(LaneState state) {
  switch (state) {
    case LaneState::kConnecting: return "connecting";
    case LaneState::kActive: return "active";
    case LaneState::kFailed: return "failed";
    case LaneState::kNone: break;
  }
  return nullptr;
}

/// By their bytes: a tenth of the cost of comparison by reflection.
bool Equal(const v1::FlowCounters& a, const v1::FlowCounters& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

/// a + b for amounts, none negative, that a hostile segment may have made anything: stays at the largest number.
int64_t Saturating(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t WireBytes(const v1::FlowCounters& counters) {
  int64_t sum = 0;
  for (const v1::LaneCounters& lane : counters.lanes()) sum = Saturating(sum, lane.wire_bytes());
  return sum;
}
int64_t Retransmits(const v1::FlowCounters& counters) {
  int64_t sum = 0;
  for (const v1::LaneCounters& lane : counters.lanes()) sum = Saturating(sum, lane.retransmits());
  return sum;
}

}  // namespace

TelemetryReader::TelemetryReader(const TelemetryMap& map, UserQuotas* quotas, uint32_t uid)
    : map_(map), quotas_(quotas), uid_(uid) {}

bool TelemetryReader::CopyIdentity(const abi::FlowSlot& from, uint32_t generation, v1::FlowIdentity* identity) const {
  // The plain fields between `flow` and `reserved32`, copied as bytes: what a writer in the middle of it leaves is
  // thrown away when the generation has moved.
  struct Fields {
    uint64_t flow, comm;
    uint32_t direction, ordinal;
    int32_t rank, peer_rank;
    uint32_t device, family;
    uint8_t local_address[16], peer_address[16];
    uint16_t peer_port, reserved16;
    uint32_t reserved32;
  } fields;
  static_assert(offsetof(abi::FlowSlot, peer_port) - offsetof(abi::FlowSlot, flow) == offsetof(Fields, peer_port));
  static_assert(sizeof(Fields) % sizeof(uint64_t) == 0 && offsetof(abi::FlowSlot, flow) % sizeof(uint64_t) == 0);
  // Word by word with acquire, so that the second look at the generation does not move before any of it.
  using Word [[gnu::may_alias]] = uint64_t;
  const auto* words = reinterpret_cast<const Word*>(&from.flow);
  uint64_t copy[sizeof(Fields) / sizeof(uint64_t)];
  for (size_t i = 0; i < std::size(copy); ++i) copy[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
  std::memcpy(&fields, copy, sizeof fields);
  if (from.generation.load(std::memory_order_relaxed) != generation) return false;
  if (fields.direction > 1 || (fields.family != 4 && fields.family != 6)) return false;
  identity->set_flow(fields.flow);
  identity->set_job_id(map_.job());
  identity->set_send(fields.direction == static_cast<uint32_t>(Direction::kSend));
  identity->set_rank(std::max(fields.rank, -1));
  identity->set_peer_rank(std::max(fields.peer_rank, -1));
  identity->set_world(std::max(map_.process().world, -1));
  identity->set_local_address(FormatAddress(fields.local_address, fields.family));
  identity->set_peer_address(FormatAddress(fields.peer_address, fields.family));
  identity->set_peer_port(fields.peer_port);
  identity->set_pid(map_.pid());
  identity->set_comm(fields.comm);
  identity->set_ordinal(static_cast<int32_t>(std::min<uint32_t>(fields.ordinal, 1u << 30)));
  identity->set_user_id(uid_);
  return true;
}

void TelemetryReader::CloseSlot(Slot& slot) {
  const uint64_t flow = slot.identity.flow();
  if (!slot.opened_told) opened_.push_back(slot.identity);
  if (slot.dirty) last_.push_back(slot.counters);
  closed_.push_back(flow);
  if (slot.identity.send()) closed_sends_.push_back(flow);
  slot.tracked = slot.dirty = slot.lanes_new = false;
  if (quotas_) quotas_->ReturnFlow(uid_, flow);
}

void TelemetryReader::SampleSlot(uint32_t index) {
  const abi::FlowSlot& from = map_.slot(index);
  // Acquire on both: what the plugin wrote before it released them is seen behind them.
  const uint32_t generation = from.generation.load(std::memory_order_acquire);
  const auto state = static_cast<SlotState>(from.state.load(std::memory_order_acquire));
  if (slot_at_[index] == nullptr) {
    if (state != SlotState::kOpen && state != SlotState::kClosed) return;
    slot_at_[index] = &slots_.emplace_back();
  }
  Slot& slot = *slot_at_[index];
  const bool same = slot.seen && generation == slot.generation;
  if (slot.tracked && !same) CloseSlot(slot);  // the slot was taken by another flow
  if (generation % 2 != 0) return;             // being written
  if (state != SlotState::kOpen && state != SlotState::kClosed) {
    if (slot.tracked) CloseSlot(slot);
    return;
  }
  if (!same) {
    Slot fresh{.generation = generation, .seen = true};
    if (!CopyIdentity(from, generation, &fresh.identity)) {
      if (from.generation.load(std::memory_order_relaxed) == generation) {
        slot = std::move(fresh);  // looked at once is enough
        ++traffic_.slots_invalid;
      }
      return;
    }
    const FlowAnswer answer = quotas_ ? quotas_->TakeFlow(uid_, fresh.identity.flow()) : FlowAnswer::kTaken;
    if (answer != FlowAnswer::kTaken) {
      slot = std::move(fresh);
      ++(answer == FlowAnswer::kTooMany ? traffic_.flows_refused : traffic_.flows_of_others);
      return;
    }
    fresh.tracked = true;
    fresh.counters.set_flow(fresh.identity.flow());
    fresh.counters.set_send(fresh.identity.send());
    fresh.counters.set_user_id(uid_);
    slot = std::move(fresh);
  }
  if (!slot.tracked) return;  // closed or invalid already
  ReadCounters(from, slot);
  if (state == SlotState::kClosed) CloseSlot(slot);
}

void TelemetryReader::ReadLanes(const abi::FlowSlot& from, const v1::FlowCounters& before, v1::FlowCounters* now) {
  for (uint32_t index = 0; index < abi::kMaxLanes; ++index) {
    const abi::LaneTelemetry& lane = from.lanes[index];
    // Acquire: the source port was written before the state.
    const auto state = static_cast<LaneState>(lane.state.load(std::memory_order_acquire));
    const uint32_t port = lane.source_port.load(std::memory_order_relaxed);
    const char* name = LaneStateName(state);
    if (!name || port > 65535) continue;
    const v1::LaneCounters* old = nullptr;
    for (const v1::LaneCounters& candidate : before.lanes()) {
      if (candidate.source_port() == static_cast<int32_t>(port)) old = &candidate;
    }
    v1::LaneCounters* out = now->add_lanes();
    out->set_source_port(static_cast<int32_t>(port));
    out->set_weight(static_cast<int32_t>(std::min<uint32_t>(lane.weight.load(std::memory_order_relaxed), 1u << 30)));
    out->set_state(name);
    out->set_bytes(std::max(Load(lane.bytes), old ? old->bytes() : 0));
    out->set_wire_bytes(std::max(Load(lane.wire_bytes), old ? old->wire_bytes() : 0));
    out->set_retransmits(std::max(Load(lane.retransmits), old ? old->retransmits() : 0));
    out->set_backlog_s(std::max(LoadSeconds(lane.backlog_ns), old ? old->backlog_s() : 0));
    out->set_backlog_bytes(std::max(Load(lane.backlog_bytes), old ? old->backlog_bytes() : 0));
    out->set_rtt_s(lane.rtt_us.load(std::memory_order_relaxed) * 1e-6);
    const bool tells = state == LaneState::kActive || state == LaneState::kFailed;  // one that was left may still tell why
    if (tells) out->set_silent_s(from.silent_ms[index].load(std::memory_order_relaxed) * 1e-3);
  }
}

void TelemetryReader::ReadBursts(const abi::FlowSlot& from, Slot& slot) {
  // Acquire: entries below the count were written before it.
  const uint64_t count = from.burst_count.load(std::memory_order_acquire);
  if (count <= slot.bursts_read) return;
  const uint64_t fresh = count - slot.bursts_read;
  uint64_t lost = fresh > abi::kBurstRing ? fresh - abi::kBurstRing : 0;
  double busy_s = 0, bytes = 0;
  uint64_t read = 0;
  for (uint64_t i = count - std::min<uint64_t>(fresh, abi::kBurstRing); i < count; ++i) {
    const abi::Burst& burst = from.bursts[i % abi::kBurstRing];
    const uint64_t start = burst.start_ns.load(std::memory_order_acquire);
    const uint64_t end = burst.end_ns.load(std::memory_order_acquire);
    const int64_t amount = ToInt64(burst.bytes.load(std::memory_order_acquire));
    // The writer may have come round meanwhile: then the entry is another burst's, or half of it.
    const bool overwritten = from.burst_count.load(std::memory_order_acquire) >= i + abi::kBurstRing;
    if (overwritten || end < start || end - start > kLongestBurstNs) {
      ++lost;
      continue;
    }
    busy_s += static_cast<double>(end - start) * 1e-9;
    bytes += static_cast<double>(amount);
    ++read;
    slot.period.Add(start, end);
  }
  // The count is the truth; what was missed is taken to be like what was read.
  const double scale = read == 0 ? 0 : static_cast<double>(read + lost) / static_cast<double>(read);
  slot.busy_s += busy_s * scale;
  slot.burst_bytes += bytes * scale;
  slot.bursts_read = count;
  traffic_.bursts_lost = Saturating(traffic_.bursts_lost, ToInt64(lost));
}

void TelemetryReader::CountTraffic(const Slot& slot, const v1::FlowCounters& now) {
  const v1::FlowCounters& before = slot.counters;
  const int direction = now.send() ? 0 : 1;
  const auto add = [](int64_t& to, int64_t by) { to = Saturating(to, std::max<int64_t>(0, by)); };
  add(traffic_.bytes[direction], now.bytes() - before.bytes());
  add(traffic_.wire_bytes[direction], WireBytes(now) - WireBytes(before));
  add(traffic_.retransmits, Retransmits(now) - Retransmits(before));
  traffic_.wait_peer_s += now.wait_peer_s() - before.wait_peer_s();
  traffic_.wait_wire_s += now.wait_wire_s() - before.wait_wire_s();
  traffic_.gate_held_s += now.gate_held_s() - before.gate_held_s();
}

void TelemetryReader::ReadCounters(const abi::FlowSlot& from, Slot& slot) {
  const v1::FlowCounters& before = slot.counters;
  v1::FlowCounters now;
  now.set_flow(before.flow());
  now.set_send(before.send());
  now.set_user_id(uid_);
  now.set_messages(std::max(Load(from.messages), before.messages()));
  now.set_bytes(std::max(Load(from.bytes), before.bytes()));
  now.set_wait_peer_s(std::max(LoadSeconds(from.wait_peer_ns), before.wait_peer_s()));
  // A socket buffer takes whole bursts without filling up, so what TCP itself saw comes first.
  const double wire_s = std::max(LoadSeconds(from.wait_wire_ns), LoadSeconds(from.wire_busy_ns));
  now.set_wait_wire_s(std::max(wire_s, before.wait_wire_s()));
  now.set_policy_epoch(Load(from.policy_epoch));
  ReadBursts(from, slot);
  now.set_bursts(ToInt64(slot.bursts_read));
  now.set_burst_busy_s(slot.busy_s);
  now.set_burst_bytes(static_cast<int64_t>(std::min(slot.burst_bytes, 9.0e18)));
  const PeriodEstimator::Rhythm rhythm = slot.period.Find();
  now.set_period_s(rhythm.period.count());
  now.set_iteration_start_s(static_cast<double>(rhythm.newest_start_ns) * 1e-9);
  now.set_gate_held_s(std::max(LoadSeconds(from.gate_held_ns), before.gate_held_s()));
  now.set_gate_holds(std::max(Load(from.gate_holds), before.gate_holds()));
  ReadLanes(from, before, &now);
  const auto same_port = [](const v1::LaneCounters& a, const v1::LaneCounters& b) {
    return a.source_port() == b.source_port();
  };
  slot.lanes_new |= !std::equal(now.lanes().begin(), now.lanes().end(), before.lanes().begin(), before.lanes().end(),
                                same_port);
  CountTraffic(slot, now);
  const bool silent = std::ranges::any_of(now.lanes(), [](const v1::LaneCounters& lane) { return lane.silent_s() >= kDoubtSilentS; });
  const bool doubtful = silent || Retransmits(now) - Retransmits(before) >= kDoubtRetransmits;
  if (now.send() && doubtful && doubtful_.size() < abi::kMaxFlows) doubtful_.push_back(now.flow());
  if (!Equal(now, before)) {
    slot.counters = std::move(now);
    slot.dirty = true;
  }
}

void TelemetryReader::Sample() {
  // A process that takes its word back closes nothing by that: what was looked at once is looked at again.
  if (const uint32_t used = map_.slots_used(); used > slot_at_.size()) slot_at_.resize(used);
  for (uint32_t i = 0; i < slot_at_.size(); ++i) SampleSlot(i);
}

void TelemetryReader::Close() {
  for (Slot& slot : slots_) {
    if (slot.tracked) CloseSlot(slot);
  }
}

void TelemetryReader::Collect(v1::HostSample* sample) {
  for (v1::FlowIdentity& identity : opened_) *sample->add_opened() = std::move(identity);
  for (v1::FlowCounters& counters : last_) *sample->add_counters() = std::move(counters);
  for (const uint64_t flow : closed_) sample->add_closed(flow);
  for (Slot& slot : slots_) {
    if (!slot.tracked) continue;
    if (!slot.opened_told) *sample->add_opened() = slot.identity;
    if (slot.dirty) *sample->add_counters() = slot.counters;
    slot.opened_told = true;
    slot.dirty = false;
  }
  opened_.clear();
  last_.clear();
  closed_.clear();
}

void TelemetryReader::Snapshot(v1::HostSample* sample) {
  for (Slot& slot : slots_) {
    if (!slot.tracked) continue;
    *sample->add_opened() = slot.identity;
    *sample->add_counters() = slot.counters;
    slot.opened_told = true;
    slot.dirty = false;
  }
  opened_.clear();
  last_.clear();
  closed_.clear();
}

std::vector<SendFlow> TelemetryReader::TakeSendFlows() {
  std::vector<SendFlow> flows;
  for (Slot& slot : slots_) {
    if (!slot.tracked || !slot.lanes_new) continue;
    slot.lanes_new = false;
    if (!slot.identity.send()) continue;
    SendFlow flow{.flow = slot.identity.flow(),
                  .local_address = slot.identity.local_address(),
                  .peer_address = slot.identity.peer_address(),
                  .peer_port = static_cast<uint16_t>(slot.identity.peer_port())};
    for (const v1::LaneCounters& lane : slot.counters.lanes()) {
      if (lane.source_port() > 0) flow.lanes.push_back(static_cast<uint16_t>(lane.source_port()));
    }
    flows.push_back(std::move(flow));
  }
  return flows;
}

std::vector<uint64_t> TelemetryReader::TakeClosedSendFlows() { return std::exchange(closed_sends_, {}); }
TrafficDelta TelemetryReader::TakeTraffic() { return std::exchange(traffic_, {}); }

std::vector<std::pair<uint64_t, int64_t>> TelemetryReader::SentBytes() const {
  std::vector<std::pair<uint64_t, int64_t>> sent;
  for (const Slot& slot : slots_) {
    if (slot.tracked && slot.identity.send()) sent.emplace_back(slot.identity.flow(), slot.counters.bytes());
  }
  return sent;
}

int64_t TelemetryReader::open_flows(bool send) const {
  return std::count_if(slots_.begin(), slots_.end(),
                       [&](const Slot& slot) { return slot.tracked && slot.identity.send() == send; });
}

int64_t TelemetryReader::NewestEpoch() const {
  // A number that no controller comes to (one a second is thirty years to 2^30) is the process's own.
  const auto sane = [](int64_t epoch) { return epoch <= kLargestEpoch ? epoch : 0; };
  int64_t newest = sane(Load(map_.process().policy_epoch));
  for (const Slot& slot : slots_) {
    if (slot.tracked) newest = std::max(newest, sane(slot.counters.policy_epoch()));
  }
  return newest;
}

Seconds TelemetryReader::Period() const {
  std::vector<double> periods;
  for (const Slot& slot : slots_) {
    if (slot.tracked && slot.counters.period_s() > 0) periods.push_back(slot.counters.period_s());
  }
  if (periods.empty()) return Seconds(0);
  std::nth_element(periods.begin(), periods.begin() + static_cast<std::ptrdiff_t>(periods.size() / 2), periods.end());
  return Seconds(periods[periods.size() / 2]);
}

}  // namespace weft::agent

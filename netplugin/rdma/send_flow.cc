#include "netplugin/rdma/send_flow.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "netplugin/log.h"
#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net::rdma {
namespace {

/// Headers of one packet behind the IP header: UDP, BTH, ICRC. Those of the first one (RETH) are left out.
constexpr uint64_t kPacketOverhead = 8 + 12 + 4;

}  // namespace

SendFlow::SendFlow(const Services& services, Setup setup, uint8_t traffic_class)
    : Flow(services, std::move(setup)), own_class_(traffic_class) {
  for (SendRequest& request : requests_) request.comm = this;
  Reweigh(NowNs());
  LogPaths("connected");
  services_.background.Add(this);
}

SendFlow::~SendFlow() { services_.background.Remove(this); }

/// One line per flow and change: what was asked of the network.
void SendFlow::LogPaths(const char* what) const {
  std::string ports;
  for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) {
    ports += (lane > 0 ? ", " : "") + std::to_string(pairs_->UdpPort(lane));
  }
  Log(nccl::kLogInfo, "flow %016llx to rank %d over %s %s: %u queue pairs, UDP ports %s, credits from %u, traffic "
      "class %u, of credits %u, service level %u", static_cast<unsigned long long>(flow_), slot_->peer_rank,
      pairs_->port()->name().c_str(), what, pairs_->lanes(), ports.c_str(), pairs_->UdpPort(kControlLane),
      pairs_->data_class(), pairs_->control_class(), pairs_->port()->info().service_level);
}

int SendFlow::Isend(const void* data, uint64_t size, int tag, void* mhandle, Request** request) {
  *request = nullptr;
  const Hold hold(*this);
  if (!hold) return nccl::kSuccess;  // ask again
  Poll();
  PostPending();
  if (error_ != nccl::kSuccess) return error_;
  if (state_ != State::kRunning) return nccl::kSuccess;
  Credit credit;
  const std::optional<uint32_t> sequence = FindCredit(tag, &credit);
  if (!sequence) {
    if (peer_gone_) Fail(nccl::kRemoteError, "the peer closed the connection");
    if (!requests_[next_ % kSlots].taken && !recorder_.waiting()) recorder_.WaitBegins(NowNs());
    return error_;
  }
  Measure(credit.arrivals);
  SendRequest& slot = requests_[*sequence % kSlots];
  if (gate_.armed() && !GateOpens()) return nccl::kSuccess;  // held: ask again
  if (const int wrong = Accepts(data, size, mhandle, credit)) return wrong;
  slot.region = static_cast<MemoryRegion*>(mhandle);
  const ibv_mr* mr = slot.region ? On(slot.region) : nullptr;
  if (slot.region && !mr) return error_;  // ask again on another port
  if (Paced(size)) return nccl::kSuccess;
  slot.size = size;
  slot.posted_ns = NowNs();
  slot.sequence = *sequence;
  Take(*sequence);
  slot.taken = true;
  slot.done = false;
  slot.data = static_cast<const char*>(data);
  slot.local_key = mr ? mr->lkey : 0;
  slot.credit = credit;
  Begin(slot);
  *request = &slot;
  return nccl::kSuccess;
}

/// The oldest receive of `tag` that no message was taken for. Credits come in order, so that the first one missing ends
/// the search.
std::optional<uint32_t> SendFlow::FindCredit(int32_t tag, Credit* credit) const {
  for (uint32_t i = 0; i < kSlots; ++i) {
    const uint32_t sequence = next_ + i;
    if (i > 0 && (ahead_ >> (i - 1) & 1)) continue;
    if (requests_[sequence % kSlots].taken) return std::nullopt;  // not tested yet
    if (!ReadCredit(&pairs_->memory().credits[sequence % kSlots], sequence, credit)) return std::nullopt;
    if (credit->tag == tag) return sequence;
  }
  return std::nullopt;
}

void SendFlow::Take(uint32_t sequence) {
  if (sequence - next_ >= end_ - next_) end_ = sequence + 1;
  if (sequence != next_) {
    ahead_ |= 1u << (sequence - next_ - 1);
    return;
  }
  bool taken;
  do {
    ++next_;
    taken = (ahead_ & 1) != 0;
    ahead_ >>= 1;
  } while (taken);
}

int SendFlow::Accepts(const void* data, uint64_t size, void* mhandle, const Credit& credit) {
  if (size > 0 && (!mhandle || !data)) return nccl::kInvalidArgument;
  if (size <= credit.size) return nccl::kSuccess;
  Log(nccl::kLogWarn, "message %u of %llu bytes is longer than its receive of %llu bytes", credit.sequence,
      static_cast<unsigned long long>(size), static_cast<unsigned long long>(credit.size));
  Fail(nccl::kInternalError, "the message is longer than the posted receive");
  return error_;
}

/// True when the policy's rate says to wait.
bool SendFlow::Paced(uint64_t size) {
  if (pacing_bps_ == 0) return false;
  const uint64_t now = NowNs();
  if (now < paced_until_) return true;
  const auto cost = static_cast<uint64_t>(static_cast<double>(size) * 8e9 / static_cast<double>(pacing_bps_));
  paced_until_ = std::max(now, paced_until_) + cost;
  return false;
}

void SendFlow::Begin(SendRequest& request) {
  if (recorder_.waiting()) recorder_.WaitEnds(recorder_.slot().wait_peer_ns, request.posted_ns);
  std::array<Part, kMaxParts> parts;
  request.part_count = SplitMessage(request.size, services_.environment.rdma.split_bytes,
                                    std::span(shares_).first(pairs_->lanes()), &parts);
  request.parts_done = 0;
  request.told = false;
  for (uint32_t i = 0; i < request.part_count; ++i) request.parts[i] = PostedPart{parts[i]};
  if (outstanding_++ == 0) busy_since_ = request.posted_ns;
  ++unposted_;
  PostPending();
}

int SendFlow::Test(Request* request, int* done, int* size) {
  *done = 0;
  const Hold hold(*this);
  if (!hold) return nccl::kSuccess;
  if (!request->done) {
    Poll();
    PostPending();
  }
  if (!request->done) return error_;
  *done = 1;
  if (size) *size = static_cast<int>(request->size);
  request->taken = false;
  return nccl::kSuccess;
}

/// Hands out what found no room before, oldest first.
void SendFlow::PostPending() {
  if (unposted_ == 0 || state_ != State::kRunning || error_ != nccl::kSuccess) return;
  uint32_t left = 0;
  for (uint32_t sequence = end_ - kSlots; sequence != end_; ++sequence) {
    SendRequest& request = requests_[sequence % kSlots];
    if (!request.taken || request.done || request.sequence != sequence) continue;
    bool all = true;
    for (uint32_t part = 0; part < request.part_count; ++part) {
      if (!request.parts[part].ended) all = PostPart(request, part) && all;
    }
    if (!all) ++left;
  }
  unposted_ = left;
}

void SendFlow::BeginPart(PostedPart& part) {
  part.ordinal = ++lane_parts_[part.lane];
  part.sent_ns = Observed() ? MeterNs() : 0;
  part.wire_bytes = 0;
}

/// The receiver has said when the parts of a message came.
void SendFlow::Measure(const Arrivals& arrivals) {
  if (!Tells(arrivals)) return;
  SendRequest& request = requests_[arrivals.sequence % kSlots];
  if (request.sequence != arrivals.sequence || request.part_count != arrivals.parts || std::exchange(request.told, true)) return;
  if (arrivals.late == Arrivals::kUnknown) return;
  const uint64_t late_ns = uint64_t{arrivals.late} << (Arrivals::kBeforeShift + kTickShift);
  const int mbps = pairs_->port()->speed_mbps();
  for (uint32_t i = 0; i < request.part_count; ++i) {
    const PostedPart& part = request.parts[i];
    if (!part.ended || part.sent_ns == 0 || arrivals.before[i] == Arrivals::kUnknown) continue;
    const uint32_t tick = arrivals.tick - (uint32_t{arrivals.before[i]} << Arrivals::kBeforeShift);
    meters_[part.lane].Came({part.ordinal, part.sent_ns, tick, part.wire_bytes, late_ns}, mbps > 0 ? 8000.0 / mbps : 0, &recorder_.lane(part.lane));
  }
}

/// The queue pairs are others, and what is in flight was posted more than once.
void SendFlow::MeasureAnew() {
  for (PartMeter& meter : meters_) meter.Forget();
  for (SendRequest& request : requests_) request.told = true;
}

bool SendFlow::PostPart(SendRequest& request, uint32_t index) {
  PostedPart& part = request.parts[index];
  if (part.posted == 0 && pairs_->HasRoom(part.lane)) {
    BeginPart(part);
    part.begun_ns = std::max(request.posted_ns, connected_ns_);
  }
  while (!part.ended) {
    if (!pairs_->HasRoom(part.lane)) return false;
    Immediate immediate;
    const Write write = NextWrite(request, index, &immediate);
    if (!pairs_->Post(write)) {
      if (errno != ENOMEM) LaneFailed(part.lane, IBV_WC_GENERAL_ERR);
      return false;
    }
    part.ended = write.id.last;
    if (write.immediate && write.immediate->has_record) continue;
    part.posted += write.length;
    abi::LaneTelemetry& lane = recorder_.lane(part.lane);
    Bump(lane.bytes, write.length);
    const uint64_t mtu = uint64_t{128} << pairs_->port()->info().mtu;
    const uint64_t header = kPacketOverhead + (recorder_.slot().family == 6 ? 40 : 20);
    const uint64_t wire_bytes = write.length + std::max<uint64_t>(1, (write.length + mtu - 1) / mtu) * header;
    part.wire_bytes += wire_bytes;
    Bump(lane.wire_bytes, wire_bytes);
  }
  return true;
}

/// The next write of a part: all of it with the immediate value where one write can carry it, else pieces and then a
/// Record. Where packets may overtake each other the end must not be the last piece's own.
Write SendFlow::NextWrite(SendRequest& request, uint32_t index, Immediate* immediate) {
  const PostedPart& part = request.parts[index];
  const uint32_t slot = request.sequence % kSlots;
  const uint64_t longest = pairs_->port()->longest_write();
  const bool record = part.length > longest ||
                      (pairs_->port()->adaptive_routing() && part.length > kAdaptiveRoutingBytes);
  *immediate = {static_cast<uint16_t>(request.sequence), static_cast<uint8_t>(request.part_count),
                static_cast<uint8_t>(index), record};
  Write write;
  write.id = {pairs_->generation(), part.lane, static_cast<uint8_t>(slot), static_cast<uint8_t>(index), false, false};
  if (record && part.posted == part.length) {
    Record& from = pairs_->memory().records[slot][index];
    from = {part.length, request.sequence, index};
    write.from = &from;
    write.local_key = pairs_->memory_local_key();
    write.length = sizeof from;
    write.to = peer_memory_ + offsetof(FlowMemory, records) + (slot * kMaxParts + index) * sizeof(Record);
    write.remote_key = peer_memory_key_;
    write.inlined = true;
  } else {
    write.from = request.data + part.offset + part.posted;
    write.local_key = request.local_key;
    write.length = std::min(part.length - part.posted, longest);
    write.to = request.credit.address + part.offset + part.posted;
    write.remote_key = request.credit.key;
    if (record) return write;
  }
  write.immediate = immediate;
  write.id.last = true;
  return write;
}

void SendFlow::OnCompletion(const ibv_wc& completion) {
  const WorkId id = WorkId::Unpack(completion.wr_id);
  if (id.generation != pairs_->generation()) return;
  if (completion.status != IBV_WC_SUCCESS) {
    // Flushed ones only follow; the lane to blame said something else.
    if (completion.status == IBV_WC_RETRY_EXC_ERR) Unanswered(id.lane);
    LaneFailed(id.lane, completion.status);
    return;
  }
  Progressed();
  ways_tried_ = 0;
  if (!id.last) {
    if (id.lane < kMaxParts) heard_ns_[id.lane] = answered_ns_[id.lane] = NowNs();
    return;
  }
  if (id.lane < kMaxParts) heard_ns_[id.lane] = NowNs();
  SendRequest& request = requests_[id.slot % kSlots];
  PartDone(request, request.parts[id.part % kMaxParts]);
}

void SendFlow::PartDone(SendRequest& request, PostedPart& part) {
  if (part.done || !request.taken || request.done) return;
  part.done = part.ended = true;
  Progressed();
  const uint64_t now = NowNs();
  recorder_.Active(now, part.length);
  uint64_t& answered = answered_ns_[part.lane % kMaxParts];
  answered = std::max(answered, now);
  if (part.begun_ns != 0) took_ns_[part.lane % kMaxParts] = now - std::min(now, part.begun_ns);
  if (++request.parts_done < request.part_count) return;
  request.done = true;
  given_up_ = 0;
  recorder_.Completed(request.size, request.posted_ns, now);
  if (--outstanding_ == 0) Bump(recorder_.slot().wire_busy_ns, now - busy_since_);
}

void SendFlow::OnMessage(const ControlMessage& message) {
  if (message.type == ControlType::kPleaseReset) {
    if (message.generation != AwaitedGeneration()) return;  // of before
    if (message.hint == Hint::kNothingFailed || message.hint == Hint::kGoesHome) {
      restart_wanted_ = peer_moves_ = true;
      peer_goes_home_ = message.hint == Hint::kGoesHome;
    } else if (message.hint == Hint::kTakeAnotherPort) {
      out_of_reach_ = true;
    } else {
      credits_doubted_ = true;
      const SlotReport& newest = message.slots[0];
      Credit credit;
      // One that was taken stands there still: of this connection, as OnConnected() has emptied it.
      credits_came_ = newest.used && ReadCredit(&pairs_->memory().credits[newest.sequence % kSlots], newest.sequence, &credit);
      LaneFailed(kControlLane, IBV_WC_REM_OP_ERR);
    }
  } else if (message.type == ControlType::kResetDone && state_ == State::kWaiting &&
             message.generation == AwaitedGeneration() && !stopping()) {
    out_of_reach_ = false;
    ConnectWhenPossible(message);
  } else if (message.type == ControlType::kResetDone && message.generation < AwaitedGeneration()) {
    return;  // the answer to what was taken back since
  } else {
    Fail(nccl::kInternalError, "the peer said something that does not fit");
  }
}

void SendFlow::Sample(uint64_t now) {
  const uint64_t last = slot_->last_progress_ns.load(std::memory_order_relaxed);
  silent_ns_ = now - std::min(now, last);
}

void SendFlow::Work(const Tick& tick) {
  if (ReadPolicy(tick.now)) ApplyPorts();
  WatchAnswers(tick.now);
  if (state_ != State::kRunning) {
    WorkWhileStopped(tick.now);
    return;
  }
  window_leased_ = PolicyLeased(tick.now);
  pacing_bps_ = window_leased_ ? entry_.policy().pacing_bps : 0;
  Reweigh(tick.now);
  if (WantedClass(tick.now) != pairs_->data_class()) restart_wanted_ = true;
  if (ports_.BetterThan(*pairs_->port(), tick.now)) restart_wanted_ = true;
  if (restart_wanted_ && !peer_gone_) Restart();
}

}  // namespace weft::net::rdma

#include "netplugin/rdma/recv_flow.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "netplugin/log.h"
#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net::rdma {

RecvFlow::RecvFlow(const Services& services, Setup setup) : Flow(services, std::move(setup)) {
  for (RecvRequest& request : requests_) request.comm = this;
  for (FlushRequest& request : flushes_) request.comm = this;
  times_completions_ = true;
  arrives_at_.store(pairs_->port().get(), std::memory_order_relaxed);
  flusher_port_ = pairs_->port().get();
  const bool reaches_gpu = (pairs_->port()->ptr_support() & (nccl::kPtrCuda | nccl::kPtrDmaBuf)) != 0;
  if (std::string why; reaches_gpu && !(flusher_ = Flusher::Make(pairs_->port(), &why))) {
    Log(nccl::kLogWarn, "%s: %s; memory of a GPU cannot be flushed", pairs_->port()->name().c_str(), why.c_str());
  }
  services_.background.Add(this);
}

RecvFlow::~RecvFlow() { services_.background.Remove(this); }

int RecvFlow::IrecvGroup(int n, void** data, const uint64_t* sizes, const int* tags, void** mhandles,
                         Request** request) {
  *request = nullptr;
  for (int i = 0; i < n; ++i) {
    if (sizes[i] > 0 && (!mhandles || !mhandles[i] || !data[i])) return nccl::kInvalidArgument;
  }
  const Hold hold(*this);
  if (!hold) return nccl::kSuccess;  // ask again
  if (error_ != nccl::kSuccess) return error_;
  if (HasRoom(n)) {
    std::array<uint32_t, kMaxRecvs> keys{};
    for (int i = 0; i < n; ++i) {
      if (!mhandles || !mhandles[i]) continue;
      const ibv_mr* mr = On(static_cast<MemoryRegion*>(mhandles[i]));
      if (!mr) return error_;  // ask again on another port
      keys[static_cast<size_t>(i)] = mr->rkey;
    }
    RecvRequest& first = requests_[next_ % kSlots];
    for (int i = 0; i < n; ++i) {
      auto* region = mhandles ? static_cast<MemoryRegion*>(mhandles[i]) : nullptr;
      Post(data[i], sizes[i], tags ? tags[i] : 0, region,
           keys[static_cast<size_t>(i)]);
    }
    first.count = static_cast<uint8_t>(n);
    for (int i = 1; i < n; ++i) first.size += sizes[i];
    *request = &first;
  }
  Announce();
  Poll();
  if (error_ != nccl::kSuccess) *request = nullptr;
  return error_;
}

bool RecvFlow::HasRoom(int n) const {
  for (uint32_t i = 0; i < static_cast<uint32_t>(n); ++i) {
    if (requests_[(next_ + i) % kSlots].taken) return false;
  }
  return true;
}

void RecvFlow::Post(void* data, uint64_t size, int tag, MemoryRegion* region, uint32_t key) {
  RecvRequest& slot = requests_[next_ % kSlots];
  pairs_->memory().credits[next_ % kSlots] =
      MakeCredit(next_, reinterpret_cast<uint64_t>(data), size, key, tag, NextTold());
  slot.data = data;
  slot.region = region;
  slot.tag = tag;
  slot.size = slot.room = size;
  slot.posted_ns = NowNs();
  slot.sequence = next_++;
  slot.taken = slot.used = true;
  slot.done = slot.announced = false;
  slot.total = 0;
  slot.parts = slot.arrived = 0;
  slot.came_ns = {};
  slot.late_ns = 0;
  slot.count = 1;
  ++pending_;
  ++unannounced_;
}

bool RecvFlow::Complete(const RecvRequest& first) const {
  for (uint32_t i = 0; i < first.count; ++i) {
    if (!requests_[(first.sequence + i) % kSlots].done) return false;
  }
  return true;
}

/// Gives the buffers of a complete group back.
void RecvFlow::Release(RecvRequest& first, int* sizes) {
  for (uint32_t i = 0; i < first.count; ++i) {
    RecvRequest& request = requests_[(first.sequence + i) % kSlots];
    if (sizes) sizes[i] = static_cast<int>(request.total);
    request.taken = false;
  }
}

/// Tells the sender of buffers that it does not know yet, in order.
void RecvFlow::Announce() {
  if (unannounced_ == 0 || state_ != State::kRunning) return;
  for (uint32_t sequence = next_ - kSlots; sequence != next_; ++sequence) {
    const uint32_t index = sequence % kSlots;
    RecvRequest& request = requests_[index];
    if (!request.taken || request.done || request.announced || request.sequence != sequence) continue;
    if (!pairs_->HasRoom(kControlLane)) return;
    Write write;
    write.id = {pairs_->generation(), static_cast<uint8_t>(kControlLane), static_cast<uint8_t>(index), 0, true, false};
    write.from = &pairs_->memory().credits[index];
    write.local_key = pairs_->memory_local_key();
    write.length = sizeof(Credit);
    write.to = peer_memory_ + offsetof(FlowMemory, credits) + index * sizeof(Credit);
    write.remote_key = peer_memory_key_;
    write.inlined = true;
    if (!pairs_->Post(write)) {
      if (errno != ENOMEM) LaneFailed(kControlLane, IBV_WC_GENERAL_ERR);
      return;
    }
    request.announced = true;
    newest_credit_ = sequence;
    --unannounced_;
  }
}

int RecvFlow::Test(Request* request, int* done, int* size) {
  *done = 0;
  const bool flush = static_cast<void*>(request) >= flushes_.data() &&
                     static_cast<void*>(request) < flushes_.data() + flushes_.size();
  if (flush) return TestFlush(request, done, size);
  const Hold hold(*this);
  if (!hold) return nccl::kSuccess;
  auto& first = *static_cast<RecvRequest*>(request);
  if (!Complete(first)) {
    if (error_ == nccl::kSuccess) Announce();
    Poll();  // after an error too: the data may have arrived before it
    if (!Complete(first)) {
      if (error_ == nccl::kSuccess && peer_gone_) Fail(nccl::kRemoteError, "the peer closed the connection");
      if (error_ == nccl::kSuccess && !recorder_.waiting()) recorder_.WaitBegins(NowNs());
      return error_;
    }
  }
  *done = 1;
  Release(first, size);
  return nccl::kSuccess;
}

void RecvFlow::OnCompletion(const ibv_wc& completion) {
  const WorkId id = WorkId::Unpack(completion.wr_id);
  if (id.generation != pairs_->generation()) return;
  if (completion.status != IBV_WC_SUCCESS) {
    if (completion.status == IBV_WC_RETRY_EXC_ERR) Unanswered(id.lane);
    LaneFailed(id.lane, completion.status);
    return;
  }
  if (!id.receive) {  // a credit has arrived; when the message will is the sender's business
    Progressed();
    ++acknowledged_;
    return;
  }
  PartArrived(id.lane, completion);
  if (!pairs_->PostReceive(id.lane)) LaneFailed(id.lane, IBV_WC_GENERAL_ERR);
}

void RecvFlow::PartArrived(uint32_t lane, const ibv_wc& completion) {
  Immediate immediate;
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM || !Decode(ntohl(completion.imm_data), &immediate)) {
    Fail(nccl::kInternalError, "an immediate value that no sender makes");
    return;
  }
  RecvRequest& request = requests_[immediate.sequence % kSlots];
  const auto bit = static_cast<uint8_t>(1u << immediate.part);
  if (!request.taken || request.done || static_cast<uint16_t>(request.sequence) != immediate.sequence ||
      (request.arrived & bit) != 0 || (request.parts != 0 && request.parts != immediate.parts)) {
    Fail(nccl::kInternalError, "a part belongs to no message that is awaited");
    return;
  }
  const std::optional<uint64_t> got = Length(request, immediate, completion);
  if (!got) {
    Fail(nccl::kInternalError, "a part's record belongs to another part");
    return;
  }
  const uint64_t length = *got;
  if (length > request.room - request.total) {
    Fail(nccl::kInternalError, "the parts of a message are longer than its receive");
    return;
  }
  request.total += length;
  request.parts = immediate.parts;
  request.arrived |= bit;
  if (taken_ns() != 0 && empty_ns() != 0) {  // it came between the two
    request.came_ns[immediate.part] = taken_ns();
    request.late_ns = std::max(request.late_ns, taken_ns() - empty_ns());
  }
  Progressed();
  const uint64_t now = credited_ns_ = NowNs();  // while something comes, the sender has credits
  if (recorder_.waiting()) recorder_.WaitEnds(recorder_.slot().wait_peer_ns, now);
  recorder_.Active(now, length);
  Bump(recorder_.lane(lane).bytes, length);
  if (std::popcount(request.arrived) < request.parts) return;
  request.done = true;
  --pending_;
  recorder_.Completed(request.total, request.posted_ns, now);
}

/// When the parts of the oldest message came that the sender has not been told of, if it is complete.
Arrivals RecvFlow::NextTold() {
  if (next_ - told_ > kSlots) told_ = next_ - kSlots;
  const RecvRequest& request = requests_[told_ % kSlots];
  if (told_ == next_ || request.sequence != told_ || !request.done) return {};
  ++told_;
  const uint64_t newest = *std::ranges::max_element(request.came_ns);
  if (newest == 0) return {};
  const auto in_units = [](uint64_t ns) {
    return static_cast<uint16_t>(std::min<uint64_t>(ns >> (kTickShift + Arrivals::kBeforeShift), Arrivals::kUnknown));
  };
  Arrivals arrivals{.sequence = request.sequence, .tick = SentTick(newest), .before = {}, .parts = request.parts, .reserved = 0,
                    .late = in_units(request.late_ns), .check = 0};
  for (uint32_t part = 0; part < kMaxParts; ++part) {
    arrivals.before[part] = request.came_ns[part] == 0 ? Arrivals::kUnknown : in_units(newest - request.came_ns[part]);
  }
  Seal(&arrivals);
  return arrivals;
}

/// nullopt: the record is none of this part's.
std::optional<uint64_t> RecvFlow::Length(const RecvRequest& request, const Immediate& immediate,
                                         const ibv_wc& completion) {
  if (!immediate.has_record) return completion.byte_len;
  // The network wrote it before the completion that is being looked at.
  const Record& record = pairs_->memory().records[request.sequence % kSlots][immediate.part];
  if (record.sequence != request.sequence || record.part != immediate.part) return std::nullopt;
  return record.bytes;
}

void RecvFlow::OnMessage(const ControlMessage& message) {
  if (message.type == ControlType::kReset && message.generation == AwaitedGeneration() + 1) {
    BeginAnew(message);
  } else if (message.type == ControlType::kReady && state_ == State::kWaiting && !stopping() && !connecting() &&
             message.generation == pairs_->generation()) {
    state_ = State::kRunning;
    PublishLanes();
    if (pending_ == 0) Progressed();
    // What the sender may have lost is said again; what it knows it does not take twice.
    unannounced_ = 0;
    for (RecvRequest& request : requests_) {
      if (!request.taken || request.done) continue;
      request.announced = false;
      ++unannounced_;
    }
    Announce();
  } else {
    Fail(nccl::kInternalError, "the peer said something that does not fit");
  }
}

void RecvFlow::BeginAnew(const ControlMessage& message) {
  if (message.lanes != pairs_->lanes()) {
    Fail(nccl::kInternalError, "the peer changed the number of queue pairs");
    return;
  }
  if (failed_since_ == 0) failed_since_ = NowNs();
  reset_ = message;
  relocations_ = 0;
  asked_ = moving_ = false;
  if (message.hint == Hint::kTakeAnotherPort) Because(PortChoice::Reason::kNothingGetsThrough);
  if (message.hint == Hint::kGoesHome) Because(PortChoice::Reason::kPeerGoesHome);
  Stop(message.generation);
}

void RecvFlow::OnStopped() {
  // Credits and acknowledgements may be what got lost. Those of pairs that do get through stay where they are.
  const auto ports = PortsAnew(~flow_, reset_.generation, kMaxParts + 1);
  const uint32_t as = reset_.slots[0].arrived;
  const auto other = [&](uint32_t lane) { return as > 0 && as <= pairs_->lanes() ? pairs_->UdpPort(as - 1) : ports[lane]; };
  for (uint32_t lane = 0; lane < kMaxParts; ++lane) {
    if (reset_.slots[0].unanswered >> lane & 1) pairs_->SetUdpPort(lane, other(lane));
  }
  if (std::exchange(credits_lost_, false) && !reset_.slots[0].complete) pairs_->SetUdpPort(kControlLane, other(kControlLane));
  pairs_->SetTrafficClasses(reset_.port.traffic_class, reset_.port.control_traffic_class);
  ConnectWhenPossible(reset_);
}

bool RecvFlow::ReachesAllFrom(const std::shared_ptr<Port>& port) {
  return port == ports_.home() || std::ranges::all_of(requests_, [&](const RecvRequest& request) {
           return !request.taken || request.done || !request.region || ports_.home()->Copy(request.region, port);
         });
}

/// The buffers that are awaited have other keys there.
void RecvFlow::OnMoved(PortChoice::Reason) {
  arrives_at_.store(pairs_->port().get(), std::memory_order_release);
  for (const RecvRequest& request : requests_) {
    if (!request.taken || request.done) continue;
    const ibv_mr* mr = request.region ? On(request.region) : nullptr;
    if (request.region && !mr) return;
    pairs_->memory().credits[request.sequence % kSlots] =
        MakeCredit(request.sequence, reinterpret_cast<uint64_t>(request.data), request.room, mr ? mr->rkey : 0, request.tag);
  }
}

void RecvFlow::OnConnected(const ControlMessage&) {
  asked_ = false;  // for a port that can be reached: needless now
  newest_credit_.reset();
  ControlMessage answer = Message(ControlType::kResetDone);
  for (uint32_t i = 0; i < kSlots; ++i) {
    const RecvRequest& request = requests_[i];
    const bool awaited = request.taken && !request.done;
    answer.slots[i] = {request.sequence, request.used, request.used && request.done, request.arrived, 0,
                       awaited ? pairs_->memory().credits[i].key : 0};
  }
  Say(answer);
}

/// NCCL's thread or the background's.
void RecvFlow::WantAnotherPort() {
  if (state_ != State::kRunning) return;
  state_ = State::kFailed;
  if (failed_since_ == 0) failed_since_ = NowNs();
  moving_ = true;
  services_.background.Wake();
}

void RecvFlow::AskToMove() {
  ControlMessage please = Message(ControlType::kPleaseReset);
  const Port& port = *pairs_->port();
  please.hint = port.down() || ports_.IsRefused(port, NowNs()) ? Hint::kNothingFailed : Hint::kGoesHome;
  asked_ = Say(please);
}

/// Without its credits a sender has nothing to send, and nobody else sees that they get lost.
void RecvFlow::WatchCredits(uint64_t now) {
  if (acknowledged_ != std::exchange(seen_acknowledged_, acknowledged_)) {
    if (now < credited_ns_ + kCreditNs / 2) given_up_ = 0;  // its way is no slow one
    credited_ns_ = std::max(credited_ns_, now);
  }
  if (state_ != State::kRunning || pairs_->in_flight(kControlLane) == 0 || credited_ns_ == 0) credited_ns_ = now;
  if (now < credited_ns_ + (kCreditNs << Patience(given_up_))) return;
  ++given_up_;
  Unanswered(kControlLane);
  LaneFailed(kControlLane, IBV_WC_RETRY_EXC_ERR);
}

/// Only the sender can begin anew: it knows what it has written.
void RecvFlow::Work(const Tick& tick) {
  if (peer_gone_ || stopping()) return;
  WatchCredits(tick.now);
  const bool better = ports_.BetterThan(*pairs_->port(), tick.now);
  if (state_ == State::kWaiting && connecting()) {  // the sender has not been told of this port yet
    const uint32_t others = ports_.Others(*pairs_->port(), tick.now);
    const bool unreachable = Unreachable(tick.now);
    if (unreachable && relocations_ >= others && !asked_) {  // from none of its ports
      ControlMessage please = Message(ControlType::kPleaseReset);
      please.hint = Hint::kTakeAnotherPort;
      asked_ = Say(please);
    } else if (better || (unreachable && others > 0)) {
      ++relocations_;
      Relocate(better ? PortChoice::Reason::kOther : PortChoice::Reason::kNothingGetsThrough);
    }
    return;
  }
  if (better && !asked_) {
    WantAnotherPort();
    AskToMove();
    return;
  }
  if (state_ != State::kFailed || asked_) return;
  if (moving_) {
    AskToMove();
    return;
  }
  Log(nccl::kLogWarn, "receive from rank %d over %s: queue pair %u: %s; asking the sender to set the flow up anew",
      recorder_.slot().peer_rank, pairs_->port()->name().c_str(), failed_lane_,
      pairs_->port()->verbs().wc_status_str(failed_status_));
  ControlMessage please = Message(ControlType::kPleaseReset);
  please.slots[0].sequence = newest_credit_.value_or(0);
  please.slots[0].used = newest_credit_.has_value();
  asked_ = Say(please);
}

}  // namespace weft::net::rdma

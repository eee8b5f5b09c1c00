#include "netplugin/rdma/flow.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "netplugin/log.h"
#include "netplugin/rdma/gid.h"
#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net::rdma {
namespace {

constexpr int kHoldTries = 20'000;
constexpr uint64_t kStopHereNs = 500'000;

}  // namespace

bool ControlChannel::Send(const ControlMessage& message) {
  const ssize_t sent = send(fd_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0 && sent != static_cast<ssize_t>(sizeof message)) errno = EAGAIN;
  return sent == static_cast<ssize_t>(sizeof message);
}

ControlChannel::Got ControlChannel::Receive(ControlMessage* message, const char** wrong) {
  const ssize_t got = recv(fd_.get(), reinterpret_cast<char*>(&incoming_) + have_, sizeof incoming_ - have_,
                           MSG_DONTWAIT);
  if (got == 0) return Got::kClosed;
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Got::kNothing : Got::kClosed;
  have_ += static_cast<uint32_t>(got);
  if (have_ < sizeof incoming_) return Got::kNothing;
  have_ = 0;
  *wrong = CheckControlMessage(incoming_);
  if (*wrong) return Got::kNonsense;
  *message = incoming_;
  return Got::kMessage;
}

/// Who the flow's packets go from and to: over RoCEv2 the ports' GIDs are IP addresses, which need not be those of the rendezvous. Of the
/// ports that the flow begins with: it may move to others.
FlowIdentity OnTheNetwork(const Flow::Setup& setup) {
  FlowIdentity identity = setup.identity;
  identity.peer_port = 0;
  const auto link_local = [](const uint8_t* gid) { return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80; };
  const uint8_t *own = setup.pairs->port()->info().gid, *peer = setup.peer.port.gid;
  if (!setup.pairs->port()->ethernet() || link_local(own) || link_local(peer)) return identity;
  identity.peer_port = abi::kRocePort;
  identity.local = AddressOfGid(setup.pairs->port()->info().gid);
  identity.peer = AddressOfGid(setup.peer.port.gid);
  return identity;
}

void TuneControl(int fd, int patience_s) {
  const int on = 1, idle_s = 5, probes = 3;
  const int patience_ms = patience_s * 1000;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  // A link that is down for less must not end the connection.
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof patience_ms);
}

Flow::Hold::Hold(Flow& flow, int tries) : flow_(flow) {
  while (tries-- > 0 && !held_) {
    held_ = !flow.held_.exchange(true, std::memory_order_acquire);
    if (!held_ && tries > 0) __builtin_ia32_pause();
  }
}

Flow::Hold::~Hold() {
  if (held_) flow_.held_.store(false, std::memory_order_release);
}

Flow::Flow(const Services& services, Setup setup)
    : services_(services),
      flow_(setup.identity.flow),
      peer_address_(setup.identity.peer),
      recorder_(services.telemetry.Open(OnTheNetwork(setup))),
      slot_(&recorder_.slot()),
      control_(std::move(setup.control)),
      ports_(std::move(setup.home), setup.identity.flow),
      pairs_(std::move(setup.pairs)),
      peer_memory_(setup.peer.memory_address),
      peer_memory_key_(setup.peer.memory_key),
      peer_others_(setup.peer.port.others) {
  PublishLanes();
}

Flow::~Flow() { services_.telemetry.Close(&recorder_.slot()); }

void Flow::PublishLanes() {
  for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) {
    abi::LaneTelemetry& telemetry = recorder_.lane(lane);
    telemetry.source_port.store(pairs_->UdpPort(lane), std::memory_order_relaxed);
    telemetry.state.store(static_cast<uint32_t>(abi::LaneState::kActive), std::memory_order_release);
  }
}

const char* Flow::direction() const {
  return slot_->direction == static_cast<uint32_t>(abi::Direction::kSend) ? "send to" : "receive from";
}

int Flow::RegMr(void* data, size_t size, int type, void** mhandle) {
  const std::shared_ptr<Port>& port = ports_.home();
  const int known = port->ptr_support() & (nccl::kPtrHost | nccl::kPtrCuda);
  if ((type & known) == 0 || type == nccl::kPtrDmaBuf) return nccl::kInvalidUsage;
  MemoryRegion* region = port->Register(data, size);
  if (!region) {
    Log(nccl::kLogWarn, "register %zu bytes at %p with %s: %s", size, data, port->name().c_str(), std::strerror(errno));
    return nccl::kSystemError;
  }
  region->of_gpu = type == nccl::kPtrCuda;
  *mhandle = region;
  return nccl::kSuccess;
}

int Flow::RegMrDmaBuf(void* data, size_t size, int, uint64_t offset, int fd, void** mhandle) {
  const std::shared_ptr<Port>& port = ports_.home();
  MemoryRegion* region = port->RegisterDmaBuf(offset, size, reinterpret_cast<uint64_t>(data), fd);
  if (!region) {
    Log(nccl::kLogWarn, "register dma-buf %d of %zu bytes with %s: %s", fd, size, port->name().c_str(),
        std::strerror(errno));
    return errno == EOPNOTSUPP ? nccl::kInvalidUsage : nccl::kSystemError;
  }
  *mhandle = region;
  return nccl::kSuccess;
}

int Flow::DeregMr(void* mhandle) {
  ports_.home()->Deregister(static_cast<MemoryRegion*>(mhandle));
  return nccl::kSuccess;
}

ibv_mr* Flow::Elsewhere(MemoryRegion* region) {
  const std::shared_ptr<Port>& port = pairs_->port();
  const uint64_t now = NowNs();
  if (!ports_.IsRefused(*port, now)) {
    if (ibv_mr* mr = ports_.home()->Copy(region, port)) {
      if (unregistered_ == region) unregistered_ = nullptr;
      return mr;
    }
    Log(nccl::kLogWarn, "%s rank %d over %s: register memory with this port, too: %s", direction(), slot_->peer_rank,
        port->name().c_str(), std::strerror(errno));
    ports_.Refused(*port, now);
    if (unregistered_ != region) unregistered_since_ = now;
    unregistered_ = region;
  }
  const uint64_t patience = static_cast<uint64_t>(services_.environment.rdma.recovery_s) * 1'000'000'000u;
  if (unregistered_ && now > unregistered_since_ + patience) {
    Fail(nccl::kSystemError, "memory cannot be registered where the flow can go (WEFT_RDMA_RECOVERY_S)");
  } else if (ports_.Others(*port, now) > 0) {
    WantAnotherPort();
  }
  return nullptr;
}

void Flow::Poll() {
  ibv_wc completions[16];
  const bool timed = times_completions_ && Observed();
  // What arrived before the peer went is there: no request may be failed while its completion waits in the queue.
  for (int round = 0; round < 4 || peer_gone_ || error_ != nccl::kSuccess; ++round) {
    const uint64_t before = timed ? MeterNs() : 0;
    const int count = pairs_->Poll(completions, 16);
    if (count > 0) taken_ns_ = timed ? MeterNs() : 0;
    for (int i = 0; i < count; ++i) OnCompletion(completions[i]);
    if (count < 16) {
      empty_ns_ = before;
      return;
    }
  }
  empty_ns_ = 0;
}

void Flow::LaneFailed(uint32_t lane, ibv_wc_status status) {
  if (state_ != State::kRunning || error_ != nccl::kSuccess) return;
  if (peer_gone_) {
    Fail(nccl::kRemoteError, "the peer is gone");
    return;
  }
  state_ = State::kFailed;
  failed_lane_ = lane;
  failed_status_ = status;
  if (failed_since_ == 0) failed_since_ = NowNs();
  services_.background.Wake();
}

void Flow::Stop(uint32_t generation) {
  state_ = State::kWaiting;
  stopping_ = true;
  connecting_ = false;
  next_generation_ = generation;
  pairs_->BeginStop();
  // Most devices end what was posted at once. What takes longer is looked at in the sweeps to come: others wait for this
  // thread.
  const uint64_t until = NowNs() + kStopHereNs;
  do {
    ContinueStop();
  } while (stopping_ && NowNs() < until);
}

void Flow::ContinueStop() {
  ibv_wc completions[16];
  int count = 0;
  do {
    count = pairs_->Poll(completions, 16);
    for (int i = 0; i < count; ++i) OnCompletion(completions[i]);
  } while (count == 16);
  if (error_ != nccl::kSuccess || !pairs_->Stopped()) return;
  stopping_ = false;
  const uint64_t now = NowNs();
  pairs_->port()->Sweep({now, false});  // its event may come after this flow's turn
  const PortChoice::Reason reason = std::exchange(reason_, PortChoice::Reason::kOther);
  const std::shared_ptr<Port> port = ports_.Choose(*pairs_->port(), reason, now);
  std::string why;
  if ((port != pairs_->port() && MoveTo(port, reason, &why)) || pairs_->Restart(next_generation_, &why)) {
    OnStopped();
  } else {
    Fail(nccl::kSystemError, why.c_str());
  }
}

/// Queue pairs of the next generation on `port` in place of those of now, which have stopped. Where that cannot be those of
/// now stay, and the port is left alone for a while.
bool Flow::MoveTo(const std::shared_ptr<Port>& port, PortChoice::Reason reason, std::string* why) {
  auto pairs = QueuePairs::Make(port, pairs_->lanes(), pairs_->receives(), why);
  bool ready = pairs && pairs->Restart(next_generation_, why);
  if (ready && !ReachesAllFrom(port)) {
    *why = std::string("register memory: ") + std::strerror(errno);
    ready = false;
  }
  if (!ready) {
    Log(nccl::kLogWarn, "%s rank %d: cannot move from %s to %s: %s", direction(), slot_->peer_rank,
        pairs_->port()->name().c_str(), port->name().c_str(), why->c_str());
    ports_.Refused(*port, NowNs());
    return false;
  }
  Log(nccl::kLogWarn, "%s rank %d moves from %s (%s) to %s", direction(), slot_->peer_rank,
      pairs_->port()->name().c_str(), pairs_->port()->down() ? "down" : "up", port->name().c_str());
  pairs->AskAs(*pairs_);
  ports_.Moved(*pairs_->port(), *port, reason, NowNs());
  if (port == ports_.home()) unregistered_ = nullptr;
  pairs_ = std::move(pairs);
  OnMoved(reason);
  return true;
}

void Flow::ConnectWhenPossible(const ControlMessage& peer) {
  wanted_peer_ = peer;
  peer_others_ = peer.port.others;
  connecting_ = true;
  connecting_since_ = NowNs();
  connect_not_before_ = 0;
  connect_pause_ns_ = kTryAgainNs;
  TryConnect();
}

void Flow::Relocate(PortChoice::Reason reason) {
  const std::shared_ptr<Port> port = ports_.Choose(*pairs_->port(), reason, NowNs());
  std::string why;
  if (port != pairs_->port()) MoveTo(port, reason, &why);
  ConnectWhenPossible(ControlMessage(wanted_peer_));
}

void Flow::TryConnect() {
  const uint64_t now = NowNs();
  if (pairs_->port()->down()) connecting_since_ = now;  // the peer is not to blame
  if (pairs_->port()->down() || now < connect_not_before_) return;
  // To find out that nobody answers may take the kernel a while, and other flows wait for this thread.
  connect_not_before_ = now + connect_pause_ns_;
  connect_pause_ns_ = std::min(2 * connect_pause_ns_, kTryAgainLatestNs);
  std::string why;
  if (pairs_->Connect(wanted_peer_, &why)) {
    connecting_ = false;
    peer_memory_ = wanted_peer_.memory_address;
    peer_memory_key_ = wanted_peer_.memory_key;
    why_not_.clear();
    OnConnected(wanted_peer_);
  } else if (std::string rewind; !pairs_->Rewind(&rewind)) {
    Fail(nccl::kSystemError, (why + "; " + rewind).c_str());
  } else {
    why_not_ = std::move(why);
  }
}

ControlMessage Flow::Message(ControlType type) const {
  ControlMessage message{};
  message.magic = kControlMagic;
  message.version = kRdmaWireVersion;
  message.type = type;
  message.rank = services_.environment.rank;
  message.flow = flow_;
  pairs_->Describe(&message);
  message.port.others = static_cast<uint8_t>(std::min(ports_.Others(*pairs_->port(), NowNs()), 255u));
  return message;
}

bool Flow::Say(const ControlMessage& message) {
  if (control_->Send(message)) return true;
  Fail(nccl::kRemoteError, std::strerror(errno));
  return false;
}

void Flow::Fail(int code, const char* what) {
  if (error_ != nccl::kSuccess) return;  // said once
  __atomic_store_n(&error_, code, __ATOMIC_RELAXED);  // Watch() looks at it
  Log(nccl::kLogWarn, "%s rank %d at %s over %s: %s", direction(), recorder_.slot().peer_rank,
      peer_address_.Text().c_str(), pairs_->port()->name().c_str(), what);
}

void Flow::ReadControl() {
  while (!peer_gone_ && error_ == nccl::kSuccess) {
    ControlMessage message;
    const char* wrong = nullptr;
    switch (control_->Receive(&message, &wrong)) {
      case ControlChannel::Got::kNothing:
        return;
      case ControlChannel::Got::kClosed:
        peer_gone_ = true;
        if (state_ != State::kRunning) Fail(nccl::kRemoteError, "the peer is gone while the flow was set up anew");
        return;
      case ControlChannel::Got::kNonsense:
        Fail(nccl::kInternalError, wrong);
        return;
      case ControlChannel::Got::kMessage:
        OnMessage(message);
    }
  }
}

/// A device must end every write within what it was told to wait. One that does not (rdma_rxe forgets a pair now and
/// then when its cable was down) is treated as one that failed.
void Flow::LookForStandstill(uint64_t now) {
  const int busy = pairs_->BusyLane();
  if (state_ != State::kRunning || busy < 0 || pairs_->completed() != seen_completed_) {
    seen_completed_ = pairs_->completed();
    moved_ns_ = now;
  } else if (now > moved_ns_ + 2 * pairs_->port()->PatienceNs() + 1'000'000'000) {
    for (uint32_t lane = 0; lane <= kControlLane; ++lane) {
      if (pairs_->in_flight(lane) > 0) Unanswered(lane);
    }
    LaneFailed(static_cast<uint32_t>(busy), IBV_WC_RESP_TIMEOUT_ERR);
  }
}

void Flow::Sweep(const Tick& tick) {
  if (tick.sample) {
    recorder_.CloseIdleBurst(tick.now);
    Sample(tick.now);
  }
  const Hold hold(*this, kHoldTries);
  if (!hold) return;  // the next sweep
  ReadControl();
  if (error_ != nccl::kSuccess) return;
  const uint64_t patience = static_cast<uint64_t>(services_.environment.rdma.recovery_s) * 1'000'000'000u;
  if (failed_since_ != 0 && state_ != State::kRunning && tick.now > failed_since_ + patience) {
    const std::string last = why_not_.empty() ? "" : "; " + why_not_;
    Fail(nccl::kRemoteError, ("could not be set up anew in time (WEFT_RDMA_RECOVERY_S)" + last).c_str());
    return;
  }
  if (stopping_) ContinueStop();
  if (connecting_) TryConnect();
  // A failure must be seen although nobody tests a request this moment: the other end may wait for what got lost.
  if (tick.sample) {
    Poll();
    LookForStandstill(tick.now);
  }
  if (error_ == nccl::kSuccess) Work(tick);
}

void Flow::Watch(std::vector<pollfd>* fds) {
  // Read without the hold: a stale value costs one sweep. After an error nobody reads the connection any more, and what
  // came on it would start sweep after sweep.
  if (__atomic_load_n(&peer_gone_, __ATOMIC_RELAXED)) return;
  if (__atomic_load_n(&error_, __ATOMIC_RELAXED) == nccl::kSuccess) fds->push_back({control_->fd(), POLLIN, 0});
}

}  // namespace weft::net::rdma

// The background thread's side of a sending flow: opening lanes, marking, pacing, sampling.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "netplugin/log.h"
#include "netplugin/tcp/send_comm.h"

namespace weft::net {

using abi::LaneState;

void SendComm::SetLaneState(Lane& lane, LaneState state) {
  abi::LaneTelemetry& telemetry = recorder_.lane(Index(lane));
  telemetry.source_port.store(lane.port, std::memory_order_relaxed);
  telemetry.state.store(static_cast<uint32_t>(state), std::memory_order_release);
  lane.state.store(state, std::memory_order_release);  // release: hands over fd and port
}

void SendComm::Sweep(const Tick& tick) {
  // This thread is the counter's only writer.
  entry_.Read(services_.policies, flow_, tick.now, services_.telemetry.process().policy_rejected);
  const std::lock_guard lock(lanes_mutex_);
  if (entry_.present()) OpenMissing(tick.now);
  for (Lane& lane : lanes_) {
    if (lane.state.load(std::memory_order_relaxed) == LaneState::kConnecting) DriveLane(lane, tick.now);
    if (lane.move && !IsParents()) DriveMove(lane, tick.now);
  }
  MarkAndPace(tick.now);
  if (!tick.sample) return;
  uint64_t busy_us = 0, draining_ns = 0;  // lanes are busy at the same time: the busiest one speaks for the flow
  for (Lane& lane : lanes_) {
    if (lane.told_until_ns != 0 && tick.now >= lane.told_until_ns) {
      lane.told_until_ns = 0;
      if (lane.state.load(std::memory_order_acquire) == LaneState::kFailed) recorder_.slot().silent_ms[Index(lane)].store(0, std::memory_order_relaxed);
    }
    if (lane.state.load(std::memory_order_acquire) != LaneState::kActive || Parked(lane)) continue;
    abi::LaneTelemetry* telemetry = &recorder_.lane(Index(lane));
    const TcpMoment moment = SampleTcpInfo(lane.fd, listener_.family, abi::Direction::kSend, tick.now, telemetry);
    // A lane that was opened anew counts from zero again.
    const uint64_t before_us = moment.busy_us >= lane.moment.busy_us ? lane.moment.busy_us : 0;
    busy_us = std::max(busy_us, moment.busy_us - before_us);
    // A peer that does not read holds bytes back, not the wire.
    const bool shut = 2000 * (moment.shut_us - std::min(moment.shut_us, lane.moment.shut_us)) > tick.now - lane.moment.time_ns;
    if (!shut) draining_ns = std::max(draining_ns, moment.draining_ns);
    lane.moment = moment;
    const uint64_t silent_ns = UnansweredFor(moment, &lane.answered_ns), silent_ms = silent_ns / 1'000'000;
    if (!IsParents()) WatchSilence(lane, silent_ns, tick.now);
    recorder_.slot().silent_ms[Index(lane)].store(static_cast<uint32_t>(std::min<uint64_t>(silent_ms, UINT32_MAX)), std::memory_order_relaxed);
    // Told from the kernel's count, as the socket is the data thread's to read. The end of a stream counts as one byte.
    if (Index(lane) == 0 && moment.received_bytes >= sizeof(PostedNotice) && !noticed_.exchange(true)) {
      attention_.fetch_add(1, std::memory_order_release);
    }
  }
  std::atomic<uint64_t>& busy = recorder_.slot().wire_busy_ns;
  busy.store(busy.load(std::memory_order_relaxed) + busy_us * 1000, std::memory_order_relaxed);
  recorder_.Draining(tick.now, draining_ns);
  recorder_.CloseIdleBurst(tick.now);
}

uint64_t SendComm::SilentNs() const {
  uint64_t least = UINT64_MAX;
  for (const Lane& lane : lanes_) {
    const bool sampled = lane.state.load(std::memory_order_acquire) == LaneState::kActive && lane.moment.time_ns != 0;
    if (sampled) least = std::min(least, lane.moment.silent_ns);
  }
  return least;
}

void SendComm::Watch(std::vector<pollfd>* fds) {
  const auto watch = [fds](int fd, const Opening& opening) {
    fds->push_back({fd, static_cast<short>(opening.hello_sent ? POLLIN : POLLOUT), 0});
  };
  for (const Lane& lane : lanes_) {
    if (lane.state.load(std::memory_order_relaxed) == LaneState::kConnecting) watch(lane.fd, lane.opening);
    if (!lane.move) continue;
    if (lane.move->step == Move::Step::kOpen) watch(lane.move->fd.get(), lane.move->opening);
    if (lane.move->step == Move::Step::kSend) fds->push_back({lane.move->fd.get(), POLLOUT, 0});
  }
}

void SendComm::OpenMissing(uint64_t now) {
  for (const abi::LanePolicy& wanted : entry_.policy().lanes) {
    if (wanted.source_port == 0) break;
    const auto same = std::ranges::find_if(lanes_, [&](const Lane& lane) {
      return lane.state.load(std::memory_order_acquire) != LaneState::kNone && lane.port == wanted.source_port;
    });
    if (same != lanes_.end()) {
      const bool failed = same->state.load(std::memory_order_relaxed) == LaneState::kFailed;
      // A failed port is tried again when the controller asks for it again, that is once per epoch.
      if (failed && same->failed_epoch != entry_.epoch()) BeginLane(*same, wanted.source_port, now);
    } else if (Lane* slot = FindSlot()) {
      BeginLane(*slot, wanted.source_port, now);
    }
  }
}

/// Whether the policy names its port.
bool SendComm::Wanted(const Lane& lane) const {
  return std::ranges::any_of(entry_.policy().lanes, [&](const auto& want) { return want.source_port == lane.port; });
}

/// A free slot; or nullptr, and then an idle lane that the policy no longer names is being given up to make room.
SendComm::Lane* SendComm::FindSlot() {
  Lane* idle = nullptr;
  for (Lane& lane : lanes_) {
    const LaneState state = lane.state.load(std::memory_order_acquire);
    if (state == LaneState::kNone || (state == LaneState::kFailed && !Wanted(lane))) return &lane;
    if (state != LaneState::kActive) continue;
    if (lane.retire.load(std::memory_order_relaxed)) return nullptr;  // one at a time
    if (lane.move || lane.moment.unanswered) continue;  // what the kernel has of it is still to be moved
    if (Index(lane) == 0 && tagged_.load(std::memory_order_relaxed)) continue;  // what the receiver says comes this way
    if (!Wanted(lane) && recorder_.lane(Index(lane)).weight.load(std::memory_order_relaxed) == 0) idle = &lane;
  }
  if (idle) {
    idle->retire.store(true, std::memory_order_relaxed);
    attention_.fetch_add(1, std::memory_order_release);
  }
  return nullptr;
}

void SendComm::BeginLane(Lane& lane, uint16_t port, uint64_t now) {
  lane.port = port;
  lane.opening = {};
  lane.opening.deadline = now + kOpenTimeoutNs;
  lane.tos = tos_.load(std::memory_order_relaxed);
  lane.pacing_bps = 0;
  lane.moment = {};
  lane.answered_ns = 0;
  lane.written = lane.began = 0;
  lane.move_at_ns = lane.move_pause_ns = lane.told_until_ns = 0;
  recorder_.slot().silent_ms[Index(lane)].store(0, std::memory_order_relaxed);
  recorder_.lane(Index(lane)).bytes.store(0, std::memory_order_relaxed);  // nobody sends on it now
  const char* what = "";
  Fd fd = Connect(port, lane.tos, &what);
  if (!fd.valid()) return FailLane(lane, what, errno);
  lane.fd = fd.Release();
  SetLaneState(lane, LaneState::kConnecting);
}

/// A connection to the peer that is under way, from `port` (0: any). Invalid, with errno and `what` failed.
Fd SendComm::Connect(uint16_t port, uint8_t tos, const char** what) {
  *what = "socket";
  Fd fd = OpenTcp(listener_.family);
  if (!fd.valid()) return fd;
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  SetTrafficClass(fd.get(), listener_.family, tos);  // before connect: the SYN is marked too
  SetUnsentLimit(fd.get(), services_.environment.unsent_bytes);
  Address source = local_;
  source.port = port;
  sockaddr_storage storage;
  socklen_t length = source.ToSockaddr(&storage);
  *what = "bind";
  int failed = bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 ? errno : 0;
  if (failed == 0) {
    *what = "connect";
    length = listener_.ToSockaddr(&storage);
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS) failed = errno;
  }
  if (failed == 0) return fd;
  fd.Reset();
  errno = failed;
  return fd;
}

LaneHello SendComm::Hello(const Lane& lane, uint8_t flags) const {
  return {kHelloMagic, kWireVersion, static_cast<uint16_t>(Index(lane)), cookie_, flow_, rank_, lane.tos, flags, {}};
}

void SendComm::DriveLane(Lane& lane, uint64_t now) {
  const char* what = "";
  int error = 0;
  const Opened opened = DriveOpening(lane.fd, lane.opening, Hello(lane, 0), now, &what, &error);
  if (opened == Opened::kFailed) return FailLane(lane, what, error);
  if (opened == Opened::kNotYet) return;
  SetLaneState(lane, LaneState::kActive);
  attention_.fetch_add(1, std::memory_order_release);
}

/// One step of a connection that Connect() began, until the receiver has said that it has it. kFailed: with `what` and `error`.
SendComm::Opened SendComm::DriveOpening(int fd, Opening& opening, const LaneHello& hello, uint64_t now, const char** what, int* error) {
  const auto fail = [&](const char* step, int code) {
    *what = step;
    *error = code;
    return Opened::kFailed;
  };
  if (now > opening.deadline) return fail("open", ETIMEDOUT);
  if (!opening.hello_sent) {
    pollfd ready{fd, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) return Opened::kNotYet;
    int code = 0;
    socklen_t length = sizeof code;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length);
    if (code != 0) return fail("connect", code);
    // The buffer of a new connection is empty: it takes 32 bytes at once or something is wrong.
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return fail("hello", errno);
    opening.hello_sent = true;
    return Opened::kNotYet;
  }
  const ssize_t got = recv(fd, reinterpret_cast<char*>(&opening.ack) + opening.ack_bytes, sizeof opening.ack - opening.ack_bytes,
                           MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Opened::kNotYet;
  if (got <= 0) return fail("hello", got == 0 ? ECONNRESET : errno);
  opening.ack_bytes += static_cast<uint32_t>(got);
  if (opening.ack_bytes < sizeof opening.ack) return Opened::kNotYet;
  if (opening.ack.magic != kAckMagic || opening.ack.accepted == 0) return fail("hello", ECONNREFUSED);
  return Opened::kYes;
}

void SendComm::FailLane(Lane& lane, const char* what, int error) {
  Fd(lane.fd).Reset();
  lane.fd = -1;
  lane.failed_epoch = entry_.epoch();
  SetLaneState(lane, LaneState::kFailed);
  if (lane.logged_port == lane.port) return;
  lane.logged_port = lane.port;
  Log(nccl::kLogWarn, "lane to rank %d at %s from port %u: %s: %s; the other lanes go on", recorder_.slot().peer_rank,
      listener_.Text().c_str(), lane.port, what, std::strerror(error));
}

/// Class and pacing are leased: without a valid lease they are the flow's own class and no pacing.
void SendComm::MarkAndPace(uint64_t now) {
  const bool leased = entry_.Leased(services_.policies, now);
  const auto tos = static_cast<uint8_t>(leased ? entry_.policy().traffic_class & 0xFC : default_tos_);
  const uint64_t pacing = leased ? entry_.policy().pacing_bps : 0;
  tos_.store(tos, std::memory_order_relaxed);
  uint64_t total = 0;
  std::array<uint64_t, abi::kMaxLanes> weights{};
  for (Lane& lane : lanes_) {
    if (lane.state.load(std::memory_order_acquire) != LaneState::kActive) continue;
    // The weights in force, not the wanted ones: what carries the bytes is what must be paced.
    weights[Index(lane)] = recorder_.lane(Index(lane)).weight.load(std::memory_order_relaxed);
    total += weights[Index(lane)];
  }
  for (Lane& lane : lanes_) {
    if (lane.state.load(std::memory_order_acquire) != LaneState::kActive) continue;
    if (lane.tos != tos) SetTrafficClass(lane.fd, listener_.family, tos);
    lane.tos = tos;
    // A lane without weight is idle; it gets the whole so that what it still holds drains.
    const double share = weights[Index(lane)] == 0 ? 1.0 : static_cast<double>(weights[Index(lane)]) / total;
    const auto rate = static_cast<uint64_t>(share * static_cast<double>(pacing));
    if (lane.pacing_bps != rate) SetPacing(lane.fd, rate);
    lane.pacing_bps = rate;
  }
}

}  // namespace weft::net

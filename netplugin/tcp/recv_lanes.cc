// The connections of a receiving flow: taking them over, watching, sampling and closing them.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "netplugin/tcp/recv_comm.h"
#include "netplugin/tcp/tcp_info.h"

namespace weft::net {

bool RecvComm::AttachLate(uint32_t index, Fd* fd, uint8_t tos) { return Attach(index, fd, tos, true); }

bool RecvComm::Attach(uint32_t index, Fd* fd, uint8_t tos, bool acknowledge) {
  Lane& lane = lanes_[index];
  const std::lock_guard lock(lanes_mutex_);
  if (lane.fd >= 0) return false;
  if (!WatchLanes(index, fd->get())) return false;
  lane = Lane{};
  lane.port = PeerAddress(fd->get()).port;
  lane.tos = tos;
  lane.stage = std::make_unique<char[]>(kStageBytes);
  lane.meter = ArrivalMeter(WirePerByte(fd->get(), family_));
  SetTrafficClass(fd->get(), family_, tos);  // for the acknowledgements
  lane.fd = fd->Release();
  abi::LaneTelemetry& telemetry = recorder_.lane(index);
  if (telemetry.source_port.load(std::memory_order_relaxed) != lane.port) {  // not that one's history
    telemetry.backlog_ns.store(0, std::memory_order_relaxed);
    telemetry.backlog_bytes.store(0, std::memory_order_relaxed);
  }
  telemetry.source_port.store(lane.port, std::memory_order_relaxed);
  telemetry.bytes.store(0, std::memory_order_relaxed);
  telemetry.state.store(static_cast<uint32_t>(abi::LaneState::kActive), std::memory_order_release);
  // Before the sender may use it, or its last messages could be missed; release: the lane is complete.
  open_.fetch_or(1u << index, std::memory_order_release);
  if (acknowledge) {
    // The data thread cannot close the descriptor meanwhile. The sender starts when it has this.
    const LaneAck ack{kAckMagic, 1};
    send(lane.fd, &ack, sizeof ack, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  return true;
}

/// A lane that is alone is read without asking, and is not watched either: what watches a socket costs every packet that
/// arrives. With the second lane both are.
bool RecvComm::WatchLanes(uint32_t index, int fd) {
  const auto watch = [this](uint32_t lane, int lane_fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = lane;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane_fd, &event) == 0 || errno == EEXIST;
  };
  bool alone = true;
  for (uint32_t other = 0; other < lanes_.size(); ++other) {
    if (lanes_[other].fd < 0) continue;
    alone = false;
    if (!watch(other, lanes_[other].fd)) return false;
  }
  return alone || watch(index, fd);
}

void RecvComm::CloseLane(Lane& lane) {
  const std::lock_guard lock(lanes_mutex_);
  recorder_.lane(Index(lane)).state.store(static_cast<uint32_t>(abi::LaneState::kNone), std::memory_order_relaxed);
  open_.fetch_and(~(1u << Index(lane)), std::memory_order_relaxed);
  offered_.fetch_and(~(1u << Index(lane)), std::memory_order_relaxed);
  following_ &= ~(1u << Index(lane));
  lane.offered.Reset();
  lane.next.Reset();
  Fd(lane.fd).Reset();  // leaves the epoll set too
  lane.fd = -1;         // from here on the index may be attached again
}

/// Nothing was read: there is nothing now, or the connection has ended.
RecvComm::ReadResult RecvComm::ReadFailed(Lane& lane, ssize_t got) {
  const int error = errno;
  if (got < 0 && (error == EAGAIN || error == EINTR)) {
    if (error == EAGAIN) NoteEmpty(lane);
    return ReadResult::kStop;
  }
  if (lane.next.valid() || (offered_.load(std::memory_order_acquire) >> Index(lane) & 1) != 0) {
    lane.broken = true;  // its other end is gone, it goes on over another connection
    return ReadResult::kStop;
  }
  // A sender that closes before it has read the acknowledgement of a late lane resets that lane, which carried nothing.
  const bool unused = got < 0 && error == ECONNRESET && lane.taken == 0;
  if (got < 0 && !unused) {
    Fail(nccl::kRemoteError, std::strerror(error));
    return ReadResult::kStop;
  }
  if (lane.in_payload || lane.end > 0 || lane.skip > 0) Fail(nccl::kRemoteError, "the peer closed the connection within a message");
  lane_lost_ = lane_lost_ || !unused;  // no last chunk said that it was given up
  CloseLane(lane);
  return ReadResult::kStop;
}

void RecvComm::Sweep(const Tick& tick) {
  if (!tick.sample) return;
  const std::lock_guard lock(lanes_mutex_);
  uint64_t window = UINT64_MAX;
  for (Lane& lane : lanes_) {
    if (lane.fd < 0) continue;
    SampleTcpInfo(lane.fd, family_, abi::Direction::kReceive, tick.now, &recorder_.lane(Index(lane)));
    window = std::min(window, LeastWindow(lane.fd));
  }
  window_.store(window, std::memory_order_relaxed);
  recorder_.CloseIdleBurst(tick.now);
}

}  // namespace weft::net

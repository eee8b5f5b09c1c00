// The receiving end of a lane whose path has fallen silent: its stream goes on over another connection (send_move.cc).
//
// The sender sends again what was never acknowledged. Of that some may have come: what has arrived over the old connection is read
// until the place from which the new one goes on, and what the new one repeats is passed over.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "netplugin/tcp/recv_comm.h"
#include "netplugin/tcp/tcp_info.h"

namespace weft::net {

namespace {

/// Whether the sender has begun to send over it: only then it may have closed the one before.
bool HasBegun(const Fd& fd) {
  char byte;
  return fd.valid() && recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace

bool RecvComm::Offer(uint32_t index, Fd* fd) {
  Lane& lane = lanes_[index];
  const std::lock_guard lock(lanes_mutex_);
  // What a connection has brought is acknowledged, and comes over no other one: it is followed first, and the sender asks again.
  if (lane.fd < 0 || lane.resume_bytes > 0 || HasBegun(lane.next) || HasBegun(lane.offered)) return false;
  const LaneAck ack{kAckMagic, 1};
  // The buffer of a new connection is empty. From here on the sender may close the old one.
  lane.offered = std::move(*fd);  // an earlier one was given up by the sender
  offered_.fetch_or(1u << index, std::memory_order_release);
  send(lane.offered.get(), &ack, sizeof ack, MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

void RecvComm::FollowMoves(uint32_t lanes) {
  for (; lanes != 0 && error_ == nccl::kSuccess; lanes &= lanes - 1) FollowMove(lanes_[static_cast<size_t>(std::countr_zero(lanes))]);
}

void RecvComm::FollowMove(Lane& lane) {
  const uint32_t bit = 1u << Index(lane);
  if ((offered_.load(std::memory_order_acquire) & bit) != 0) {
    const std::lock_guard lock(lanes_mutex_);
    lane.next = std::move(lane.offered);
    following_ |= bit;
    offered_.fetch_and(~bit, std::memory_order_relaxed);
  }
  if (!lane.next.valid() || !ReadResume(lane)) return;
  if (lane.taken >= lane.resume.position) return SwitchTo(lane);
  // What was acknowledged is there: the old connection is read on.
  if (lane.broken) Fail(nccl::kRemoteError, "a connection that takes over a lane leaves a part of it out");
}

/// Whether it is known from where the next connection goes on.
bool RecvComm::ReadResume(Lane& lane) {
  if (lane.resume_bytes == sizeof lane.resume) return true;
  const std::lock_guard lock(lanes_mutex_);  // another one may be offered
  const ssize_t got = recv(lane.next.get(), reinterpret_cast<char*>(&lane.resume) + lane.resume_bytes,
                           sizeof lane.resume - lane.resume_bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    DropNext(lane);
    return false;
  }
  lane.resume_bytes += static_cast<uint32_t>(got);
  if (lane.resume_bytes < sizeof lane.resume) return false;
  if (lane.resume.magic == kResumeMagic) return true;
  Fail(nccl::kInternalError, "a connection that takes over a lane begins with a wrong magic number");
  return false;
}

/// The sender has thought better of it, or tries another one, which then is offered. Under lanes_mutex_.
void RecvComm::DropNext(Lane& lane) {
  lane.next.Reset();
  lane.resume_bytes = 0;
  lane.broken = false;  // what the old one says counts again
  following_ &= ~(1u << Index(lane));
}

void RecvComm::SwitchTo(Lane& lane) {
  const uint32_t index = Index(lane);
  const std::lock_guard lock(lanes_mutex_);  // the background thread may be reading its counters
  if (!WatchLanes(index, lane.next.get())) return Fail(nccl::kSystemError, "a connection cannot be watched");
  Fd(lane.fd).Reset();  // leaves the epoll set too
  lane.fd = lane.next.Release();
  following_ &= ~(1u << index);
  lane.port = PeerAddress(lane.fd).port;
  lane.skip = lane.taken - lane.resume.position;
  lane.resume_bytes = 0;
  lane.broken = false;
  lane.least_awaited = 1;
  lane.short_chunks = 0;
  lane.stamped = lane.ended = false;
  lane.position = lane.came_ns = lane.unread = 0;
  lane.meter = ArrivalMeter(WirePerByte(lane.fd, family_));
  SetTrafficClass(lane.fd, family_, lane.tos);
  abi::LaneTelemetry& telemetry = recorder_.lane(index);
  telemetry.backlog_ns.store(0, std::memory_order_relaxed);
  telemetry.backlog_bytes.store(0, std::memory_order_relaxed);
  telemetry.bytes.store(0, std::memory_order_relaxed);
  telemetry.source_port.store(lane.port, std::memory_order_release);
  if (index == 0 && matcher_) matcher_->TellAgain();
}

/// Passes over what the new connection repeats.
RecvComm::ReadResult RecvComm::Skip(Lane& lane) {
  char repeated[16384];
  const uint64_t asked = std::min<uint64_t>(sizeof repeated, lane.skip);
  const ssize_t got = recv(lane.fd, repeated, asked, MSG_DONTWAIT);
  if (got <= 0) return ReadFailed(lane, got);
  lane.skip -= static_cast<uint64_t>(got);
  return ReadResult::kMore;
}

}  // namespace weft::net

// The background thread's side of a sending flow: a lane whose path has fallen silent goes on over another connection.
//
// What the kernel has been given and the receiver never acknowledged belongs to messages that NCCL believes sent: their buffers are
// used again. Only the kernel has those bytes, so they are taken from there (policy/unsent.h) and sent once more:
//
//   kOpen   a connection from another port, so over another path, which the receiver accepts as the lane's next one
//   kPark   the data thread keeps off the old one
//   kAsk    the agent takes the bytes off the old one, which is gone by that
//   kSend   they go over the new one; then it is the lane's, and the data thread goes on where it was
//
// Until kAsk is answered all can be given up and the lane is as it was; from then on the bytes are kept until they are sent.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "netplugin/log.h"
#include "netplugin/tcp/send_comm.h"

namespace weft::net {

/// Begins a move when the path is silent, and ends one that has gone no further when it answers again.
void SendComm::WatchSilence(Lane& lane, uint64_t silent_ns, uint64_t now) {
  if (silent_ns == 0) {
    if (lane.move && lane.move->step == Move::Step::kOpen && !lane.move->data) lane.move.reset();
    lane.move_pause_ns = 0;
    return;
  }
  if (lane.move || silent_ns < kMoveAfterNs || now < lane.move_at_ns || services_.unsent == nullptr) return;
  lane.move = std::make_unique<Move>();
  lane.move->silent_ns = silent_ns;
  OpenMove(lane, now);
}

void SendComm::OpenMove(Lane& lane, uint64_t now) {
  Move& move = *lane.move;
  move.step = Move::Step::kOpen;
  move.opening = {};
  move.opening.deadline = now + kMoveOpenNs;
  const char* what = "";
  move.fd = Connect(0, lane.tos, &what);
  if (!move.fd.valid()) GiveUpMove(lane, what, now);
}

/// Back to the lane as it was; or, where its bytes are in hand, to another new connection. Tried again at once, then less and less
/// often: the port was one of a silent path too, or the peer's host is gone.
void SendComm::GiveUpMove(Lane& lane, const char* why, uint64_t now) {
  lane.move_at_ns = now + lane.move_pause_ns;
  lane.move_pause_ns = std::clamp<uint64_t>(2 * lane.move_pause_ns, kMoveOpenNs / 8, kLongestMovePauseNs);
  if (lane.move->data) {
    if (std::exchange(lane.move->step, Move::Step::kOpen) == Move::Step::kSend) lane.move->left = std::move(lane.move->fd);
    lane.move->fd.Reset();
    lane.move->opening.deadline = 0;
    return;
  }
  if (lane.move->step != Move::Step::kOpen) {
    lane.move_at_ns = now + kLongestMovePauseNs;
    Log(nccl::kLogWarn, "lane to rank %d at %s from port %u is silent and stays there: %s", recorder_.slot().peer_rank,
        listener_.Text().c_str(), lane.port, why);
  }
  lane.move.reset();
  Unpark(lane);
}

void SendComm::DriveMove(Lane& lane, uint64_t now) {
  Move& move = *lane.move;
  if (lane.state.load(std::memory_order_acquire) != abi::LaneState::kActive) {  // closed by the data thread: it held nothing
    lane.move.reset();
    Unpark(lane);
    return;
  }
  switch (move.step) {
    case Move::Step::kOpen: {
      if (!move.fd.valid()) {
        if (now >= lane.move_at_ns) OpenMove(lane, now);
        return;
      }
      const char* what = "";
      int error = 0;
      const Opened opened = DriveOpening(move.fd.get(), move.opening, Hello(lane, kHelloContinues), now, &what, &error);
      if (opened == Opened::kFailed) return GiveUpMove(lane, what, now);
      if (opened == Opened::kNotYet) return;
      move.left.Reset();
      move.step = move.data ? Move::Step::kSend : Move::Step::kPark;
      move.sent = move.resume_sent = 0;
      move.opening.deadline = now + 2 * kMoveAfterNs;
      if (move.step == Move::Step::kSend) return SendBytes(lane, now);
      [[fallthrough]];
    }
    case Move::Step::kPark:
      parked_.fetch_or(1u << Index(lane), std::memory_order_seq_cst);
      if (inside_.load(std::memory_order_seq_cst)) return;  // it will not use this one again
      move.token = RandomBits();
      move.opening.deadline = now + kAskNs;
      if (!services_.unsent->Ask(lane.fd, move.token, move.opening.deadline)) return GiveUpMove(lane, "no agent takes its bytes from the kernel", now);
      move.step = Move::Step::kAsk;
      return;
    case Move::Step::kAsk:
      return TakeBytes(lane, now);
    case Move::Step::kSend:
      return SendBytes(lane, now);
  }
}

/// False: they cannot be had.
bool SendComm::ReadBytes(Move& move, const UnsentBytes::Answer& answer, uint64_t greeting) {
  move.bytes = answer.bytes - greeting;
  move.data.reset(new (std::nothrow) char[move.bytes + 1]);
  uint64_t got = 0;
  while (move.data && got < move.bytes) {
    const ssize_t part = pread(answer.file.get(), move.data.get() + got, move.bytes - got, static_cast<off_t>(greeting + got));
    if (part <= 0) move.data.reset();
    else got += static_cast<uint64_t>(part);
  }
  return move.data != nullptr;
}

void SendComm::TakeBytes(Lane& lane, uint64_t now) {
  Move& move = *lane.move;
  std::optional<UnsentBytes::Answer> answer = services_.unsent->Take(move.token);
  if (!answer) {
    if (now <= move.opening.deadline + kAskNs) return;
    services_.unsent->Forget(move.token);  // it hangs
    answer.emplace();
  }
  // Before the stream its connection may still hold how it began.
  const uint64_t stream = lane.written - lane.began;
  const uint64_t greeting = answer->bytes > stream ? answer->bytes - stream : 0;
  if (!answer->file.valid() || greeting > sizeof(LaneHello) + sizeof(LaneResume) || !ReadBytes(move, *answer, greeting)) {
    sockaddr_storage peer;
    socklen_t length = sizeof peer;
    if (getpeername(lane.fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) {  // they were taken, and got lost
      lost_.store(true, std::memory_order_relaxed);
      attention_.fetch_add(1, std::memory_order_release);
    }
    return GiveUpMove(lane, "the agent does not take its bytes from the kernel", now);
  }
  move.resume = {kResumeMagic, 0, lane.written - move.bytes};
  move.step = Move::Step::kSend;
  move.opening.deadline = now + 2 * kMoveAfterNs;
  SendBytes(lane, now);
}

void SendComm::SendBytes(Lane& lane, uint64_t now) {
  Move& move = *lane.move;
  ssize_t sent = 0;
  while (move.resume_sent < sizeof move.resume || move.sent < move.bytes) {
    if (move.resume_sent < sizeof move.resume) {
      sent = send(move.fd.get(), reinterpret_cast<const char*>(&move.resume) + move.resume_sent, sizeof move.resume - move.resume_sent,
                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) move.resume_sent += static_cast<uint32_t>(sent);
    } else {
      sent = send(move.fd.get(), move.data.get() + move.sent, move.bytes - move.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) move.sent += static_cast<uint64_t>(sent);
    }
    if (sent <= 0) break;
    move.opening.deadline = now + 2 * kMoveAfterNs;
  }
  if (move.resume_sent == sizeof move.resume && move.sent == move.bytes) return EndMove(lane, now);
  const bool broken = sent == 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS);
  if (!broken && now > move.opening.deadline) {  // a receiver that does not read answers
    abi::LaneTelemetry ignored{};
    if (!SampleTcpInfo(move.fd.get(), listener_.family, abi::Direction::kSend, now, &ignored).unanswered) {
      move.opening.deadline = now + kMoveAfterNs;
    }
  }
  if (broken || now > move.opening.deadline) GiveUpMove(lane, "the new connection fell silent too", now);
}

void SendComm::EndMove(Lane& lane, uint64_t now) {
  Move& move = *lane.move;
  const uint16_t from = lane.port;
  const uint64_t wire_bytes = lane.telemetry->wire_bytes.load(std::memory_order_relaxed);
  const uint64_t retransmits = lane.telemetry->retransmits.load(std::memory_order_relaxed);
  Fd(lane.fd).Reset();
  lane.fd = move.fd.Release();
  lane.port = LocalAddress(lane.fd).port;
  lane.began = move.resume.position;
  SetTrafficClass(lane.fd, listener_.family, lane.tos);  // it may have changed meanwhile
  lane.pacing_bps = 0;
  lane.moment = {};
  lane.answered_ns = lane.move_at_ns = lane.move_pause_ns = 0;
  ++lane.moves;
  Log(nccl::kLogWarn, "lane to rank %d at %s from port %u was silent for %.1f s: it goes on from port %u, %llu bytes are sent again",
      recorder_.slot().peer_rank, listener_.Text().c_str(), from, static_cast<double>(move.silent_ns) / 1e9, lane.port,
      static_cast<unsigned long long>(move.bytes));
  recorder_.slot().silent_ms[Index(lane)].store(0, std::memory_order_relaxed);
  lane.telemetry->bytes.store(0, std::memory_order_relaxed);  // the data thread keeps off
  SampleTcpInfo(lane.fd, listener_.family, abi::Direction::kSend, now, lane.telemetry);  // or the new port would be said to have sent it all
  SetLaneState(lane, abi::LaneState::kActive);  // of another port now
  const uint64_t silent_ns = move.silent_ns;
  lane.move.reset();
  Unpark(lane);
  attention_.fetch_add(1, std::memory_order_release);
  TellSilence(from, silent_ns, wire_bytes, retransmits, now);
}

/// The port that was left stays listed for a while, as a lane that failed and has been silent: the controller may not have heard of it.
void SendComm::TellSilence(uint16_t port, uint64_t silent_ns, uint64_t wire_bytes, uint64_t retransmits, uint64_t now) {
  const auto slot = std::ranges::find_if(lanes_, [this](const Lane& lane) {
    const abi::LaneState state = lane.state.load(std::memory_order_acquire);
    return state == abi::LaneState::kNone || (state == abi::LaneState::kFailed && lane.told_until_ns == 0 && !Wanted(lane));
  });
  if (slot == lanes_.end()) return;
  slot->port = port;
  slot->failed_epoch = entry_.epoch();
  slot->told_until_ns = now + kTellSilenceNs;
  slot->telemetry->bytes.store(0, std::memory_order_relaxed);
  slot->telemetry->wire_bytes.store(wire_bytes, std::memory_order_relaxed);
  slot->telemetry->retransmits.store(retransmits, std::memory_order_relaxed);
  recorder_.slot().silent_ms[Index(*slot)].store(static_cast<uint32_t>(std::min<uint64_t>(silent_ns / 1'000'000, UINT32_MAX)), std::memory_order_relaxed);
  SetLaneState(*slot, abi::LaneState::kFailed);
}

/// Whether this process is a forked child: then the connections are its parent's too, and what is said on them is not its to say.
bool SendComm::IsParents() const { return services_.telemetry.process().pid != getpid(); }

/// At the end of the flow: what was taken from the kernel is sent, as the kernel would have.
void SendComm::FinishMoves() {
  const auto under_way = [](const Lane& lane) {
    return lane.move && (lane.move->data || lane.move->step == Move::Step::kAsk);
  };
  if (IsParents() || std::ranges::none_of(lanes_, under_way)) return;
  for (Lane& lane : lanes_) lane.move_at_ns = lane.move_pause_ns = 0;
  for (int ms = 0; ms < kLastMovesMs && error_ == nccl::kSuccess && std::ranges::any_of(lanes_, under_way); ++ms) {
    for (Lane& lane : lanes_) {
      if (under_way(lane)) DriveMove(lane, NowNs());
    }
    poll(nullptr, 0, 1);
  }
  for (Lane& lane : lanes_) {
    if (!under_way(lane)) continue;
    if (lane.move->step == Move::Step::kAsk) services_.unsent->Forget(lane.move->token);
    Log(nccl::kLogWarn, "%llu bytes of a silent lane to rank %d at %s are lost: the flow has ended", static_cast<unsigned long long>(lane.move->bytes),
        recorder_.slot().peer_rank, listener_.Text().c_str());
  }
}

}  // namespace weft::net

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
#include <optional>
#include <utility>

#include "netplugin/log.h"
#include "netplugin/tcp/send_comm.h"

namespace weft::net {

/// Begins a move when the path is silent, and ends one that has gone no further when it answers again.
void SendComm::WatchSilence(Lane& lane, uint64_t silent_ns, uint64_t now) {
  if (silent_ns == 0) {
    if (lane.move && lane.move->step == Move::Step::kOpen && !lane.move->file.valid()) lane.move.reset();
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
  if (lane.move->file.valid()) {
    lane.move->step = Move::Step::kOpen;
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
      move.step = move.file.valid() ? Move::Step::kSend : Move::Step::kPark;
      move.sent = move.resume_sent = 0;
      move.opening.deadline = now + 2 * kMoveAfterNs;
      if (move.step == Move::Step::kSend) return SendBytes(lane, now);
      [[fallthrough]];
    }
    case Move::Step::kPark:
      parked_.fetch_or(1u << Index(lane), std::memory_order_seq_cst);
      if (inside_.load(std::memory_order_seq_cst)) return;  // it will not use this one again
      move.token = RandomBits();
      if (!services_.unsent->Ask(lane.fd, move.token)) return GiveUpMove(lane, "no agent takes its bytes from the kernel", now);
      move.step = Move::Step::kAsk;
      return;
    case Move::Step::kAsk:
      return TakeBytes(lane, now);
    case Move::Step::kSend:
      return SendBytes(lane, now);
  }
}

void SendComm::TakeBytes(Lane& lane, uint64_t now) {
  Move& move = *lane.move;
  std::optional<UnsentBytes::Answer> answer = services_.unsent->Take(move.token);
  if (!answer) return;
  if (!answer->file.valid() || answer->bytes > lane.written) {
    return GiveUpMove(lane, "the agent does not take its bytes from the kernel (its log says why)", now);
  }
  move.file = std::move(answer->file);
  move.bytes = answer->bytes;
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
      char part[16384];  // and no sendfile(): that raises SIGPIPE
      const ssize_t got = pread(move.file.get(), part, std::min<uint64_t>(sizeof part, move.bytes - move.sent), static_cast<off_t>(move.sent));
      sent = got <= 0 ? 0 : send(move.fd.get(), part, static_cast<size_t>(got), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) move.sent += static_cast<uint64_t>(sent);
    }
    if (sent <= 0) break;
    move.opening.deadline = now + 2 * kMoveAfterNs;
  }
  if (move.resume_sent == sizeof move.resume && move.sent == move.bytes) return EndMove(lane);
  const bool broken = sent == 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS);
  if (broken || now > move.opening.deadline) GiveUpMove(lane, "the new connection fell silent too", now);
}

void SendComm::EndMove(Lane& lane) {
  Move& move = *lane.move;
  const uint16_t from = lane.port;
  Fd(lane.fd).Reset();
  lane.fd = move.fd.Release();
  lane.port = LocalAddress(lane.fd).port;
  lane.pacing_bps = 0;
  lane.moment = {};
  lane.answered_ns = lane.move_at_ns = lane.move_pause_ns = 0;
  ++lane.moves;
  Log(nccl::kLogWarn, "lane to rank %d at %s from port %u was silent for %.1f s: it goes on from port %u, %llu bytes are sent again",
      recorder_.slot().peer_rank, listener_.Text().c_str(), from, static_cast<double>(move.silent_ns) / 1e9, lane.port,
      static_cast<unsigned long long>(move.bytes));
  recorder_.slot().silent_ms[Index(lane)].store(0, std::memory_order_relaxed);
  recorder_.lane(Index(lane)).bytes.store(0, std::memory_order_relaxed);  // the data thread keeps off
  SetLaneState(lane, abi::LaneState::kActive);  // of another port now
  lane.move.reset();
  Unpark(lane);
  attention_.fetch_add(1, std::memory_order_release);
}

/// At the end of the flow: what was taken from the kernel is sent, as the kernel would have.
void SendComm::FinishMoves() {
  const auto under_way = [](const Lane& lane) {
    return lane.move && (lane.move->file.valid() || lane.move->step == Move::Step::kAsk);
  };
  for (int ms = 0; ms < kLastMovesMs && error_ == nccl::kSuccess && std::ranges::any_of(lanes_, under_way); ++ms) {
    for (Lane& lane : lanes_) {
      if (under_way(lane)) DriveMove(lane, NowNs());
    }
    poll(nullptr, 0, 1);
  }
}

}  // namespace weft::net

#include "netplugin/tcp/recv_comm.h"

#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "netplugin/log.h"
#include "netplugin/tcp/copy_in_order.h"
#include "netplugin/tcp/listener.h"
#include "netplugin/tcp/receive_stamp.h"

namespace weft::net {

RecvComm::RecvComm(const Services& services, Setup setup)
    : services_(services),
      flow_(setup.identity.flow),
      family_(setup.identity.peer.family),
      peer_(setup.identity.peer),
      listener_(std::move(setup.listener)),
      recorder_(services.telemetry.Open(setup.identity)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  for (RecvRequest& request : requests_) {
    request.comm = this;
    for (RecvPart& part : request.parts) part.owner = &request;
  }
  Attach(0, &setup.lane0, setup.tos, false);
  services_.background.Add(this);
  listener_->AddFlow(this);
}

RecvComm::~RecvComm() {
  listener_->RemoveFlow(this);
  services_.background.Remove(this);
  for (Lane& lane : lanes_) Fd(lane.fd).Reset();
  services_.telemetry.Close(&recorder_.slot());
}

/// That the peer has gone is told by test: ranks that leave with requests in flight, each in its own time, may post and
/// close without an error, as over NCCL's own transports.
int RecvComm::Receive(void* data, uint64_t size, int32_t tag, Request** request, bool polled) {
  *request = nullptr;
  RecvRequest& slot = requests_[next_ % nccl::kMaxRequests];
  if (error_ != nccl::kSuccess && (error_ != nccl::kRemoteError || slot.taken)) [[unlikely]] return error_;
  if (!slot.taken) {
    if (tag != tag_) [[unlikely]] NoteTag(tag);
    slot.parts[0].Post(data, size, tag, polled);
    slot.count = 1;
    Take(slot, size);
    *request = &slot;
  }
  return AfterPost(request);
}

void RecvComm::Take(RecvRequest& slot, uint64_t size) {
  slot.size = size;
  slot.posted_ns = NowNs();
  slot.sequence = next_++;
  slot.taken = true;
  slot.done = false;
  slot.left = slot.count;
  ++pending_;
  if (matcher_) [[unlikely]] PostByTag(slot);
}

int RecvComm::AfterPost(Request** request) {
  if (error_ == nccl::kSuccess) Progress();
  if (error_ == nccl::kSuccess || (error_ == nccl::kRemoteError && *request != nullptr)) return nccl::kSuccess;
  *request = nullptr;
  return error_;
}

int RecvComm::Test(Request* request, int* done, int* size) {
  if (!request->done && error_ == nccl::kSuccess) Progress();
  *done = request->done ? 1 : 0;
  if (!request->done) return error_;
  if (size) {
    const auto& slot = *static_cast<RecvRequest*>(request);
    for (uint8_t i = 0; i < slot.count; ++i) size[i] = static_cast<int>(slot.parts[i].total);
  }
  request->taken = false;
  return nccl::kSuccess;
}

void RecvComm::AddTo(PollList* fds) {
  uint32_t left = error_ == nccl::kSuccess ? open_.load(std::memory_order_acquire) : 0;
  for (; left != 0; left &= left - 1) {
    Lane& lane = lanes_[static_cast<size_t>(std::countr_zero(left))];
    if (lane.next.valid()) fds->Add(lane.next.get(), POLLIN);
    if (HoldsAnother(lane) || lane.broken) continue;
    // Of a payload not every segment: the rest, or enough that a wake-up pays.
    const int least = lane.in_payload ? static_cast<int>(std::clamp<uint64_t>(lane.left, 1, kLeastAwaited)) : 1;
    if (least != lane.least_awaited &&
        setsockopt(lane.fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least) == 0) lane.least_awaited = least;
    if (least > 1) awaits_ = true;
    fds->Add(lane.fd, POLLIN);
  }
}

void RecvComm::Progress() {
  if (const uint32_t moving = offered_.load(std::memory_order_acquire) | following_; moving != 0) [[unlikely]] FollowMoves(moving);
  const uint32_t open = open_.load(std::memory_order_acquire);
  const uint32_t readable = ReadableLanes(open);
  if (matcher_) [[unlikely]] matcher_->Notify((open & 1) ? lanes_[0].fd : -1);
  uint64_t moved = 0;
  for (uint32_t left = open; left != 0 && error_ == nccl::kSuccess; left &= left - 1) {
    const int index = std::countr_zero(left);
    moved += Pump(lanes_[index], (readable >> index & 1) != 0);
  }
  if (moved > 0 || finished_count_ > 0) {
    const uint64_t now = NowNs();
    if (recorder_.waiting()) recorder_.WaitEnds(recorder_.slot().wait_peer_ns, Came(now));
    recorder_.Active(now, moved);
    for (uint32_t i = 0; i < finished_count_; ++i) {
      recorder_.Completed(finished_[i]->Received(), finished_[i]->posted_ns, now);
      finished_[i]->done = true;
    }
    finished_count_ = 0;
    if (pending_ > 0) recorder_.WaitBegins(now);  // for the rest, by whoever sleeps until it comes too
  } else if (pending_ > 0 && error_ == nccl::kSuccess) {
    const uint32_t left = open_.load(std::memory_order_relaxed);
    if (left == 0) Fail(nccl::kRemoteError, "the peer closed the connection");
    // Not while a lane is there that was attached a moment ago.
    if (left != 0 && (lane_lost_ || matcher_) && (left & ~open) == 0 && NothingCanCome(left)) {
      Fail(nccl::kRemoteError, lane_lost_ ? "a lane broke with a part of a message" : "a message was left out");
    }
    if (!recorder_.waiting()) recorder_.WaitBegins(NowNs());
  }
}

/// Whether the next chunk is of a message that no receive is posted for: the lane stays unread, whatever comes.
bool RecvComm::HoldsAnother(const Lane& lane) const {
  const uint32_t staged = lane.end - lane.begin;
  if (lane.in_payload || staged < sizeof(ChunkHeader)) return false;
  if (staged < lane.header.StagedBytes()) return false;  // it was not looked at
  // To be read in the next round.
  return !matcher_ || !matcher_->MayTake(lane.header.sequence);
}

/// Whether the next chunk of each open lane belongs to a message that is not posted yet. Chunks of one lane come in the
/// order of their messages: then a posted message that is not whole never will be. Where tags decide, a lane may also
/// wait for the tag of an earlier message, which then is the next chunk of another lane.
bool RecvComm::NothingCanCome(uint32_t open) const {
  for (uint32_t left = open; left != 0; left &= left - 1) {
    if (!HoldsAnother(lanes_[static_cast<size_t>(std::countr_zero(left))])) return false;
  }
  return true;
}

/// One lane is simply read; of several, one system call says which have something.
uint32_t RecvComm::ReadableLanes(uint32_t open) {
  if ((open & (open - 1)) == 0 || awaits_) return open;
  epoll_event events[abi::kMaxLanes];
  const int count = epoll_wait(epoll_.get(), events, abi::kMaxLanes, 0);
  uint32_t readable = 0;
  for (int i = 0; i < count; ++i) readable |= 1u << events[i].data.u32;
  return readable;
}

uint64_t RecvComm::Pump(Lane& lane, bool readable) {
  uint64_t moved = 0;
  int reads = 0;
  while (error_ == nccl::kSuccess) {
    if (!lane.in_payload) {
      const Parsed parsed = Parse(lane);
      if (parsed == Parsed::kStop) break;
      if (parsed == Parsed::kChunkDone) continue;
    }
    if (!readable || lane.broken) {
      NoteEmpty(lane);
      break;
    }
    if (reads++ == kReadsPerCall) break;
    switch (Read(lane, &moved)) {
      case ReadResult::kMore:
        break;
      case ReadResult::kDrained:
        readable = false;
        break;
      case ReadResult::kStop:
        return moved;
    }
    if (lane.in_payload && lane.left == 0) ChunkDone(lane);
  }
  return moved;
}

/// Looks at what the stage holds between chunks.
RecvComm::Parsed RecvComm::Parse(Lane& lane) {
  const uint32_t passed = std::min(lane.padding, lane.end - lane.begin);
  lane.begin += passed;
  lane.padding -= passed;
  if (lane.end - lane.begin < sizeof(ChunkHeader)) return Parsed::kNeedBytes;
  ChunkHeader& header = lane.header;
  std::memcpy(&header, &lane.stage[lane.begin], sizeof header);
  if (header.magic != kChunkMagic) {
    Fail(nccl::kInternalError, "a chunk header has the wrong magic number");
    return Parsed::kStop;
  }
  if (header.padding > (header.length < kPaddedBytes ? kMostPadding : kLineBytes - 1)) {
    Fail(nccl::kInternalError, "a chunk header has more padding than any sender gives");
    return Parsed::kStop;
  }
  if (lane.end - lane.begin < header.StagedBytes()) return Parsed::kNeedBytes;
  if (header.flags & kChunkCloseLane) {
    CloseLane(lane);
    return Parsed::kStop;
  }
  if (!std::exchange(lane.metered, true)) MeterArrival(lane);  // when it comes, and not when it is posted
  RecvPart* part = header.tag == tag_ && header.flags == 0 ? FindPart(header) : FindByTag(header);
  if (!part) return Parsed::kStop;
  lane.metered = false;
  lane.begin += sizeof header;
  if (header.tos != lane.tos) {
    SetTrafficClass(lane.fd, family_, header.tos);
    lane.tos = header.tos;
  }
  lane.in_payload = true;
  lane.part = part;
  lane.to = part->data + header.offset;
  const uint64_t staged = std::min<uint64_t>(header.length, lane.end - lane.begin);
  if (part->polled) [[unlikely]] {
    CopyInOrder(lane.to, &lane.stage[lane.begin], staged);
  } else if (staged > 0) {
    std::memcpy(lane.to, &lane.stage[lane.begin], staged);
  }
  lane.begin += static_cast<uint32_t>(staged);
  lane.padding = header.padding;
  lane.to += staged;
  lane.left = header.length - staged;
  if (lane.left > 0) return Parsed::kPayload;
  ChunkDone(lane);
  return Parsed::kChunkDone;
}

void RecvComm::MeterArrival(Lane& lane) {
  if (lane.header.sent == 0) return;
  if (!std::exchange(lane.stamped, true)) AskReceiveStamps(lane.fd);
  lane.meter.Chunk(lane.header.sent, lane.came_ns != 0 ? lane.came_ns : MeterNs(), &recorder_.lane(Index(lane)));
}

void RecvComm::NoteRead(Lane& lane, uint64_t bytes, bool ended) {
  lane.position += bytes;
  lane.ended = ended;
  lane.unread += bytes;
  if (lane.unread > window_.load(std::memory_order_relaxed)) lane.meter.Forget();
  if (ended) lane.unread = 0;
  if (lane.came_ns != 0 && recorder_.waiting()) came_ns_ = std::min(came_ns_, lane.came_ns);
}

/// When the first came of what is read at `now`, as NowNs(); at the latest then, and then where it is not known. A process that has lost
/// its core, or is stopped, does not wait for its peer meanwhile.
uint64_t RecvComm::Came(uint64_t now) {
  const uint64_t came_ns = std::exchange(came_ns_, kNotKnown);
  if (came_ns == kNotKnown) return now;
  const uint64_t meter_ns = MeterNs();
  return now - std::min(now, meter_ns - std::min(meter_ns, came_ns));
}

/// Nothing is there to be read, and all that was read was looked at.
void RecvComm::NoteEmpty(Lane& lane) {
  lane.unread = 0;
  if (const uint64_t came_ns = std::exchange(lane.came_ns, 0); came_ns != 0) lane.meter.Ended(lane.position, came_ns);
}

/// The buffer that a chunk belongs to; nullptr if its message is not posted yet, or after Fail() if the header cannot be
/// true.
RecvPart* RecvComm::FindPart(const ChunkHeader& header) {
  // Not posted yet: the sequence is at or after the next one, modulo 2^32.
  if (static_cast<int32_t>(header.sequence - next_) >= 0) return nullptr;
  RecvRequest& request = requests_[header.sequence % nccl::kMaxRequests];
  if (!request.taken || request.sequence != header.sequence) {
    Fail(nccl::kInternalError, "a chunk belongs to a message that is complete");
    return nullptr;
  }
  return Accept(header, &request.parts[0]);
}

void RecvComm::TooLong(const RecvPart& part) {
  Log(nccl::kLogWarn, "message %u of %llu bytes is longer than its receive of %llu bytes", part.sequence,
      static_cast<unsigned long long>(part.total), static_cast<unsigned long long>(part.size));
  Fail(nccl::kInternalError, "the sent message is longer than the posted receive");
}

/// Counts the chunk to its message: `part`, or nullptr after Fail().
RecvPart* RecvComm::Accept(const ChunkHeader& header, RecvPart* part) {
  if (!part->started) {
    part->started = true;
    part->sequence = header.sequence;
    part->total = header.total;
    if (header.total > part->size) {
      TooLong(*part);
      return nullptr;
    }
  } else if (part->assigned == part->total) {
    Fail(nccl::kInternalError, "a chunk belongs to a message that is complete");
    return nullptr;
  }
  if (header.total != part->total || header.offset > header.total || header.length > header.total - header.offset ||
      header.length > part->total - part->assigned) {
    Fail(nccl::kInternalError, "a chunk lies outside its message");
    return nullptr;
  }
  // Chunks on several lanes arrive at the same time: all of them count from the start, or two that claim the same bytes
  // would complete the message while one is still being written.
  part->assigned += header.length;
  return part;
}

/// Decides whether acknowledgements wait.
void RecvComm::CountChunk(Lane& lane) {
  if (lane.header.length > kShortChunk || services_.telemetry.observed.load(std::memory_order_relaxed)) {
    if (lane.short_chunks >= kShortChunks) SetLateAcknowledgements(lane.fd, false);
    lane.short_chunks = 0;
  } else if (++lane.short_chunks % kReminder == kShortChunks) {
    // Said again now and then: the kernel leaves that mode by itself after a pause, and nothing tells.
    SetLateAcknowledgements(lane.fd, true);
  }
}

void RecvComm::ChunkDone(Lane& lane) {
  lane.in_payload = false;
  CountChunk(lane);
  RecvPart* part = lane.part;
  part->received += lane.header.length;
  if (part->received < part->total) return;
  if (matcher_) [[unlikely]] part = matcher_->Complete(part);
  if (part) PartDone(*part);
}

void RecvComm::PartDone(const RecvPart& part) {
  if (--part.owner->left > 0) return;
  finished_[finished_count_++] = part.owner;
  --pending_;
}

ssize_t RecvComm::Receive(Lane& lane, iovec* parts, size_t count) {
  if (lane.stamped) {
    if (lane.ended) NoteEmpty(lane);
    return ReceiveStamped(lane.fd, parts, count, &lane.came_ns);
  }
  // The cheaper call, and the one that most often finds nothing.
  if (count == 1) return recv(lane.fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  msghdr message{.msg_iov = parts, .msg_iovlen = count};
  return recvmsg(lane.fd, &message, MSG_DONTWAIT);
}

RecvComm::ReadResult RecvComm::Read(Lane& lane, uint64_t* moved) {
  if (lane.skip > 0) [[unlikely]] return Skip(lane);
  if (lane.begin > 0) {
    std::memmove(lane.stage.get(), &lane.stage[lane.begin], lane.end - lane.begin);
    lane.end -= lane.begin;
    lane.begin = 0;
  }
  // The last chunk's length is the best guess at the next one's.
  uint64_t asked = (lane.header.length <= kStagedChunk ? kStageBytes : kStageRead) - lane.end;
  const bool in_order = lane.in_payload && lane.part->polled;
  iovec parts[2];
  size_t count = 0;
  if (in_order) [[unlikely]] {
    asked = kStageBytes - lane.end;
  } else if (lane.in_payload) {
    if (lane.left >= kLongPayload) asked = lane.padding + sizeof(ChunkHeader);
    parts[count++] = {lane.to, lane.left};
  }
  parts[count++] = {&lane.stage[lane.end], asked};
  if (count == 2) asked += lane.left;
  const ssize_t got = Receive(lane, parts, count);
  if (got <= 0) [[unlikely]] return ReadFailed(lane, got);
  const auto bytes = static_cast<uint64_t>(got);
  const bool drained = bytes < asked;
  if (lane.stamped) NoteRead(lane, bytes, drained);
  Bump(recorder_.lane(Index(lane)).bytes, bytes);
  lane.taken += bytes;
  const uint64_t payload = lane.in_payload ? std::min(bytes, lane.left) : 0;
  if (in_order) [[unlikely]] {  // nothing else is staged within a payload
    CopyInOrder(lane.to, lane.stage.get(), payload);
    lane.begin = static_cast<uint32_t>(payload);
    lane.end += static_cast<uint32_t>(payload);
  }
  lane.to += payload;
  lane.left -= payload;
  lane.end += static_cast<uint32_t>(bytes - payload);
  *moved += bytes;
  return drained ? ReadResult::kDrained : ReadResult::kMore;
}

void RecvComm::Fail(int code, const char* what) {
  if (error_ != nccl::kSuccess) return;  // said once
  error_ = code;
  Log(nccl::kLogWarn, "receive from rank %d at %s: %s", recorder_.slot().peer_rank, peer_.Text().c_str(), what);
}

}  // namespace weft::net

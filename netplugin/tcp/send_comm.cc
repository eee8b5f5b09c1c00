#include "netplugin/tcp/send_comm.h"

#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "netplugin/log.h"

namespace weft::net {

SendComm::SendComm(const Services& services, Setup setup)
    : services_(services),
      flow_(setup.identity.flow),
      rank_(setup.identity.rank),
      cookie_(setup.cookie),
      listener_(setup.listener),
      local_(setup.identity.local),
      default_tos_(setup.traffic_class & 0xFC),
      recorder_(services.telemetry.Open(setup.identity)),
      tos_(default_tos_) {
  for (SendRequest& request : requests_) request.comm = this;
  for (Lane& lane : lanes_) lane.telemetry = &recorder_.lane(Index(lane));
  Lane& lane = lanes_[0];
  lane.fd = setup.lane0.Release();
  lane.port = local_.port;
  lane.tos = default_tos_;
  lane.weight = 1;
  weighted_[0] = 0;
  weighted_count_ = 1;
  recorder_.lane(0).source_port.store(lane.port, std::memory_order_relaxed);
  recorder_.lane(0).weight.store(1, std::memory_order_relaxed);
  SetLaneState(lane, abi::LaneState::kActive);
  services_.policies.AddReader(&generation_in_use_);
  services_.background.Add(this);
}

SendComm::~SendComm() {
  services_.background.Remove(this);
  FinishMoves();
  services_.policies.RemoveReader(&generation_in_use_);
  if (tags_ && error_ == nccl::kSuccess && lanes_[0].state.load(std::memory_order_acquire) == abi::LaneState::kActive) {
    services_.background.Linger(Fd(std::exchange(lanes_[0].fd, -1)));  // the receiver may still tell what it posts
  }
  for (Lane& lane : lanes_) Fd(lane.fd).Reset();
  services_.telemetry.Close(&recorder_.slot());
}

/// That the peer has gone is told by test: ranks that leave with requests in flight, each in its own time, may post and
/// close without an error, as over NCCL's own transports.
int SendComm::Send(const void* data, uint64_t size, int32_t tag, Request** request) {
  *request = nullptr;
  SendRequest& slot = requests_[next_ % nccl::kMaxRequests];
  if (error_ != nccl::kSuccess && (error_ != nccl::kRemoteError || slot.taken)) [[unlikely]] return error_;
  if (!slot.taken && (tag == tag_ || CountTag(tag))) {
    slot.size = size;
    slot.tag = tag;
    slot.flags = tags_ ? kChunkTagged : 0;
    slot.posted_ns = NowNs();
    slot.sequence = next_++;
    slot.taken = true;
    slot.done = slot.all_dealt = false;
    slot.data = static_cast<const char*>(data);
    slot.dealt = 0;
    slot.outstanding = 0;
    *request = &slot;
  }
  if (error_ == nccl::kSuccess) Progress();
  if (error_ == nccl::kSuccess || (error_ == nccl::kRemoteError && *request != nullptr)) return nccl::kSuccess;
  *request = nullptr;
  return error_;
}

void SendComm::AddTo(PollList* fds) {
  const uint32_t parked = Enter();
  for (uint32_t left = error_ == nccl::kSuccess ? queued_lanes_ & ~parked : 0; left != 0; left &= left - 1) {
    fds->Add(lanes_[static_cast<size_t>(std::countr_zero(left))].fd, POLLOUT);
  }
  // All queues are empty and more is to be dealt: at once.
  const bool dealt = deal_ == next_ || gate_.armed() || error_ != nccl::kSuccess;
  if (queued_lanes_ == 0 && !dealt && weighted_count_ > 0 && (parked >> weighted_[0] & 1) == 0) fds->Add(lanes_[weighted_[0]].fd, POLLOUT);
  Leave();
}

int SendComm::Test(Request* request, int* done, int* size) {
  if (!request->done) {
    if (error_ != nccl::kSuccess) return error_;
    Progress();
  }
  // A message that the kernel took before another lane broke counts as sent, as it would have been a moment earlier.
  *done = request->done ? 1 : 0;
  if (!request->done) return error_;
  if (size) *size = static_cast<int>(request->size);
  request->taken = false;
  return nccl::kSuccess;
}

void SendComm::Progress() {
  // All that policy costs a message: three loads and compares, and one for the gate.
  const PolicyMapping* mapping = services_.policies.current();
  const uint64_t epoch = mapping->table().epoch.load(std::memory_order_acquire);
  const uint32_t attention = attention_.load(std::memory_order_acquire);
  if (epoch != seen_epoch_ || mapping != seen_mapping_ || attention != seen_attention_) {
    ApplyPolicy(*mapping, epoch, attention);
  }
  if (!gate_.armed() || GateOpens(*mapping)) Deal();
  uint64_t moved = 0;
  bool stuck = false;
  if (queued_lanes_ != 0) {
    uint32_t left = queued_lanes_ & ~Enter();
    stuck = left != queued_lanes_;
    for (; left != 0; left &= left - 1) {
      Lane& lane = lanes_[std::countr_zero(left)];
      moved += Flush(lane);
      stuck = stuck || lane.queued > 0;
    }
    Leave();
  }
  if (moved > 0) {
    const uint64_t now = NowNs();
    if (recorder_.waiting()) recorder_.WaitEnds(recorder_.slot().wait_wire_ns, now);
    recorder_.Active(now, moved);
    for (uint32_t i = 0; i < finished_count_; ++i) {
      recorder_.Completed(finished_[i]->size, finished_[i]->posted_ns, now);
      finished_[i]->done = true;
    }
    finished_count_ = 0;
  } else if (stuck && !recorder_.waiting()) {
    recorder_.WaitBegins(NowNs());
  }
}

SendComm::Lane* SendComm::NextLane() {
  Lane* best = &lanes_[weighted_[0]];
  for (uint32_t i = 1; i < weighted_count_; ++i) {
    Lane& lane = lanes_[weighted_[i]];
    if (lane.served < best->served) best = &lane;
  }
  return best;
}

void SendComm::Push(Lane& lane, const Chunk& chunk) {
  lane.queue[(lane.head + lane.queued) % kQueue] = chunk;
  ++lane.queued;
  queued_lanes_ |= 1u << Index(lane);
}

/// The largest chunk. Until a policy names lanes there is one, and nothing to deal: long chunks are read in fewer calls.
uint32_t SendComm::ChunkBytes() const {
  const bool dealing = applied_.lanes[0].source_port != 0;
  const uint32_t largest = dealing ? services_.environment.chunk_bytes : std::max(kLoneLaneChunk, services_.environment.chunk_bytes);
  return largest < kCutBytes ? largest : largest / kCutBytes * kCutBytes;
}

/// What a lane gets of a message at its turn. Whoever waits for a message waits for its slowest part: each lane gets its share of
/// every one, in one piece, as pieces of equal length can't come in the ratio of the weights. Cut between lines of protocol
/// LL128, as each holds the flag that says that it is there.
uint64_t SendComm::PartOf(const SendRequest& request, const Lane& lane) const {
  double weights = 0;
  for (uint32_t i = 0; i < weighted_count_; ++i) weights += lanes_[weighted_[i]].weight;
  const double lines = static_cast<double>(request.size) * lane.weight / weights / kCutBytes;
  const uint64_t part = std::max<uint64_t>(kLeastPart, static_cast<uint64_t>(lines + 0.5) * kCutBytes);
  const uint64_t left = request.size - request.dealt;
  return left < part + kLeastPart / 2 ? left : part;  // a rest that is not worth a chunk goes along
}

/// Gives bytes to lanes in the order of their weights, strictly: when the lane whose turn it is has a full queue, the
/// others do not get its share.
void SendComm::Deal() {
  const uint32_t largest = ChunkBytes();
  const uint8_t tos = tos_.load(std::memory_order_relaxed);
  while (deal_ != next_) {
    SendRequest& request = requests_[deal_ % nccl::kMaxRequests];
    Lane& lane = *NextLane();
    if (lane.queued == kQueue) return;
    const uint64_t part = weighted_count_ > 1 ? PartOf(request, lane) : largest;
    const auto length = static_cast<uint32_t>(std::min({uint64_t{largest}, part, request.size - request.dealt}));
    const auto padding = static_cast<uint16_t>(-length % kLineBytes);
    Push(lane, {{kChunkMagic, request.flags, tos, padding, request.sequence, length, request.dealt, request.size, request.tag, 0},
                request.data + request.dealt,
                &request});
    lane.served += (sizeof(ChunkHeader) + length + padding) / static_cast<double>(lane.weight);
    request.dealt += length;
    ++request.outstanding;
    if (request.dealt == request.size) {
      request.all_dealt = true;
      ++deal_;
    }
  }
}

/// While an agent looks: says in the headers that the kernel is about to be given when that was. Where it took less than it
/// was offered they are written anew.
void SendComm::StampChunks(Lane& lane) {
  const uint32_t tick = services_.telemetry.observed.load(std::memory_order_relaxed) ? SentTick(MeterNs()) : 0;
  if (tick == 0 && lane.stamp_from != 0) return;
  for (uint32_t i = lane.head_sent > 0 ? 1 : 0; i < lane.queued; ++i) {
    ChunkHeader& header = lane.queue[(lane.head + i) % kQueue].header;
    header.sent = header.length >= kMeteredBytes ? tick : 0;
  }
  lane.stamp_from = tick != 0 && lane.queued > 1 ? 0 : kMeteredBytes;
}

/// One system call for what the lane holds.
ssize_t SendComm::Write(Lane& lane) {
  Chunk& first = lane.queue[lane.head];
  if (lane.queued == 1 && lane.head_sent == 0 && first.header.length <= kEagerBytes) {
    // One piece costs the kernel less than two, by more than copying so little.
    char whole[sizeof first.header + kEagerBytes + kLineBytes];
    const size_t bare = sizeof first.header + first.header.length;
    // Where others are in flight nobody waits for this one alone, and the bytes would only cost.
    if (bare < kPaddedBytes && in_flight.requests() == 0) first.header.padding = static_cast<uint16_t>(kPaddedBytes - bare);
    std::memset(whole + bare, 0, first.header.padding);
    std::memcpy(whole, &first.header, sizeof first.header);
    if (first.header.length > 0) std::memcpy(whole + sizeof first.header, first.payload, first.header.length);
    return send(lane.fd, whole, bare + first.header.padding, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (first.header.length >= lane.stamp_from) StampChunks(lane);  // those behind a short one do not say when
  static constexpr char kPadding[kMostPadding] = {};
  iovec parts[3 * kQueue];
  uint32_t count = 0;
  uint64_t skip = lane.head_sent;
  for (uint32_t i = 0; i < lane.queued; ++i) {
    Chunk& chunk = lane.queue[(lane.head + i) % kQueue];
    if (skip < sizeof chunk.header) {
      parts[count++] = {reinterpret_cast<char*>(&chunk.header) + skip, sizeof chunk.header - skip};
      skip = sizeof chunk.header;
    }
    uint64_t rest_sent = skip - sizeof chunk.header;
    if (chunk.header.length > rest_sent) {
      parts[count++] = {const_cast<char*>(chunk.payload) + rest_sent, chunk.header.length - rest_sent};
    }
    rest_sent -= std::min<uint64_t>(rest_sent, chunk.header.length);
    if (chunk.header.padding > rest_sent) {
      parts[count++] = {const_cast<char*>(kPadding), chunk.header.padding - rest_sent};
    }
    skip = 0;
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  return sendmsg(lane.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// The lanes whose connections the data thread must keep off; it may use the others until Leave(). Each of the two threads says what it wants
/// before it looks at what the other one does: sequentially consistent, or both could go on.
uint32_t SendComm::Enter() {
  inside_.store(true, std::memory_order_seq_cst);
  return parked_.load(std::memory_order_seq_cst);
}

uint64_t SendComm::Flush(Lane& lane) {
  const ssize_t sent = Write(lane);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return 0;
    const bool only_closing = !lane.queue[lane.head].request;
    if (!only_closing) {
      Fail(lane, errno);
    } else {  // it was to be given up anyway, and it holds nothing that anybody waits for
      Sent(lane, sizeof(ChunkHeader) + lane.queue[lane.head].header.padding);
    }
    return 0;
  }
  Sent(lane, static_cast<uint64_t>(sent));
  return static_cast<uint64_t>(sent);
}

/// Takes what the kernel accepted off the lane's queue.
void SendComm::Sent(Lane& lane, uint64_t bytes) {
  Bump(lane.telemetry->bytes, bytes);
  lane.written += bytes;
  lane.head_sent += bytes;
  while (lane.queued > 0) {
    Chunk& chunk = lane.queue[lane.head];
    const uint64_t bare = sizeof chunk.header + chunk.header.length, whole = bare + chunk.header.padding;
    // The receiver does not wait for what is behind a long chunk, and may be gone before that is sent.
    if (lane.head_sent < std::max<uint64_t>(bare, chunk.header.StagedBytes())) return;
    if (chunk.request && !std::exchange(chunk.counted, true) && --chunk.request->outstanding == 0 && chunk.request->all_dealt) {
      finished_[finished_count_++] = chunk.request;
    }
    if (lane.head_sent < whole) return;
    lane.head_sent -= whole;
    lane.head = (lane.head + 1) % kQueue;
    if (--lane.queued == 0) queued_lanes_ &= ~(1u << Index(lane));
    if (!chunk.request) {
      CloseLane(lane);
      return;
    }
  }
}

void SendComm::Fail(const Lane& lane, int error) {
  if (error_ != nccl::kSuccess) return;  // said once
  error_ = error == ENOMEM || error == EBADF ? nccl::kSystemError : nccl::kRemoteError;
  Log(nccl::kLogWarn, "send to rank %d at %s from port %u: %s", recorder_.slot().peer_rank, listener_.Text().c_str(),
      lane.port, std::strerror(error));
}

}  // namespace weft::net

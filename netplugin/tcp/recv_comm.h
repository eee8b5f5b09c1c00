// The receiving end of a flow: up to kMaxLanes connections, each a stream of chunks that say where they belong. A lane
// whose next chunk belongs to a message that has no receive posted yet stays unread, so that TCP holds the sender back.
// The n-th message goes to the n-th receive until receives are grouped or their tags differ (tag_matcher.h).
//
// Reading is arranged so that a steady stream costs one system call per wake-up: the rest of a payload goes straight to
// its buffer and what follows it, at least the next header, to the lane's small stage. What is polled while it is written goes
// through the stage too, and from there in order (copy_in_order.h).
//
// The kernel acknowledges a short message in the call that reads it, which costs the reader as much as the read. While
// chunks are short the lane asks it to let acknowledgements wait for a full segment, or 40 ms. The sender's kernel counts
// a lane as busy until then and its round trips as that long, so that this is left alone while an agent reads its counts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "netplugin/tcp/recv_request.h"
#include "netplugin/tcp/socket.h"
#include "netplugin/tcp/tag_matcher.h"
#include "netplugin/tcp/wire.h"
#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net {

class Listener;

class RecvComm final : public Comm, public BackgroundTask {
 public:
  struct Setup {
    Fd lane0;
    FlowIdentity identity;
    uint8_t tos = 0;
    /// Shared: the listening socket serves its listenComm and every flow that came through it, whichever lives longest.
    std::shared_ptr<Listener> listener;
  };

  RecvComm(const Services& services, Setup setup);
  ~RecvComm() override;

  uint64_t flow() const { return flow_; }

  /// irecv of one buffer: `*request` stays nullptr when the pool is full. IrecvGroup() likewise.
  int Receive(void* data, uint64_t size, int32_t tag, Request** request, bool polled = false);
  int Irecv(void* data, uint64_t size, int tag, void*, Request** request) override {
    return Receive(data, size, tag, request);
  }
  int IrecvPolled(void* data, uint64_t size, int tag, void*, Request** request) override {
    return Receive(data, size, tag, request, true);
  }
  int IrecvGroup(int n, void** data, const uint64_t* sizes, const int* tags, void**, Request** request) override;
  int Test(Request* request, int* done, int* size) override;
  void AddTo(PollList* fds) override;
  const abi::FlowSlot* slot() const override { return &recorder_.slot(); }

  /// Takes over a late lane and acknowledges it; false if lane `index` is still in use. Threads: any but the data
  /// thread.
  bool AttachLate(uint32_t index, Fd* fd, uint8_t tos);
  /// A connection that is to take over lane `index`, whose own is silent; acknowledged. False if there is no such lane. Threads: as above.
  bool Offer(uint32_t index, Fd* fd);

  void Sweep(const Tick& tick) override;

 private:
  static constexpr uint32_t kStageBytes = 49152;
  // How much of it a read between chunks asks for: all of it after chunks that fit, else little, as what is staged must
  // be copied.
  static constexpr uint32_t kStageRead = 8192;
  static constexpr uint32_t kStagedChunk = 40960;
  // With that much payload ahead a read takes only the next header along: more would have to be copied.
  static constexpr uint64_t kLongPayload = 32768;
  static constexpr uint64_t kLeastAwaited = 32768;  // bytes of a payload that end a sleep; less than any window
  static constexpr int kReadsPerCall = 4;  // test() must return soon
  static constexpr uint32_t kShortChunk = 65536;
  static constexpr uint32_t kShortChunks = 8;  // in a row, until acknowledgements wait; said again after kReminder more
  static constexpr uint32_t kReminder = 64;
  static constexpr uint64_t kLeastWindow = 32768;  // that a sender has for sure, until the kernel was asked
  static constexpr uint64_t kNotKnown = UINT64_MAX;

  struct Lane {
    int fd = -1;       // set before its bit in open_, closed and replaced by the data thread under lanes_mutex_
    Fd offered;        // the newest connection that is to take it over, until the data thread looks; under lanes_mutex_
    uint16_t port = 0;
    uint8_t tos = 0;
    uint32_t begin = 0, end = 0;  // of what the stage holds
    bool in_payload = false;
    ChunkHeader header{};
    RecvPart* part = nullptr;     // the chunk's
    uint64_t left = 0;            // payload bytes of the chunk still to come
    uint32_t padding = 0;         // bytes behind the newest chunk still to be passed over
    char* to = nullptr;
    std::unique_ptr<char[]> stage;
    uint32_t short_chunks = 0;  // in a row; from kShortChunks on acknowledgements wait
    int least_awaited = 1;       // SO_RCVLOWAT
    bool metered = false;        // the chunk whose header is staged, and not taken yet
    bool stamped = false;        // chunks have said when they were sent, and reads say when what they bring came
    // Where stamped:
    uint64_t position = 0;       // bytes of the stream that were read
    uint64_t came_ns = 0;        // the newest of them, or later (receive_stamp.h); 0: not known, or told the meter
    bool ended = false;          // nothing was behind them
    uint64_t unread = 0;         // bytes that have come while there was always something to be read
    ArrivalMeter meter;
    // On its way to another connection (recv_move.cc):
    uint64_t taken = 0;         // bytes of the stream that were read, over all its connections
    Fd next;                    // changed under lanes_mutex_
    LaneResume resume{};
    uint32_t resume_bytes = 0;  // of it that have come; under lanes_mutex_
    bool broken = false;        // nothing more comes over the old one
    uint64_t skip = 0;          // bytes of the new one that had come over the old one
  };

  // kStop: nothing to do with this lane now, or it is not ours any more.
  enum class Parsed { kPayload, kChunkDone, kNeedBytes, kStop };

  bool Attach(uint32_t index, Fd* fd, uint8_t tos, bool acknowledge);
  bool WatchLanes(uint32_t index, int fd);
  void Progress();
  uint32_t ReadableLanes(uint32_t open);
  bool HoldsAnother(const Lane& lane) const;
  bool NothingCanCome(uint32_t open) const;
  uint64_t Pump(Lane& lane, bool readable);
  Parsed Parse(Lane& lane);
  RecvPart* FindPart(const ChunkHeader& header);
  RecvPart* Accept(const ChunkHeader& header, RecvPart* part);
  void TooLong(const RecvPart& part);
  void ChunkDone(Lane& lane);
  void PartDone(const RecvPart& part);
  void Take(RecvRequest& slot, uint64_t size);
  int AfterPost(Request** request);
  void CountChunk(Lane& lane);
  void MeterArrival(Lane& lane);
  void NoteRead(Lane& lane, uint64_t bytes, bool ended);
  void NoteEmpty(Lane& lane);
  uint64_t Came(uint64_t now);
  ssize_t Receive(Lane& lane, iovec* parts, size_t count);
  // kDrained: a further read would find nothing. kStop: there was nothing, or the lane is not ours any more.
  enum class ReadResult { kMore, kDrained, kStop };
  ReadResult Read(Lane& lane, uint64_t* moved);
  ReadResult ReadFailed(Lane& lane, ssize_t got);

  // recv_move.cc: data thread.
  void FollowMoves(uint32_t lanes);
  void FollowMove(Lane& lane);
  bool ReadResume(Lane& lane);
  void DropNext(Lane& lane);
  void SwitchTo(Lane& lane);
  ReadResult Skip(Lane& lane);
  void CloseLane(Lane& lane);
  void Fail(int code, const char* what);

  // recv_groups.cc: once tags decide.
  void NoteTag(int32_t tag);
  void MatchByTag();
  void PostByTag(RecvRequest& request);
  RecvPart* FindByTag(const ChunkHeader& header);

  uint32_t Index(const Lane& lane) const { return static_cast<uint32_t>(&lane - lanes_.data()); }

  const Services services_;
  const uint64_t flow_;
  const int family_;
  const Address peer_;
  const std::shared_ptr<Listener> listener_;
  FlowRecorder recorder_;
  Fd epoll_;

  std::mutex lanes_mutex_;
  std::array<Lane, abi::kMaxLanes> lanes_;
  // Bit i: lane i belongs to the data thread. Set with release by Attach(), cleared by the data thread.
  std::atomic<uint32_t> open_{0};
  std::atomic<uint32_t> offered_{0};  // bit i: lane i has an offered connection; release by Offer()

  // Data thread.
  std::array<RecvRequest, nccl::kMaxRequests> requests_;
  uint32_t next_ = 0;     // number of the next receive to be posted; until tags decide also of its message
  int64_t tag_ = kNoTag;  // of all receives so far; kNoTag: there was none, or tags decide
  std::unique_ptr<TagMatcher> matcher_;
  uint32_t pending_ = 0;  // posted and not complete
  uint64_t came_ns_ = kNotKnown;  // while waiting: of what the reads of this call have brought, when it came, by the kernel (MeterNs)
  uint32_t following_ = 0;  // bit i: lane i has a next connection
  bool awaits_ = false;        // lanes have had SO_RCVLOWAT set, by which epoll says less than there is
  std::atomic<uint64_t> window_{kLeastWindow};  // that the senders of all lanes have for sure; by the background thread
  bool lane_lost_ = false;  // one was closed without its last chunk: all are, or what it carried may be missing
  int error_ = nccl::kSuccess;
  std::array<RecvRequest*, nccl::kMaxRequests> finished_{};
  uint32_t finished_count_ = 0;
};

}  // namespace weft::net

// The sending end of a flow. NCCL's thread cuts messages into chunks and deals them to the flow's lanes by weight; the
// background thread opens the lanes that the policy asks for and marks and paces all of them.
//
// Who may touch what: a lane's `state` is the hand-over. kNone and kFailed: background thread. kConnecting: background
// thread. kActive: `fd` belongs to the data thread for sending and closing; the background thread uses it for socket
// options under lanes_mutex_, which the data thread takes only to close a lane. Where its path is silent the background thread
// parks the lane (Enter()), takes what the kernel still has of it and gives it another connection.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "netplugin/comm.h"
#include "netplugin/policy/gate.h"
#include "netplugin/tcp/socket.h"
#include "netplugin/tcp/tag_counts.h"
#include "netplugin/tcp/tcp_info.h"
#include "netplugin/tcp/wire.h"
#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net {

class SendComm final : public Comm, public BackgroundTask {
 public:
  struct Setup {
    Fd lane0;                     ///< connected, its hello sent
    FlowIdentity identity;
    uint64_t cookie = 0;          ///< of the peer's listener
    Address listener;             ///< where further lanes connect to
    uint8_t traffic_class = 0;    ///< in force when no leased policy says otherwise
  };

  SendComm(const Services& services, Setup setup);
  ~SendComm() override;

  /// isend: `*request` stays nullptr when the pool is full, or when the receiver groups buffers, has asked not to be run
  /// ahead of, and has none for `tag` now. `data` stays the caller's until test() says done.
  int Send(const void* data, uint64_t size, int32_t tag, Request** request);
  int Isend(const void* data, uint64_t size, int tag, void*, Request** request) override {
    return Send(data, size, tag, request);
  }
  int Test(Request* request, int* done, int* size) override;
  void AddTo(PollList* fds) override;
  const abi::FlowSlot* slot() const override { return &recorder_.slot(); }
  uint64_t SilentNs() const override;

  void Sweep(const Tick& tick) override;
  void Watch(std::vector<pollfd>* fds) override;

 private:
  static constexpr uint32_t kQueue = 8;  // chunks that one system call may carry
  static constexpr uint32_t kEagerBytes = 1024;         // payload that is copied behind its header
  static constexpr uint32_t kLoneLaneChunk = 1 << 20;   // of a flow without a policy, at least
  static constexpr uint32_t kCutBytes = 128;           // messages are cut at multiples of it
  static constexpr uint32_t kLeastPart = 8192;          // of a message that several lanes carry
  static constexpr uint64_t kOpenTimeoutNs = 5'000'000'000;
  // A lane is moved when nothing has answered for so long, two retransmissions among it. A new connection over another silent path is
  // given up sooner than that: its port decides.
  static constexpr uint64_t kMoveAfterNs = 1'000'000'000;
  static constexpr uint64_t kMoveOpenNs = 300'000'000;
  static constexpr uint64_t kLongestMovePauseNs = 10'000'000'000;
  static constexpr uint64_t kAskNs = 2'000'000'000;  // after which the agent must not begin any more; it may take as long again
  static constexpr uint64_t kTellSilenceNs = 3'000'000'000;  // that a lane was left, and why: longer than from one report to the next
  static constexpr int kLastMovesMs = 5000;  // at the end of the flow

  struct SendRequest : Request {
    const char* data = nullptr;
    int32_t tag = 0;
    uint8_t flags = 0;         // of its chunks
    uint64_t dealt = 0;        // bytes given to lanes
    uint32_t outstanding = 0;  // chunks not yet taken by the kernel
    bool all_dealt = false;
  };

  struct Chunk {
    ChunkHeader header;
    const char* payload;
    SendRequest* request;  // nullptr: the chunk closes the lane
    bool counted = false;  // the kernel has all that the receiver waits for
  };

  // A connection until the receiver has taken it.
  struct Opening {
    bool hello_sent = false;
    uint32_t ack_bytes = 0;
    LaneAck ack{};
    uint64_t deadline = 0;
  };
  enum class Opened { kNotYet, kYes, kFailed };

  // Of a lane from one connection to another (send_move.cc).
  struct Move {
    enum class Step { kOpen, kPark, kAsk, kSend };
    Step step = Step::kOpen;
    Fd fd;  // the new connection
    Opening opening;
    uint64_t token = 0;
    std::unique_ptr<char[]> data;  // what the old one still had; from then on that is gone
    uint64_t bytes = 0, sent = 0;
    Fd left;  // given up while it was sent over: open until the receiver has the next one, so that it sees no end
    LaneResume resume{};
    uint32_t resume_sent = 0;
    uint64_t silent_ns = 0;
  };

  struct Lane {
    std::atomic<abi::LaneState> state{abi::LaneState::kNone};
    std::atomic<bool> retire{false};  // background asks the data thread to close it
    abi::LaneTelemetry* telemetry = nullptr;
    int fd = -1;
    uint16_t port = 0;

    // Background thread.
    Opening opening;
    std::unique_ptr<Move> move;
    uint64_t move_at_ns = 0, move_pause_ns = 0;
    uint64_t told_until_ns = 0;  // of one that was left: it says so
    uint64_t failed_epoch = 0;
    uint16_t logged_port = 0;
    uint8_t tos = 0;
    uint64_t pacing_bps = 0;
    TcpMoment moment;      // newest sample
    uint64_t answered_ns = 0;  // when it last had nothing in flight or heard of the peer

    // The data thread's between Enter() and Leave(), the background thread's while the lane is parked.
    uint64_t written = 0;  // bytes of the stream that the kernel was given
    uint64_t began = 0;    // of them, before this connection
    uint32_t moves = 0;

    // Data thread.
    uint32_t weight = 0;
    double served = 0;  // bytes / weight since the weights last changed
    uint32_t stamp_from = kMeteredBytes;  // length of the first chunk; 0: those behind it say when they were offered
    bool closing = false;  // its last chunk is queued
    uint32_t head = 0, queued = 0;
    uint64_t head_sent = 0;  // bytes of the head chunk, header included, that the kernel has
    Chunk queue[kQueue];
  };

  /// Once there is more than one tag, or the receiver has said what it posted.
  struct Tags {
    TagCounts sent, posted;
    bool limited = false;  // by `posted`
    uint32_t filled = 0;   // bytes of `notices`
    uint32_t moves = 0;    // of lane 0, when it was last read
    std::array<PostedNotice, 32> notices{};
  };

  // send_comm.cc: data thread.
  void Progress();
  uint32_t ChunkBytes() const;
  uint64_t PartOf(const SendRequest& request, const Lane& lane) const;
  void Deal();
  Lane* NextLane();
  void Push(Lane& lane, const Chunk& chunk);
  uint32_t Enter();
  void Leave() { inside_.store(false, std::memory_order_release); }
  uint64_t Flush(Lane& lane);
  ssize_t Write(Lane& lane);
  void StampChunks(Lane& lane);
  void Sent(Lane& lane, uint64_t bytes);
  void Fail(const Lane& lane, int error);

  // send_tags.cc: data thread.
  bool CountTag(int32_t tag);
  Tags& AllTags();
  void ReadNotices();

  // send_policy.cc: data thread.
  bool GateOpens(const PolicyMapping& mapping);
  void CountHeld();
  void ApplyPolicy(const PolicyMapping& mapping, uint64_t epoch, uint32_t attention);
  bool ReadWanted(const PolicyMapping& mapping, uint64_t epoch);
  void Reweigh();
  bool CloseRetired();
  void CloseLane(Lane& lane);

  // send_lanes.cc: background thread.
  void OpenMissing(uint64_t now);
  Lane* FindSlot();
  bool Wanted(const Lane& lane) const;
  void BeginLane(Lane& lane, uint16_t port, uint64_t now);
  void DriveLane(Lane& lane, uint64_t now);
  Fd Connect(uint16_t port, uint8_t tos, const char** what);
  Opened DriveOpening(int fd, Opening& opening, const LaneHello& hello, uint64_t now, const char** what, int* error);
  LaneHello Hello(const Lane& lane, uint8_t flags) const;
  void FailLane(Lane& lane, const char* what, int error);
  void MarkAndPace(uint64_t now);
  void SetLaneState(Lane& lane, abi::LaneState state);

  // send_move.cc: background thread, and at the end the one that destroys the flow.
  void WatchSilence(Lane& lane, uint64_t silent_ns, uint64_t now);
  void DriveMove(Lane& lane, uint64_t now);
  void OpenMove(Lane& lane, uint64_t now);
  void TakeBytes(Lane& lane, uint64_t now);
  static bool ReadBytes(Move& move, const UnsentBytes::Answer& answer, uint64_t greeting);
  void SendBytes(Lane& lane, uint64_t now);
  void EndMove(Lane& lane, uint64_t now);
  void TellSilence(uint16_t port, uint64_t silent_ns, uint64_t wire_bytes, uint64_t retransmits, uint64_t now);
  void GiveUpMove(Lane& lane, const char* why, uint64_t now);
  void FinishMoves();
  bool IsParents() const;
  bool Parked(const Lane& lane) const { return (parked_.load(std::memory_order_relaxed) >> Index(lane) & 1) != 0; }
  void Unpark(const Lane& lane) { parked_.fetch_and(~(1u << Index(lane)), std::memory_order_seq_cst); }

  uint32_t Index(const Lane& lane) const { return static_cast<uint32_t>(&lane - lanes_.data()); }

  const Services services_;
  const uint64_t flow_;
  const int rank_;
  const uint64_t cookie_;
  const Address listener_;
  Address local_;
  const uint8_t default_tos_;
  FlowRecorder recorder_;

  std::mutex lanes_mutex_;
  std::array<Lane, abi::kMaxLanes> lanes_;
  // Bumped (release) by the background thread when a lane changed, so that the data thread looks at all of them.
  std::atomic<uint32_t> attention_{0};
  std::atomic<uint32_t> parked_{0};     // bit i: the data thread must keep off the connection of lane i
  std::atomic<bool> lost_{false};       // bytes of a lane are gone
  std::atomic<bool> inside_{false};     // the data thread uses those of the others
  std::atomic<uint8_t> tos_;  // relaxed: a hint for the receiver's acknowledgements
  std::atomic<bool> noticed_{false};  // by the background thread: notices have come
  std::atomic<bool> tagged_{false};   // by the data thread: tags_ is there; relaxed, a lane is given up later or not
  std::atomic<uint64_t> generation_in_use_{0};  // of the policy mapping that the data thread reads

  // Data thread.
  std::array<SendRequest, nccl::kMaxRequests> requests_;
  uint32_t next_ = 0;    // sequence of the next message
  int64_t tag_ = kNoTag;  // of all messages so far; kNoTag: there was none, or they are counted in tags_
  std::unique_ptr<Tags> tags_;
  uint32_t deal_ = 0;    // first message with bytes not yet dealt
  int error_ = nccl::kSuccess;
  std::array<uint8_t, abi::kMaxLanes> weighted_{};  // lanes with a weight
  uint32_t weighted_count_ = 0;
  uint32_t queued_lanes_ = 0;  // bit i: lane i has chunks queued
  std::array<SendRequest*, nccl::kMaxRequests> finished_{};
  uint32_t finished_count_ = 0;
  uint64_t seen_epoch_ = 0;
  const PolicyMapping* seen_mapping_ = nullptr;
  uint32_t seen_attention_ = 0;
  abi::FlowPolicy applied_{};  // the entry whose weights are in force; no lanes: none yet
  bool applied_listed_ = false;  // the newest table names it: its lease can be renewed
  Gate gate_;

  // Background thread.
  FlowEntry entry_;
};

}  // namespace weft::net

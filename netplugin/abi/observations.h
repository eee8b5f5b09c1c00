// What the profiler face, the tuner face, the watchdog and the background thread tell the agent: further sections of the
// telemetry segment, behind those of segment.h. A reader finds them by the directory (FindObservations, FindBackground); one
// that does not know them skips them, and a segment without them is whole.
//
//   communicators  one slot per communicator of the process: how far each collective has come, who waited for whom
//   stalls         one slot per connection that stood still: to whom, over which ports, with how much in flight
//   background     whether the thread that reads policies and samples is still there
//
// Everything is fixed-width and bounded; counters are relaxed. The application's and the progress thread of one
// communicator both count here, so they add with fetch_add, a few times per collective; nobody waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "netplugin/abi/segment.h"

namespace weft::abi {

inline constexpr uint32_t kCommunicatorsSection = 16;  ///< Section::kind
inline constexpr uint32_t kStallsSection = 17;
inline constexpr uint32_t kBackgroundSection = 18;
inline constexpr uint32_t kMaxCommunicators = 64;      ///< slots per process
inline constexpr uint32_t kMaxStalls = 64;
inline constexpr uint32_t kMaxPeers = 32;              ///< peers of a communicator that are told apart
inline constexpr uint32_t kRecentOperations = 32;      ///< entries of a communicator's ring

/// What is counted apart: the five collectives by NCCL's numbers, and everything point-to-point.
enum class Operation : uint32_t {
  kBroadcast = 0, kReduce = 1, kAllGather = 2, kReduceScatter = 3, kAllReduce = 4, kPointToPoint = 5
};
inline constexpr uint32_t kOperations = 6;

/// What a network step waited for. The first four are the sender's and say, in this order, that the own GPU, the peer,
/// or the wire was slow; the last two are the receiver's: nothing came, or the own GPU had not taken what came before.
enum class Wait : uint32_t { kSendGpu = 0, kSendPeer = 1, kSendWire = 2, kReceive = 3, kReceiveFlush = 4, kReceiveGpu = 5 };
inline constexpr uint32_t kWaits = 6;

/// How far one kind of operation has come. `started` > `finished` for long, while other ranks' `started` is less: they
/// have not come to the collective that this rank is in.
struct OperationCounters {
  std::atomic<uint64_t> started;
  std::atomic<uint64_t> finished;        ///< its last network operation (and kernel, if asked for) has ended
  std::atomic<uint64_t> last_started;    ///< NCCL's number of the newest one (counts this kind in this communicator)
  std::atomic<uint64_t> last_finished;
  std::atomic<uint64_t> last_started_ns; ///< CLOCK_MONOTONIC
  std::atomic<uint64_t> last_finished_ns;
  std::atomic<uint64_t> bytes;           ///< count times the size of the element, of those that finished
  std::atomic<uint64_t> busy_ns;         ///< from start to finish, summed
};
static_assert(sizeof(OperationCounters) == 64);

/// One that finished. `end_ns` is stored last (release) and zeroed first: an entry whose `end_ns` reads 0 or differs
/// between two reads is being written.
struct OperationRecord {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> start_ns;
  std::atomic<uint64_t> end_ns;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> kernel_ns;       ///< longest channel on the GPU; 0 if not asked for
  std::atomic<uint32_t> operation;       ///< Operation
  std::atomic<uint32_t> algorithm;       ///< NCCL_ALGO_*; UINT32_MAX if unknown
  std::atomic<uint32_t> protocol;        ///< NCCL_PROTO_*; UINT32_MAX if unknown
  std::atomic<uint32_t> channels;
  std::atomic<uint64_t> waits_ns[kWaits];
};
static_assert(sizeof(OperationRecord) == 104);

/// Who was waited for. `peer` is claimed once (compare-and-swap from -1); the last entry collects those that found none.
struct PeerWait {
  std::atomic<int32_t> peer;             ///< rank in the communicator; -1: free; -2: all others
  uint32_t reserved;
  std::atomic<uint64_t> send_ns;         ///< it gave no credit for what this rank had to send
  std::atomic<uint64_t> receive_ns;      ///< this rank had posted a receive, and nothing came
};
static_assert(sizeof(PeerWait) == 24);

/// One communicator, as one rank sees it. Identity is constant from kOpen on until `generation` changes, as in FlowSlot.
struct alignas(64) CommunicatorSlot {
  std::atomic<uint32_t> state;           ///< SlotState
  std::atomic<uint32_t> generation;
  uint64_t comm;                         ///< NCCL's commId or commHash; 0 if the interface names none
  int32_t rank;                          ///< in the communicator; -1 if unknown
  int32_t ranks;
  int32_t nodes;
  uint32_t reserved;
  char name[32];                         ///< NUL-terminated; given by the user, empty as a rule

  // Tuner face. Equal on all ranks of a communicator, or their environments differ.
  std::atomic<uint64_t> table_digest;    ///< of WEFT_COLLECTIVES as read; 0: none
  std::atomic<uint64_t> decided;         ///< calls that an entry decided
  std::atomic<uint64_t> left;            ///< calls left to NCCL: no entry fits, or NCCL does not offer what it asks for
  std::atomic<uint64_t> decision_digest; ///< over all decisions in order
  std::atomic<uint32_t> overridden;      ///< bit 0: the user's NCCL_ALGO, bit 1: NCCL_PROTO decides
  std::atomic<uint32_t> profile;         ///< ProfileLevel in force

  // Profiler face.
  std::atomic<uint64_t> waits_ns[kWaits];
  std::atomic<uint64_t> events_dropped;  ///< for want of a free event
  std::atomic<uint64_t> recent_count;    ///< finished operations; entry i is recent[i % kRecentOperations]
  OperationCounters operations[kOperations];
  PeerWait peers[kMaxPeers];
  OperationRecord recent[kRecentOperations];
};
static_assert(offsetof(CommunicatorSlot, operations) == 168 && offsetof(CommunicatorSlot, recent) == 1320);
static_assert(sizeof(CommunicatorSlot) == 4672);

enum class StallCause : uint32_t {
  kUnknown = 0,
  kPeerDoesNotRead = 1,   ///< the receiver's window is closed: its process is stopped, or has posted no receive
  kNoAcknowledgement = 2, ///< segments are sent again and again: the path or the peer's host is down
  kPeerSendsNothing = 3,  ///< a receive is posted and the connection is idle
  kNoLane = 4,            ///< no connection of the flow is usable
};

/// A connection with requests in flight that does not move. Written by the plugin's background thread alone.
struct alignas(64) StallSlot {
  std::atomic<uint32_t> state;           ///< kOpen: it stands still; kClosed: it moved again, or was closed
  std::atomic<uint32_t> generation;      ///< as in FlowSlot
  uint64_t flow;
  uint64_t comm;
  uint32_t direction;                    ///< Direction
  int32_t rank;
  int32_t peer_rank;
  uint32_t family;
  uint8_t peer_address[16];
  uint16_t peer_port;
  uint16_t ports[kMaxLanes];             ///< source ports of the lanes that are open: the path; 0: none
  uint16_t reserved16[3];
  uint64_t since_ns;                     ///< of the last progress, CLOCK_MONOTONIC
  std::atomic<uint64_t> bytes_in_flight; ///< of requests that are not done
  std::atomic<uint64_t> requests;
  std::atomic<uint32_t> cause;           ///< StallCause
  std::atomic<uint32_t> aborted;         ///< 1: the connection was given up (WEFT_STALL_ACTION)
  std::atomic<uint64_t> until_ns;        ///< newest look, or the end
};
static_assert(sizeof(StallSlot) == 128);

struct Observations {
  CommunicatorSlot communicators[kMaxCommunicators];
  StallSlot stalls[kMaxStalls];
};

enum class BackgroundState : uint32_t {
  kNone = 0,     ///< not started yet, or joined
  kRuns = 1,
  kFailed = 2,   ///< ended by an error: flows keep their lanes and weights, no policy is read and nothing is sampled
};

/// The plugin's background thread. Written by it alone, and by whoever starts and joins it.
struct alignas(64) BackgroundSlot {
  std::atomic<uint32_t> state;           ///< BackgroundState
  uint32_t reserved;
  std::atomic<uint64_t> swept_ns;        ///< when its newest round began, every 25 ms or sooner; CLOCK_MONOTONIC
};
static_assert(sizeof(BackgroundSlot) == 64);

/// The whole of what a plugin of this version shares.
struct TelemetryFile {
  TelemetrySegment telemetry;
  alignas(64) Observations observations;
  BackgroundSlot background;
};

/// Adds the sections to the header that InitTelemetryHeader() has written. Requires: the memory is a TelemetryFile.
void AddObservationSections(TelemetryFile* file);

/// The sections in a telemetry segment that ValidateSegment() has passed and of which `mapped_bytes` bytes are mapped;
/// nullptr if one is missing, of another size, or not wholly mapped.
const Observations* FindObservations(const void* data, uint64_t mapped_bytes);
/// Likewise.
const BackgroundSlot* FindBackground(const void* data, uint64_t mapped_bytes);

}  // namespace weft::abi

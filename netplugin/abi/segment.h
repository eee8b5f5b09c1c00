// The two shared-memory segments between a job's process (the plugin) and the host's agent.
//
//   telemetry  one per process: created, sealed and written by the plugin, mapped read-only by the agent
//   policy     one per job and host: created and written by the agent, mapped read-only by the plugin
//
// Each starts with a SegmentHeader whose directory names the sections that follow; a reader skips sections it does not
// know. Everything is fixed-width and trivially copyable, holds no pointer, and neither side ever waits for the other:
// the writer drops and counts. Each side treats the other's memory as untrusted input: bounds, enumerations and the
// directory are checked on every attach (ValidateSegment), values where they are used.
//
// Fields that change while the segment is shared are std::atomic; each is written by exactly one thread, so relaxed
// loads and stores suffice except where a comment says acquire/release.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::abi {

inline constexpr uint32_t kTelemetryMagic = 0x4C544657;  // "WFTL"
inline constexpr uint32_t kPolicyMagic = 0x4C505657;     // "WVPL"
inline constexpr uint32_t kSegmentVersion = 3;
/// What an agent serves besides, in the layouts that those plugins were built with. Both have room for kMaxFlowsV2 flows and no
/// `slots_used`; version 1 has no fields marked "version 2" either, and policies without time windows.
inline constexpr uint32_t kPreviousSegmentVersion = 2;
inline constexpr uint32_t kOldestSegmentVersion = 1;
inline constexpr uint32_t kMaxSections = 8;
inline constexpr uint32_t kMaxFlows = 4096;  ///< flow slots per process, policy entries per job and host
inline constexpr uint32_t kMaxFlowsV2 = 256; ///< likewise, in versions 1 and 2
inline constexpr uint32_t kMaxLanes = 8;     ///< TCP connections (or QPs) of one flow
inline constexpr uint32_t kBurstRing = 64;   ///< entries of a flow's burst ring, a power of two
inline constexpr uint32_t kHistogramBuckets = 32;

enum class SectionKind : uint32_t { kProcess = 1, kFlows = 2, kPolicy = 3 };

/// Where one section lies: `entry_count` entries of `entry_bytes` bytes each, `offset` bytes from the segment's start.
struct Section {
  uint32_t kind;
  uint32_t version;
  uint64_t offset;
  uint32_t entry_bytes;
  uint32_t entry_count;
};

struct SegmentHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t total_bytes;
  uint32_t section_count;
  uint32_t reserved;
  Section sections[kMaxSections];
};
static_assert(sizeof(Section) == 24 && sizeof(SegmentHeader) == 216);

// --- telemetry -------------------------------------------------------------------------------------------------------

/// Who the process is. Written once, before the segment is passed on.
struct ProcessInfo {
  char job[64];       ///< NUL-terminated job id; empty if the launcher gave none
  int32_t pid;        ///< in the process's own PID namespace: 1 in every other container. A label, which nobody relies on
  int32_t rank;       ///< rank in the job, -1 if unknown
  int32_t world;      ///< ranks of the job, -1 if unknown
  int32_t net_version;///< N of the ncclNetPlugin_vN in use
  std::atomic<uint64_t> flows_dropped;   ///< flows that found no free slot
  std::atomic<uint64_t> policy_epoch;    ///< newest epoch that the plugin has read
  std::atomic<uint64_t> policy_rejected; ///< policy entries refused because a value was out of range
  /// Version 3: slots below it were taken at least once, those from it on never were, and nobody need look at them: memory that
  /// was never touched costs nothing until it is read. Only grows. Zero bytes before the first slot in versions 1 and 2.
  std::atomic<uint32_t> slots_used;
  uint32_t reserved;
};
static_assert(offsetof(ProcessInfo, slots_used) == 104 && sizeof(ProcessInfo) == 112);
inline constexpr uint32_t kProcessBytesV2 = offsetof(ProcessInfo, slots_used);  ///< the section's entry in versions 1 and 2

enum class SlotState : uint32_t { kFree = 0, kOpen = 1, kClosed = 2 };
enum class Direction : uint32_t { kSend = 0, kReceive = 1 };
enum class LaneState : uint32_t { kNone = 0, kConnecting = 1, kActive = 2, kFailed = 3 };

/// One connection of a flow. `source_port` is written before `state` becomes kConnecting (release).
struct LaneTelemetry {
  std::atomic<uint32_t> state;        ///< LaneState
  std::atomic<uint32_t> source_port;  ///< of the sender
  std::atomic<uint64_t> bytes;        ///< payload and chunk headers handed to, or taken from, the kernel
  std::atomic<uint64_t> wire_bytes;   ///< IP bytes on the wire, retransmissions included (TCP_INFO, sampled)
  std::atomic<uint64_t> retransmits;  ///< segments (TCP_INFO, sampled)
  std::atomic<uint32_t> rtt_us;       ///< smoothed (TCP_INFO, sampled)
  std::atomic<uint32_t> weight;       ///< in force now
  /// Time in which the next chunk stood in a queue on its way all the while, and what arrived in it, as bytes on the wire:
  /// their ratio is what the path gives this lane. Over TCP the receiver's, over RDMA the sender's (part_meter.h).
  std::atomic<uint64_t> backlog_ns;
  std::atomic<uint64_t> backlog_bytes;
};
static_assert(sizeof(LaneTelemetry) == 56);

/// One burst: a run of chunks without a gap of more than 2 ms in which the wire was idle. Times are CLOCK_MONOTONIC
/// nanoseconds of the host.
struct Burst {
  std::atomic<uint64_t> start_ns;
  std::atomic<uint64_t> end_ns;
  std::atomic<uint64_t> bytes;
};

/// The UDP port that RoCEv2 packets go to (InfiniBand specification, annex A17).
inline constexpr uint16_t kRocePort = 4791;

/// One flow: a send or receive communicator of the plugin. Identity is constant from the moment `state` is kOpen
/// (store-release by the plugin, load-acquire by the agent) until the slot's `generation` changes.
struct alignas(64) FlowSlot {
  std::atomic<uint32_t> state;       ///< SlotState
  std::atomic<uint32_t> generation;  ///< +1 each time the slot is taken; odd while identity is being written
  uint64_t flow;                     ///< random, equal at both ends
  uint64_t comm;                     ///< NCCL's commId (v11+), else 0
  uint32_t direction;                ///< Direction
  uint32_t ordinal;                  ///< how many connections this process had opened to this peer before
  int32_t rank;                      ///< own rank, -1 if unknown
  int32_t peer_rank;                 ///< from the handle, -1 if unknown
  uint32_t device;                   ///< index of the NIC
  uint32_t family;                   ///< 4 or 6
  uint8_t local_address[16];         ///< IPv4 in the first four bytes
  uint8_t peer_address[16];
  uint16_t peer_port;                ///< that packets go to, host byte order: the receiver's listener; kRocePort; 0: no port
  uint16_t reserved16;
  uint32_t reserved32;

  // Data thread only.
  alignas(64) std::atomic<uint64_t> messages;     ///< completed
  std::atomic<uint64_t> bytes;                    ///< payload of completed messages
  std::atomic<uint64_t> wait_peer_ns;             ///< had a request, the other side gave nothing to do
  std::atomic<uint64_t> wait_wire_ns;             ///< had bytes, the kernel's socket buffer was full
  std::atomic<uint64_t> last_progress_ns;
  std::atomic<uint64_t> policy_epoch;             ///< epoch whose entry this flow runs
  std::atomic<uint64_t> burst_count;              ///< bursts completed; entry i is bursts[i % kBurstRing] (release)
  std::atomic<uint64_t> histogram[kHistogramBuckets];  ///< completion time, bucket i: [2^i, 2^(i+1)) us, 0 from 0
  Burst bursts[kBurstRing];
  std::atomic<uint64_t> gate_held_ns;             ///< version 2: had bytes, its time window was shut

  alignas(64) LaneTelemetry lanes[kMaxLanes];

  // Background thread only, sampled.
  alignas(64) std::atomic<uint64_t> wire_busy_ns;  ///< some lane had bytes that the peer had not acknowledged, and the
                                                   ///< peer's window was open: waiting for the wire, as TCP sees it
  std::atomic<uint64_t> gate_holds;  ///< version 2: bursts that the time window held back. Data thread, once per burst
  /// Of each lane: it has bytes on their way that were sent again, and for so long nothing came back; 0: none, or a plugin that
  /// does not say.
  std::atomic<uint32_t> silent_ms[kMaxLanes];
};
static_assert(offsetof(FlowSlot, messages) == 128 && sizeof(Burst) == 24 && offsetof(FlowSlot, gate_held_ns) == 1976);
static_assert(offsetof(FlowSlot, lanes) == 1984 && offsetof(FlowSlot, silent_ms) == 2448 && sizeof(FlowSlot) == 2496);

// --- policy ----------------------------------------------------------------------------------------------------------

/// What the profiler face asks NCCL to tell it, each level with all before it. Larger values count as kOff.
enum class ProfileLevel : uint32_t {
  kOff = 0,
  kCollectives = 1,  ///< each collective and its network operations: order, duration, size
  kSteps = 2,        ///< each network step: who waited for whom
  kKernels = 3,      ///< also the GPU kernels of each channel
};

/// Limits of a plausible entry, the same for who writes and who reads it.
inline constexpr uint32_t kLargestWeight = 1 << 20;
inline constexpr uint64_t kLeastPacingBps = 1'000'000;          ///< below, a mistake would look like a hang
inline constexpr uint64_t kLongestLeaseNs = 60'000'000'000;     ///< what is leased must lapse when the agent is gone
inline constexpr uint64_t kShortestWindowPeriodNs = 1'000'000;
inline constexpr uint64_t kLongestWindowPeriodNs = 60'000'000'000;  ///< no send is held longer than one period

/// What one lane should be. A lane with a new source port is opened in the background and carries data once connected.
struct LanePolicy {
  uint16_t source_port;  ///< 0: end of the list
  uint16_t reserved;
  uint32_t weight;       ///< share of the flow's bytes relative to the other lanes; 0 keeps the lane open and idle
};

/// What one flow should do. Paths and weights persist; class, pacing and window hold while the entry is leased: until the
/// later of its `lease_until_ns` and the table's `renewed_until_ns`. An entry with `lease_until_ns` 0 was never leased.
///
/// The window: bursts may begin at any time t of the host's CLOCK_MONOTONIC with (t - window_offset_ns) mod
/// window_period_ns < window_length_ns; one that would begin earlier is held until then, so never longer than a period.
/// Whoever writes it takes the offset from starts of this flow's own bursts: hosts need no common clock.
struct FlowPolicy {
  uint64_t flow;
  LanePolicy lanes[kMaxLanes];
  uint64_t pacing_bps;        ///< 0: open
  uint64_t lease_until_ns;    ///< CLOCK_MONOTONIC of the host
  uint32_t traffic_class;     ///< TOS byte: DSCP << 2; the two ECN bits are ignored
  uint32_t reserved;
  // From here on version 2.
  uint64_t window_period_ns;  ///< of the job's iterations; 0: no window
  uint64_t window_offset_ns;  ///< a time at which a window opens, past or future
  uint64_t window_length_ns;  ///< 1 to window_period_ns
};
static_assert(sizeof(LanePolicy) == 8 && sizeof(FlowPolicy) == 120);

/// An entry of the previous version: the first bytes of a FlowPolicy.
struct FlowPolicyV1 {
  uint64_t words[12];
};
static_assert(offsetof(FlowPolicy, window_period_ns) == sizeof(FlowPolicyV1));

/// The policy section's only entry: a seqlock over the table. The writer makes `sequence` odd, writes, makes it even,
/// then stores `epoch` (release). A reader that sees a new epoch copies what it needs between two equal even reads of
/// `sequence` (see seqlock.h) and otherwise keeps what it has.
///
/// In version 3 entries are sorted by flow, ascending, and no flow comes twice; before, they are in any order.
template <typename Entry, uint32_t kEntries>
struct PolicyTableOf {
  static constexpr uint32_t kRoom = kEntries;

  alignas(64) std::atomic<uint64_t> epoch;  ///< 0: nothing written yet
  std::atomic<uint64_t> sequence;
  std::atomic<uint32_t> count;              ///< entries in use
  /// ProfileLevel that the profiler face records at. Outside the seqlock: one word, true by itself (relaxed); it
  /// lapses to the process's own level at `profile_until_ns`. Zero in a segment of an agent that does not know it.
  std::atomic<uint32_t> profile;
  std::atomic<uint64_t> profile_until_ns;   ///< CLOCK_MONOTONIC of the host
  /// Version 2: leases hold at least until then. Stored outside the seqlock at each heartbeat of the controller, so that renewing
  /// them makes no new epoch; more than kLongestLeaseNs ahead counts as nothing.
  std::atomic<uint64_t> renewed_until_ns;
  alignas(64) Entry flows[kEntries];
};
using PolicyTable = PolicyTableOf<FlowPolicy, kMaxFlows>;
using PolicyTableV2 = PolicyTableOf<FlowPolicy, kMaxFlowsV2>;
using PolicyTableV1 = PolicyTableOf<FlowPolicyV1, kMaxFlowsV2>;
static_assert(sizeof(PolicyTable) == 64 + kMaxFlows * sizeof(FlowPolicy));
static_assert(sizeof(PolicyTableV2) == 64 + kMaxFlowsV2 * sizeof(FlowPolicy));
static_assert(offsetof(PolicyTable, renewed_until_ns) == 32 && offsetof(PolicyTable, flows) == 64);
static_assert(offsetof(PolicyTableV2, renewed_until_ns) == 32 && offsetof(PolicyTableV2, flows) == 64);
static_assert(offsetof(PolicyTableV1, flows) == 64);

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// --- layout ----------------------------------------------------------------------------------------------------------

template <uint32_t kSlots>
struct TelemetrySegmentOf {
  alignas(64) SegmentHeader header;
  alignas(64) ProcessInfo process;
  alignas(64) FlowSlot flows[kSlots];
};
using TelemetrySegment = TelemetrySegmentOf<kMaxFlows>;
using TelemetrySegmentV2 = TelemetrySegmentOf<kMaxFlowsV2>;  // also version 1
static_assert(offsetof(TelemetrySegment, process) == 256 && offsetof(TelemetrySegment, flows) == 384);
static_assert(offsetof(TelemetrySegmentV2, process) == 256 && offsetof(TelemetrySegmentV2, flows) == 384);
static_assert(sizeof(TelemetrySegmentV2) == 384 + 256 * 2496, "plugins of versions 1 and 2 have this number built in");
template <typename Table>
struct PolicySegmentOf {
  alignas(64) SegmentHeader header;
  alignas(64) Table table;
};
using PolicySegment = PolicySegmentOf<PolicyTable>;
using PolicySegmentV2 = PolicySegmentOf<PolicyTableV2>;
using PolicySegmentV1 = PolicySegmentOf<PolicyTableV1>;
static_assert(sizeof(PolicySegmentV2) == 256 + 64 + 256 * 120, "plugins of version 2 have this number built in");
static_assert(sizeof(PolicySegmentV1) == 256 + 64 + 256 * 96, "plugins of version 1 have this number built in");

/// Writes the header and directory of an all-zero segment; everything else stays as it is.
void InitTelemetryHeader(TelemetrySegment* segment);
void InitTelemetryHeader(TelemetrySegmentV2* segment);
void InitPolicyHeader(PolicySegment* segment);
void InitPolicyHeader(PolicySegmentV2* segment);
void InitPolicyHeader(PolicySegmentV1* segment);

/// What ValidateSegment() has found. The header may say something else afterwards, so whoever reads on goes by this.
struct SegmentShape {
  uint32_t version = 0;
  uint32_t flows = 0;  ///< telemetry: slots that lie within the segment
};

/// What is wrong with a mapped segment of `mapped_bytes` bytes, or nullptr if it can be used as `magic`: version (telemetry
/// of kOldestSegmentVersion to kSegmentVersion, policies of kSegmentVersion only), total size, directory bounds, entry sizes and
/// counts. The text is constant and names the check. A segment that passes has its known sections where TelemetrySegment and
/// PolicySegment put them, so that it may be read through them even if its header changes afterwards; of a telemetry segment only
/// the first `found->flows` slots are there.
const char* ValidateSegment(const void* data, uint64_t mapped_bytes, uint32_t magic, SegmentShape* found = nullptr);

}  // namespace weft::abi

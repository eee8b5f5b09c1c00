// What the RDMA transport says to its peer: over a TCP connection of each flow (ControlMessage: who the queue pairs
// are, and how to begin anew when they failed), and by RDMA writes (Credit, Record) and their immediate values.
// Fixed-width, little-endian, no pointers that are followed; all of it is untrusted when it arrives.
//
//   sender -> receiver: kHello            receiver -> sender: kWelcome       sender -> receiver: kReady
//   either notices a failure:             receiver -> sender: kPleaseReset
//   sender -> receiver: kReset            receiver -> sender: kResetDone     sender -> receiver: kReady
//
// A message: the receiver posts a buffer by writing a Credit into the sender's memory. The sender writes the bytes
// straight into that buffer, in up to kMaxLanes parts over as many queue pairs; each part's last write carries an
// immediate value that tells the receiver which part of which message is there.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "netplugin/abi/nccl_net.h"
#include "netplugin/abi/segment.h"
#include "netplugin/tcp/wire.h"

namespace weft::net::rdma {

inline constexpr uint32_t kRdmaHandleMagic = 0x48524657;  // "WFRH"
inline constexpr uint32_t kControlMagic = 0x54435246;     // "FRCT"
inline constexpr uint16_t kRdmaWireVersion = 3;
inline constexpr uint32_t kSlots = nccl::kMaxRequests;    ///< messages in flight per flow
inline constexpr uint32_t kMaxParts = abi::kMaxLanes;
inline constexpr uint32_t kControlLane = abi::kMaxLanes;  ///< index of the queue pair that carries credits

enum class ControlType : uint8_t { kHello = 1, kWelcome, kReady, kPleaseReset, kReset, kResetDone };

struct QueuePairInfo {
  uint32_t number;         ///< 24 bits
  uint32_t packet_number;  ///< first of the sender's side, 24 bits
};

/// Where a port is on its network.
struct PortInfo {
  uint8_t gid[16];
  uint16_t lid;           ///< InfiniBand
  uint8_t link;           ///< 1 InfiniBand, 2 Ethernet
  uint8_t mtu;            ///< enum ibv_mtu, 1 (256) to 5 (4096)
  uint8_t service_level;  ///< 0 to 15
  uint8_t traffic_class;          ///< of data, as the sender of the message wants it for both directions
  uint8_t control_traffic_class;
  uint8_t others;                 ///< ports that this end could use in place of this one now
};

/// What the receiver knows of one of its slots when it begins anew.
struct SlotReport {
  uint32_t sequence; ///< of the first slot in kPleaseReset, if it is `used`: of the newest credit
  uint8_t used;      ///< 0: no receive was ever posted in this slot
  uint8_t complete;  ///< the whole message is there, its buffer may be gone; of the first slot in kReset: the newest credit had come
  uint8_t arrived;   ///< bit i: part i is there; of the first slot in kReset: credits and what got no answer take the
                     ///< port of data pair arrived - 1, 0: others
  uint8_t unanswered;  ///< of the first slot in kReset: bit i: data pair i got no answer; else 0
  uint32_t key;      ///< of the buffer, which is another one on another port; 0 of one that is complete
};

/// What a message asks for besides what its type says.
enum class Hint : uint32_t {
  kNone = 0,
  kNothingFailed,    ///< kPleaseReset: the receiver wants another port
  kGoesHome,         ///< kPleaseReset, kReset: who speaks takes its home port again
  kTakeAnotherPort,  ///< kReset: nothing gets through, and it is the receiver's turn to change its port, if it has another;
                     ///< kPleaseReset: the port that the sender named cannot be reached
};

struct ControlMessage {
  uint32_t magic;
  uint16_t version;
  ControlType type;
  uint8_t lanes;           ///< data queue pairs, 1 to 8
  uint32_t generation;     ///< how often the flow began anew
  int32_t rank;            ///< of who speaks, -1 if unknown
  uint64_t cookie;         ///< of the listener, in kHello
  uint64_t flow;
  uint64_t memory_address; ///< of the FlowMemory of who speaks
  uint32_t memory_key;
  Hint hint;
  PortInfo port;
  std::array<QueuePairInfo, kMaxParts + 1> queue_pairs;  ///< the last one is for control
  std::array<SlotReport, kSlots> slots;                  ///< kResetDone; the first one also in kPleaseReset and kReset, see SlotReport
};
static_assert(sizeof(PortInfo) == 24 && sizeof(SlotReport) == 12 && sizeof(QueuePairInfo) == 8);
static_assert(sizeof(ControlMessage) == 48 + 24 + 72 + 384);

/// What is wrong with a message that came from outside, or nullptr. `text` is constant and names the field.
const char* CheckControlMessage(const ControlMessage& message);

/// What is wrong with a handle that NCCL carried here, or nullptr. `job_hash`: of this process, 0 for none.
const char* CheckRdmaHandle(const Handle& handle, uint64_t job_hash);

/// When the parts of a message had come, on the receiver's clock: told with a later credit, to be measured by
/// (part_meter.h). Zeros, as older plugins send them, tell nothing.
struct Arrivals {
  static constexpr int kBeforeShift = 4;
  static constexpr uint16_t kUnknown = 0xFFFF;

  uint32_t sequence;  ///< of the message
  uint32_t tick;      ///< the newest part's, as SentTick()
  std::array<uint16_t, kMaxParts> before;  ///< how much earlier a part came, in 2^kBeforeShift ticks; or kUnknown
  uint8_t parts;      ///< of the message
  uint8_t reserved;
  uint16_t late;      ///< how late the times may be, for nobody looked before: in 2^kBeforeShift ticks, or kUnknown
  uint32_t check;     ///< of all before it
};
static_assert(sizeof(Arrivals) == 32);

/// Fills `check`.
void Seal(Arrivals* arrivals);
/// Whether it tells anything, whole: a line of which a part is still on its way does not.
bool Tells(const Arrivals& arrivals);

/// A posted receive, written by the receiver into credits[sequence % kSlots] of the sender's memory. A cache line,
/// with the sequence last; `check` covers the rest, so that a line of which a part is still on its way is not taken
/// for whole.
struct alignas(64) Credit {
  uint64_t address;
  uint64_t size;      ///< room in bytes
  uint32_t key;
  int32_t tag;
  Arrivals arrivals;  ///< of an earlier message; under a check of its own
  uint32_t check;
  uint32_t sequence;
};
static_assert(sizeof(Credit) == 64);

Credit MakeCredit(uint32_t sequence, uint64_t address, uint64_t size, uint32_t key, int32_t tag, const Arrivals& arrivals = {});

/// Whether `*from`, which the network may be writing this moment, holds the credit for `sequence`; copies it.
bool ReadCredit(const Credit* from, uint32_t sequence, Credit* credit);

/// How long a part is, where its last write does not tell: written by the sender into records[slot][part] of the
/// receiver's memory as the last write of the part.
struct Record {
  uint64_t bytes;
  uint32_t sequence;
  uint32_t part;
};
static_assert(sizeof(Record) == 16);

/// The registered memory of one end of a flow.
struct FlowMemory {
  std::array<Credit, kSlots> credits;   ///< sender: incoming; receiver: what it writes from
  std::array<std::array<Record, kMaxParts>, kSlots> records;  ///< sender: what it writes from; receiver: incoming
};

/// An immediate value: bits 31 to 16 low half of the sequence, 15 to 13 parts - 1, 12 to 10 part, 9 has_record.
struct Immediate {
  uint16_t sequence = 0;
  uint8_t parts = 1;       ///< 1 to 8
  uint8_t part = 0;        ///< below parts
  bool has_record = false; ///< the part's length is in its Record
};

/// In host byte order.
uint32_t Encode(const Immediate& immediate);
/// False for a value that no sender makes.
bool Decode(uint32_t value, Immediate* immediate);

}  // namespace weft::net::rdma

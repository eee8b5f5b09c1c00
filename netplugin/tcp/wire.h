// What the plugin puts on the wire and into NCCL's connect handle. Fixed-width, little-endian, no pointers; all of it is
// untrusted when it arrives. Magic numbers, versions, addresses and cookies of Handle and LaneHello keep their places in all
// versions, so that two ranks with different ones can tell each other.
//
//   sender -> receiver, each lane:  LaneHello, then chunks: ChunkHeader, `length` bytes of payload, `padding` bytes
//   receiver -> sender, late lanes: LaneAck before the first chunk; lane 0 needs none
//   sender -> receiver, a connection that takes over a lane whose path is silent: LaneHello with kHelloContinues, after its LaneAck a
//                       LaneResume, then the lane's stream from there on
//   receiver -> sender, lane 0:     PostedNotices, if the sender runs ahead of one of several tags
#pragma once

#include <cstddef>
#include <cstdint>

#include "netplugin/abi/nccl_net.h"

namespace weft::net {

inline constexpr uint32_t kHandleMagic = 0x4C484657;  // "WFHL"
inline constexpr uint32_t kHelloMagic = 0x4E4C4657;   // "WFLN"
inline constexpr uint32_t kAckMagic = 0x4B414657;     // "WFAK"
inline constexpr uint32_t kChunkMagic = 0x4B434657;   // "WFCK"
inline constexpr uint32_t kPostedMagic = 0x53504657;  // "WFPS"
inline constexpr uint32_t kResumeMagic = 0x53524657;  // "WFRS"
inline constexpr uint16_t kWireVersion = 5;

/// What listen() fills in and NCCL carries to the peer. `ticket` is the connect state machine's: zero on the way, then
/// the number of the pending connection of the process that connects (never a pointer: the bytes came from outside).
struct Handle {
  uint32_t magic;
  uint16_t version;
  uint16_t family;      ///< 4 or 6
  uint8_t address[16];
  uint16_t port;
  uint16_t reserved16;
  int32_t rank;         ///< of the listener, -1 if unknown
  uint64_t cookie;      ///< of the listener: a connection without it is dropped
  uint64_t job_hash;    ///< 0: no job id
  uint64_t ticket;
};
static_assert(sizeof(Handle) == 56 && sizeof(Handle) <= nccl::kHandleMaxBytes);

struct LaneHello {
  uint32_t magic;
  uint16_t version;
  uint16_t lane;        ///< 0 opens the flow, 1 to 7 join it
  uint64_t cookie;
  uint64_t flow;
  int32_t rank;         ///< of the sender, -1 if unknown
  uint8_t tos;          ///< what the lane is marked with
  uint8_t flags;
  uint8_t reserved[2];
};
static_assert(sizeof(LaneHello) == 32);

inline constexpr uint8_t kHelloContinues = 1;  ///< flag: not a lane of its own, it takes over the one of that number

struct LaneAck {
  uint32_t magic;
  uint32_t accepted;  ///< 0: the receiver closes the connection
};
static_assert(sizeof(LaneAck) == 8);

/// From which byte on, counted from behind its first LaneHello, this connection carries the lane's stream. The receiver may have more:
/// acknowledgements are lost on a silent path too.
struct LaneResume {
  uint32_t magic;
  uint32_t reserved;
  uint64_t position;
};
static_assert(sizeof(LaneResume) == 16);

/// A shorter chunk that is alone in flight is padded to this, header included: the kernel acknowledges data of which the
/// reader has taken two pieces in the call that reads the second, but what exceeds its least guess at a full segment, 536
/// bytes, when it arrives, which nobody waits for. Two chunks of this size do.
inline constexpr uint32_t kPaddedBytes = 320;
inline constexpr uint32_t kMostPadding = kPaddedBytes;

/// Headers have this size, and what follows them is padded to a multiple of it. The kernel fills its pages with the bytes of
/// a stream one behind the other, so that a payload begins there as many bytes into a cache line as all that went before it
/// leaves over. Copies between that and a buffer at the beginning of a line take up to 1.6 times as long, on both sides.
inline constexpr uint32_t kLineBytes = 64;

inline constexpr uint8_t kChunkCloseLane = 1;  ///< flag: no chunk follows on this lane, it is given up (length 0)
inline constexpr uint8_t kChunkTagged = 2;     ///< flag: the messages up to this one are not all of one tag

/// `length` bytes of message `sequence`, from `offset` on, and `padding` bytes of no meaning behind them. A zero-byte
/// message is one chunk of length 0.
struct ChunkHeader {
  uint32_t magic;
  uint8_t flags;
  uint8_t tos;        ///< what the receiver shall mark its acknowledgements with
  uint16_t padding;   ///< below kLineBytes, or where `length` is below kPaddedBytes up to kMostPadding
  uint32_t sequence;  ///< of the message, modulo 2^32
  uint32_t length;
  uint64_t offset;
  uint64_t total;     ///< bytes of the message
  int32_t tag;        ///< of the message
  uint32_t sent;      ///< SentTick() of when the kernel was given it, 0: not said (arrival_meter.h)
  uint64_t reserved[3] = {};

  /// Bytes, from the header on, that the receiver has together before it looks at any of them: all of a short chunk, so
  /// that it is read and acknowledged as one.
  uint32_t StagedBytes() const {
    return sizeof(ChunkHeader) + (length < kPaddedBytes && padding > 0 ? length + padding : 0);
  }
};
static_assert(sizeof(ChunkHeader) == kLineBytes);

/// `count` receives of `tag` have been posted since the flow began, modulo 2^32. Once one has come the sender takes no
/// more messages of a tag than that.
struct PostedNotice {
  uint32_t magic;
  int32_t tag;
  uint32_t count;
};
static_assert(sizeof(PostedNotice) == 12);

}  // namespace weft::net

// Messages on the agent's Unix socket, `<run-dir>/agent.sock`, SOCK_SEQPACKET: one message per packet, each a
// MessageHeader and its body. The agent knows the peer's uid and pid by SO_PEERCRED and believes no field in their place:
// a process in a PID namespace of its own has another number there, and to the agent maybe none (0).
//
//   plugin -> agent  kHello + telemetry fd          agent -> plugin  kPolicy + policy fd, or kReject
//   plugin -> agent  (closes when the process ends)
//   hook   -> agent  kEnvironmentRequest            agent -> hook    kEnvironmentReply
//   rank 0 -> agent  kStrategyRequest               agent -> rank 0  kEnvironmentReply, or kReject
//   plugin -> agent  kUnsentRequest + TCP fd        agent -> plugin  kUnsentReply (+ fd of the bytes)
//
// The hello names the version of the plugin's telemetry segment, and the policy comes in the same. An agent serves the present version and
// older ones (segment.h) and rejects others: a plugin that is newer than the agent runs without it, and asks again now and then.
//
// A plugin whose agent goes away connects again and sends the same telemetry fd: that is how a restarted agent
// re-adopts running jobs. File descriptors travel as SCM_RIGHTS.
#pragma once

#include <cstdint>

namespace weft::abi {

inline constexpr uint32_t kSocketMagic = 0x54465741;  // "AWFT"
inline constexpr uint16_t kSocketVersion = 1;
inline constexpr char kSocketName[] = "agent.sock";

enum class MessageType : uint16_t {
  kHello = 1,
  kPolicy = 2,
  kReject = 3,
  kEnvironmentRequest = 4,
  kEnvironmentReply = 5,
  kStrategyRequest = 6,
  kUnsentRequest = 7,
  kUnsentReply = 8,
};

struct MessageHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t type;        ///< MessageType
  uint32_t body_bytes;
  uint32_t reserved;
};

struct Hello {
  uint32_t segment_version;  ///< of the telemetry segment
  int32_t rank;              ///< -1 if unknown
  char job[64];              ///< NUL-terminated
};

/// Sent with the policy segment's descriptor.
struct Policy {
  uint32_t segment_version;
  uint32_t reserved;
};

/// Why a hello was refused; the plugin logs it once and runs without an agent.
struct Reject {
  char reason[248];  ///< NUL-terminated
};

struct EnvironmentRequest {
  char job[64];
  char host[64];
};

/// `text` holds `bytes` bytes of KEY=VALUE lines: what the plan wants in the job's launch environment. Variables that
/// the user has set already win over these.
struct EnvironmentReply {
  uint32_t found;  ///< 0: the agent knows no such job
  uint32_t bytes;
  char text[8184];
};

/// The same question by rank 0 of a job that changes its strategy while it runs, and what it runs. Only the job's own user is
/// answered.
struct StrategyRequest {
  char job[64];
  char host[64];
  uint64_t epoch;    ///< newest word that it has seen (WEFT_RESHARD_EPOCH of its environment); 0: none
  uint64_t digest;   ///< of the program that runs
  double iteration_s;  ///< of its last steps; 0: not measured yet
  uint32_t refused;  ///< 1: that word was not followed
  uint32_t reserved;
  char reason[200];  ///< why; NUL-terminated
};

/// Sent with the descriptor of a connection whose path is silent: the agent is to take off it what was never acknowledged, as only
/// CAP_NET_ADMIN may.
struct UnsentRequest {
  uint64_t token;     ///< comes back with the answer
  uint64_t until_ns;  ///< CLOCK_MONOTONIC: later the agent must leave it alone
};

/// With the descriptor of a memory file that begins with `bytes` bytes, for 5 s: then the connection is closed, without a word to its peer.
/// Without one it is as it was, unless the bytes got lost.
struct UnsentReply {
  uint64_t token;
  uint64_t bytes;
  char reason[232];  ///< why not; NUL-terminated
};

static_assert(sizeof(MessageHeader) == 16 && sizeof(Hello) == 72 && sizeof(Reject) == 248);
static_assert(sizeof(EnvironmentReply) == 8192 && sizeof(StrategyRequest) == 360);
static_assert(sizeof(UnsentRequest) == 16 && sizeof(UnsentReply) == 248);

}  // namespace weft::abi

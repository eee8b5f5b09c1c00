// The collective table: which algorithm, protocol and how many channels a communicator uses for a collective of a given
// size. It travels as text in the environment variable WEFT_COLLECTIVES of a job's launch, written once, so that every
// rank has the same table or none; ranks that disagree hang in their first collective. Read by the plugin's tuner face
// and by our own runtime, written by the controller; plain C++ without dependencies, nothing allocated, nothing thrown.
//
//   table      = version *( ";" entry )                     at most kMaxCollectiveText bytes, kMaxCollectiveEntries entries
//   version    = "1"
//   entry      = members ":" collective ":" bytes ":" algorithm ":" protocol ":" channels
//   members    = "*" | ranks [ "x" nodes ] | "#" 16hex      any; so many ranks (on so many nodes); MembersHash()
//   collective = allreduce | allgather | reducescatter | broadcast | reduce | alltoall
//   bytes      = least "-" [ most ]                         of the full buffer, decimal, inclusive; no most: no limit
//   algorithm  = name [ "." parameter ]                     CollectiveAlgorithm below; hierarchical.8: groups of 8
//   protocol   = "-" | ll | ll128 | simple                  "-": the library's own choice
//   channels   = 0 … 64                                     0: the library's own choice
//
//   WEFT_COLLECTIVES="1;16x2:allreduce:0-65535:tree:ll:0;16x2:allreduce:65536-:ring:simple:8"
//
// The first entry that fits decides; a call that none fits is the library's. An entry whose algorithm the reader does not
// run (a tuner for NCCL meets halving-doubling) does not fit. A text with any mistake is refused whole: half a table on
// some ranks would be worse than none. No blanks; text without commas, quotes and '=' passes through every launcher.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::abi {

inline constexpr char kCollectivesVariable[] = "WEFT_COLLECTIVES";
inline constexpr uint32_t kCollectiveTableVersion = 1;
inline constexpr uint32_t kMaxCollectiveEntries = 64;
inline constexpr size_t kMaxCollectiveText = 4096;   ///< bytes, half of what an agent hands to a hook
inline constexpr uint32_t kMaxCollectiveChannels = 64;
inline constexpr uint32_t kMaxCollectiveRanks = 1 << 20;
inline constexpr uint64_t kNoByteLimit = UINT64_MAX;

enum class CollectiveOp : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll };

/// The first seven have the numbers of NCCL_ALGO_*; those after them are schedules that only our own runtime executes.
enum class CollectiveAlgorithm : uint8_t {
  kTree = 0, kRing = 1, kCollNetDirect = 2, kCollNetChain = 3, kNvls = 4, kNvlsTree = 5, kPat = 6,
  kHalvingDoubling, kHierarchical, kTorus, kDirect, kPairwise, kParameterServer, kPipelined, kForest
};
inline constexpr uint32_t kNcclAlgorithms = 7;

/// kLl to kSimple are the numbers of NCCL_PROTO_* plus one.
enum class CollectiveProtocol : uint8_t { kAny = 0, kLl = 1, kLl128 = 2, kSimple = 3 };

/// Whom an entry is for.
enum class MembersKind : uint8_t { kAny, kRanks, kHash };

struct CollectiveEntry {
  uint64_t least_bytes = 0;
  uint64_t most_bytes = kNoByteLimit;          ///< inclusive
  uint64_t members_hash = 0;                   ///< for kHash
  uint32_t ranks = 0;                          ///< for kRanks, ≥ 1
  uint32_t nodes = 0;                          ///< for kRanks; 0: on any number of nodes
  uint32_t parameter = 0;                      ///< of the algorithm; 0: its default
  MembersKind members = MembersKind::kAny;
  CollectiveOp collective = CollectiveOp::kAllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  CollectiveProtocol protocol = CollectiveProtocol::kAny;
  uint32_t channels = 0;                       ///< 0: the library's own choice

  friend bool operator==(const CollectiveEntry&, const CollectiveEntry&) = default;
};

struct CollectiveTable {
  uint32_t count = 0;
  CollectiveEntry entries[kMaxCollectiveEntries];
};

/// A communicator asks.
struct CollectiveQuery {
  CollectiveOp collective = CollectiveOp::kAllReduce;
  uint64_t bytes = 0;                          ///< of the full buffer: what all ranks have gathered, or will reduce
  uint32_t ranks = 0;
  uint32_t nodes = 0;                          ///< 0 if unknown: then only entries without nodes fit
  uint64_t members_hash = 0;                   ///< 0 if unknown
  bool nccl = true;                            ///< only the algorithms that NCCL has fit
};

/// What is wrong with `text`, or nullptr if `table` holds it. The answer is constant and says what was expected; `at` is the
/// offset where it was. On a mistake the table is empty. Complexity: linear.
const char* ParseCollectiveTable(const char* text, size_t length, CollectiveTable* table, size_t* at);

/// Writes the table and a NUL; returns the length without it, or 0 if `capacity` or kMaxCollectiveText is too small, or an
/// entry could not be read back. Parse(Print(t)) = t.
size_t PrintCollectiveTable(const CollectiveTable& table, char* text, size_t capacity);

/// The first entry that fits, or nullptr.
const CollectiveEntry* FindCollective(const CollectiveTable& table, const CollectiveQuery& query);

/// FNV-1a over the communicator's global ranks, each as four bytes, least first, in the communicator's order; never 0.
/// Requires: ranks has `count` entries.
uint64_t MembersHash(const int32_t* ranks, size_t count);

/// As the text has them; nullptr for a value outside the enumeration.
const char* CollectiveOpName(CollectiveOp collective);
const char* CollectiveAlgorithmName(CollectiveAlgorithm algorithm);
const char* CollectiveProtocolName(CollectiveProtocol protocol);

}  // namespace weft::abi

// A collective as steps: what each rank sends, receives, reduces and copies, chunk by chunk, and which step waits for
// which. It is the planner's own lowering of an algorithm, and the program that collectives/ runs over a plugin: an
// algorithm that can be written as a Schedule needs no new code to be executed.
//
// The data of a collective is cut into `chunk_count` equal chunks of its FULL buffer (the gathered or reduced one; for
// all-to-all the concatenation of one rank's blocks). A buffer that holds less has fewer chunks:
//
//   collective       input chunks            output chunks
//   all-reduce       chunk_count             chunk_count
//   all-gather       chunk_count / ranks     chunk_count             rank r contributes chunks [r c/n, (r+1) c/n)
//   reduce-scatter   chunk_count             chunk_count / ranks     rank r keeps chunks [r c/n, (r+1) c/n)
//   broadcast        chunk_count (root)      chunk_count
//   all-to-all       chunk_count             chunk_count             block b of the input goes to rank b
//   send/recv        chunk_count             chunk_count             rank 0 sends to rank 1; of a shift, each to the next
//
// Chunk indices are positions in the named buffer. Scratch has `scratch_chunks` chunks. Sends and receives between one
// ordered pair of ranks match in the order in which they stand in the two ranks' step lists. Every chunk may be cut
// further into slices: each step then runs slice by slice and waits only for the same slice of what it depends on,
// which is what pipelines a ring. Slice i of every chunk and of every scratch chunk is the same range of offsets, so that
// slices of different chunks never overlap in a reused scratch chunk; a chunk too short for slice i has it empty.
//
// Steps of one rank run in any order and at the same time, as far as `needs` lets them and pairs of ranks stay in order.
// Input is never written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/result.h"

namespace weft::planner::inline collectives {

enum class Collective { kSendRecv, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast };

/// "sendrecv", "allreduce", "allgather", "reducescatter", "alltoall", "broadcast": the names of the command line.
std::string_view CollectiveName(Collective collective);
/// Errors: kInvalidArgument with the accepted names.
[[nodiscard]] Result<Collective> ParseCollective(std::string_view name);

enum class BufferKind : uint8_t { kInput, kOutput, kScratch };
enum class StepKind : uint8_t {
  kSend,    ///< source -> peer
  kRecv,    ///< peer -> destination
  kReduce,  ///< destination = destination + source
  kCopy,    ///< destination = source
};

/// A chunk of one of the rank's buffers.
struct ChunkRef {
  BufferKind buffer = BufferKind::kInput;
  int32_t chunk = 0;

  friend bool operator==(const ChunkRef&, const ChunkRef&) = default;
};

/// One step of one rank. `needs` are earlier steps of the same rank (indices into its list, ascending) that must have
/// finished with a slice before this step may touch it.
struct Step {
  StepKind kind = StepKind::kCopy;
  RankId peer;           ///< of kSend and kRecv
  ChunkRef source;       ///< of kSend, kReduce, kCopy
  ChunkRef destination;  ///< of kRecv, kReduce, kCopy
  std::vector<StepId> needs;
};

/// A whole collective. `ranks[r]` are the steps of rank r in order.
struct Schedule {
  Collective collective = Collective::kAllReduce;
  std::string algorithm;  ///< e.g. "ring"
  int32_t chunk_count = 0;
  int32_t scratch_chunks = 0;
  std::vector<std::vector<Step>> ranks;

  int32_t rank_count() const { return static_cast<int32_t>(ranks.size()); }
  /// Chunks of each rank's input and output, by the table above (the broadcast's for its root).
  int32_t input_chunks() const;
  int32_t output_chunks() const;
};

/// Whether `schedule` can run at all: chunk indices in range, needs earlier than their step, peers in range, as many
/// sends from a to b as receives at b from a, and no deadlock when a send is not done before it is received.
/// Errors: kInvalidArgument naming rank and step. Complexity: O(steps).
[[nodiscard]] Status ValidateSchedule(const Schedule& schedule);

}  // namespace weft::planner::collectives

// Puts a Schedule together from transfers between ranks, sums and copies, in any order in which they could be carried out
// one after another. The builder finds what each step needs: the last writer of what it reads, and the readers and the
// writer of what it overwrites. Since the order of the calls is one legal execution, no schedule built here can deadlock.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

inline ChunkRef InputChunk(int32_t chunk) { return {BufferKind::kInput, chunk}; }
inline ChunkRef OutputChunk(int32_t chunk) { return {BufferKind::kOutput, chunk}; }
inline ChunkRef ScratchChunk(int32_t chunk) { return {BufferKind::kScratch, chunk}; }

class ScheduleBuilder {
 public:
  /// `reserved` scratch chunks, 0 to reserved - 1, belong to the caller; the builder takes what it needs behind them.
  ScheduleBuilder(Collective collective, std::string algorithm, int32_t ranks, int32_t chunks, int32_t reserved = 0);

  int32_t ranks() const { return schedule_.rank_count(); }
  int32_t chunks() const { return schedule_.chunk_count; }

  void Transfer(int32_t from, ChunkRef source, int32_t to, ChunkRef destination);
  /// `source` of `from` is added to `destination` of `to`, by way of a scratch chunk of `to`.
  void TransferAndAdd(int32_t from, ChunkRef source, int32_t to, ChunkRef destination);
  void Copy(int32_t rank, ChunkRef destination, ChunkRef source);

  /// What a rank sends and receives from here on waits for all that it sent and received before. Without a fence a rank that
  /// is early with one chunk sends it ahead and takes the port of a transfer that others wait for.
  void Fence();

  /// The schedule; the builder is spent.
  Schedule Finish();

 private:
  /// Who last wrote a chunk of one rank, and who has read it since; indices into the rank's steps.
  struct Place {
    int32_t writer = -1;
    std::vector<int32_t> readers;
  };
  using Lane = std::pair<int32_t, StepKind>;   // peer, direction
  struct RankState {
    std::array<std::vector<Place>, 3> places;  // by BufferKind
    std::map<Lane, int32_t> last;              // transfer of each lane since the fence; transfers of a lane end in order
    std::vector<int32_t> fence;                // the last ones before it
    std::deque<int32_t> free_scratch;          // longest free first
    int32_t scratch = 0;                       // chunks in use so far
  };

  Place& At(int32_t rank, ChunkRef chunk);
  void Add(int32_t rank, Step step);
  void KeepFence(int32_t rank, const Step& step, int32_t self, std::vector<int32_t>* needs);
  int32_t TakeScratch(int32_t rank);

  Schedule schedule_;
  std::vector<RankState> state_;
};

}  // namespace weft::planner::collectives

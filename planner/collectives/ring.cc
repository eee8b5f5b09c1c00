#include "planner/collectives/ring.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::planner::inline collectives {
namespace {

// A receive may run this many ring steps ahead of the reduction or send that frees its scratch chunk.
constexpr int32_t kScratchChunks = 3;

/// Appends the steps of one rank.
class RankSteps {
 public:
  RankSteps(std::vector<Step>* steps, int32_t rank, int32_t ranks) : steps_(steps), rank_(rank), ranks_(ranks) {}

  StepId Send(ChunkRef source, int32_t peer, std::vector<StepId> needs) {
    return Add({.kind = StepKind::kSend, .peer = RankId(peer), .source = source, .needs = std::move(needs)});
  }
  StepId Receive(ChunkRef destination, int32_t peer, std::vector<StepId> needs) {
    return Add({.kind = StepKind::kRecv, .peer = RankId(peer), .destination = destination, .needs = std::move(needs)});
  }
  StepId Reduce(ChunkRef destination, ChunkRef source, std::vector<StepId> needs) {
    return Add({.kind = StepKind::kReduce, .source = source, .destination = destination, .needs = std::move(needs)});
  }
  StepId Copy(ChunkRef destination, ChunkRef source) {
    return Add({.kind = StepKind::kCopy, .source = source, .destination = destination});
  }

  /// The rank `distance` further round the ring (negative: back); also the index of that rank's chunk.
  int32_t At(int32_t distance) const { return ((rank_ + distance) % ranks_ + ranks_) % ranks_; }
  int32_t next() const { return At(1); }
  int32_t previous() const { return At(-1); }

 private:
  StepId Add(Step step) {
    std::sort(step.needs.begin(), step.needs.end());
    steps_->push_back(std::move(step));
    return StepId(static_cast<int32_t>(steps_->size()) - 1);
  }

  std::vector<Step>* steps_;
  int32_t rank_;
  int32_t ranks_;
};

ChunkRef Input(int32_t chunk) { return {BufferKind::kInput, chunk}; }
ChunkRef Output(int32_t chunk) { return {BufferKind::kOutput, chunk}; }
ChunkRef Scratch(int32_t chunk) { return {BufferKind::kScratch, chunk}; }

// Reduce-scatter in the output, so that chunk r ends whole at rank r, then all-gather. In step k rank r sends chunk
// r-1-k and adds chunk r-2-k of its predecessor to its own.
void AllReduceSteps(RankSteps& rank, int32_t ranks, int32_t scratch) {
  std::vector<StepId> sends, reduces;
  StepId whole = rank.Copy(Output(rank.At(-1)), Input(rank.At(-1)));  // the last step that wrote what is sent next
  for (int32_t k = 0; k + 1 < ranks; ++k) {
    sends.push_back(rank.Send(Output(rank.At(-1 - k)), rank.next(), {whole}));
    const StepId copy = rank.Copy(Output(rank.At(-2 - k)), Input(rank.At(-2 - k)));
    std::vector<StepId> slot_free;
    if (k >= scratch) slot_free.push_back(reduces[static_cast<size_t>(k - scratch)]);
    const StepId receive = rank.Receive(Scratch(k % scratch), rank.previous(), std::move(slot_free));
    whole = rank.Reduce(Output(rank.At(-2 - k)), Scratch(k % scratch), {copy, receive});
    reduces.push_back(whole);
  }
  for (int32_t k = 0; k + 1 < ranks; ++k) {
    rank.Send(Output(rank.At(-k)), rank.next(), {whole});
    // The partial sum of this chunk must have left before the whole one overwrites it.
    whole = rank.Receive(Output(rank.At(-1 - k)), rank.previous(), {sends[static_cast<size_t>(k)]});
  }
}

// Partial sums travel through scratch; the last one is received where it stays. Input is only read.
void ReduceScatterSteps(RankSteps& rank, int32_t ranks, int32_t scratch) {
  std::vector<StepId> sends;
  StepId sum;
  for (int32_t k = 0; k + 1 < ranks; ++k) {
    sends.push_back(k == 0 ? rank.Send(Input(rank.At(-1)), rank.next(), {})
                           : rank.Send(Scratch((k - 1) % scratch), rank.next(), {sum}));
    const bool last = k + 2 == ranks;
    const ChunkRef place = last ? Output(0) : Scratch(k % scratch);
    std::vector<StepId> slot_free;  // step k+1 sends the scratch chunk of step k
    if (!last && k >= scratch) slot_free.push_back(sends[static_cast<size_t>(k - scratch + 1)]);
    const StepId receive = rank.Receive(place, rank.previous(), std::move(slot_free));
    sum = rank.Reduce(place, Input(rank.At(-2 - k)), {receive});
  }
}

void AllGatherSteps(RankSteps& rank, int32_t ranks) {
  rank.Copy(Output(rank.At(0)), Input(0));
  StepId received;
  for (int32_t k = 0; k + 1 < ranks; ++k) {
    if (k == 0) {
      rank.Send(Input(0), rank.next(), {});
    } else {
      rank.Send(Output(rank.At(-k)), rank.next(), {received});
    }
    received = rank.Receive(Output(rank.At(-1 - k)), rank.previous(), {});
  }
}

void AllToAllSteps(RankSteps& rank, int32_t ranks) {
  rank.Copy(Output(rank.At(0)), Input(rank.At(0)));
  for (int32_t k = 1; k < ranks; ++k) {
    rank.Send(Input(rank.At(k)), rank.At(k), {});
    rank.Receive(Output(rank.At(-k)), rank.At(-k), {});
  }
}

// One chunk: slices make the pipeline.
void BroadcastSteps(RankSteps& rank, int32_t ranks, int32_t root) {
  const int32_t hop = rank.At(-root);  // hops from the root
  if (hop == 0) {
    rank.Copy(Output(0), Input(0));
    if (ranks > 1) rank.Send(Input(0), rank.next(), {});
    return;
  }
  const StepId received = rank.Receive(Output(0), rank.previous(), {});
  if (hop + 1 < ranks) rank.Send(Output(0), rank.next(), {received});
}

void AddSteps(Collective collective, int32_t rank, int32_t root, Schedule* schedule) {
  const int32_t ranks = schedule->rank_count();
  RankSteps steps(&schedule->ranks[static_cast<size_t>(rank)], rank, ranks);
  if (ranks == 1) {
    steps.Copy(Output(0), Input(0));
    return;
  }
  switch (collective) {
    case Collective::kSendRecv:
      rank == 0 ? steps.Send(Input(0), 1, {}) : steps.Receive(Output(0), 0, {});
      return;
    case Collective::kAllReduce: return AllReduceSteps(steps, ranks, schedule->scratch_chunks);
    case Collective::kAllGather: return AllGatherSteps(steps, ranks);
    case Collective::kReduceScatter: return ReduceScatterSteps(steps, ranks, std::max(1, schedule->scratch_chunks));
    case Collective::kAllToAll: return AllToAllSteps(steps, ranks);
    case Collective::kBroadcast: return BroadcastSteps(steps, ranks, root);
  }
}

}  // namespace

Result<Schedule> RingSchedule(Collective collective, int32_t ranks, RankId root) {
  if (ranks < 1) {
    return Fail(Code::kInvalidArgument, fmt::format("ring {}: {} ranks, expected at least 1",
                                                    CollectiveName(collective), ranks));
  }
  if (collective == Collective::kSendRecv && ranks != 2) {
    return Fail(Code::kInvalidArgument, fmt::format("ring sendrecv: {} ranks, expected 2", ranks));
  }
  if (root.value() < 0 || root.value() >= ranks) {
    return Fail(Code::kInvalidArgument, fmt::format("ring {}: root {}, expected a rank below {}",
                                                    CollectiveName(collective), root.value(), ranks));
  }
  Schedule schedule;
  schedule.collective = collective;
  schedule.algorithm = collective == Collective::kAllToAll ? "pairwise" : "ring";
  const bool whole = collective == Collective::kSendRecv || collective == Collective::kBroadcast;
  schedule.chunk_count = whole ? 1 : ranks;
  // The reduce-scatter receives its last sum into the output.
  if (collective == Collective::kAllReduce) schedule.scratch_chunks = std::min(ranks - 1, kScratchChunks);
  if (collective == Collective::kReduceScatter) schedule.scratch_chunks = std::clamp(ranks - 2, 0, kScratchChunks);
  schedule.ranks.resize(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) AddSteps(collective, rank, root.value(), &schedule);
  return schedule;
}

Schedule RingShift(int32_t ranks) {
  Schedule schedule{.collective = Collective::kSendRecv, .algorithm = "shift", .chunk_count = 1};
  schedule.ranks.resize(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    RankSteps steps(&schedule.ranks[static_cast<size_t>(rank)], rank, ranks);
    steps.Send(Input(0), steps.next(), {});
    steps.Receive(Output(0), steps.previous(), {});
  }
  return schedule;
}

Schedule NeighbourExchange(int32_t ranks) {
  Schedule schedule{.collective = Collective::kSendRecv, .algorithm = "neighbours", .chunk_count = 2};
  schedule.ranks.resize(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    RankSteps steps(&schedule.ranks[static_cast<size_t>(rank)], rank, ranks);
    if (rank > 0) steps.Send(Input(0), rank - 1, {});
    if (rank + 1 < ranks) steps.Send(Input(1), rank + 1, {});
    if (rank > 0) steps.Receive(Output(0), rank - 1, {});
    if (rank + 1 < ranks) steps.Receive(Output(1), rank + 1, {});
  }
  return schedule;
}

Schedule RingReduce(int32_t ranks, RankId root) {
  Schedule schedule{.collective = Collective::kAllReduce, .algorithm = "reduce", .chunk_count = 1, .scratch_chunks = 1};
  schedule.ranks.resize(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    RankSteps steps(&schedule.ranks[static_cast<size_t>(rank)], rank, ranks);
    if (steps.previous() == root.value()) {  // the farthest one
      steps.Send(Input(0), steps.next(), {});
      continue;
    }
    const ChunkRef sum = rank == root.value() ? Output(0) : Scratch(0);
    const StepId received = steps.Receive(sum, steps.previous(), {});
    const StepId added = steps.Reduce(sum, Input(0), {received});
    if (rank != root.value()) steps.Send(sum, steps.next(), {added});
  }
  return schedule;
}

double BusBandwidthFactor(Collective collective, int32_t ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::kAllReduce: return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: return (n - 1) / n;
    case Collective::kSendRecv:
    case Collective::kBroadcast: return 1;
  }
  return 1;
}

}  // namespace weft::planner::collectives

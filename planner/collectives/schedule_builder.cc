#include "planner/collectives/schedule_builder.h"

#include <algorithm>
#include <utility>

namespace weft::planner::inline collectives {
namespace {

// A scratch chunk is used again only when others have been freed since: a receive that had to wait for the sum just before
// it would stop the transfers from running ahead of the sums. As many as the full buffer has chunks, and at least so many.
constexpr int32_t kLeastSpare = 3;

}  // namespace

ScheduleBuilder::ScheduleBuilder(Collective collective, std::string algorithm, int32_t ranks, int32_t chunks,
                                 int32_t reserved)
    : state_(static_cast<size_t>(ranks)) {
  schedule_.collective = collective;
  schedule_.algorithm = std::move(algorithm);
  schedule_.chunk_count = chunks;
  schedule_.scratch_chunks = reserved;
  schedule_.ranks.resize(static_cast<size_t>(ranks));
  for (RankState& state : state_) state.scratch = reserved;
}

ScheduleBuilder::Place& ScheduleBuilder::At(int32_t rank, ChunkRef chunk) {
  std::vector<Place>& places = state_[static_cast<size_t>(rank)].places[static_cast<size_t>(chunk.buffer)];
  const auto index = static_cast<size_t>(chunk.chunk);
  if (index >= places.size()) places.resize(index + 1);
  return places[index];
}

void ScheduleBuilder::Add(int32_t rank, Step step) {
  std::vector<Step>& steps = schedule_.ranks[static_cast<size_t>(rank)];
  const auto self = static_cast<int32_t>(steps.size());
  std::vector<int32_t> needs;
  if (step.kind != StepKind::kRecv) {
    Place& source = At(rank, step.source);
    if (source.writer >= 0) needs.push_back(source.writer);
    source.readers.push_back(self);
  }
  if (step.kind != StepKind::kSend) {
    Place& destination = At(rank, step.destination);
    if (destination.writer >= 0) needs.push_back(destination.writer);
    for (const int32_t reader : destination.readers) {
      if (reader != self) needs.push_back(reader);
    }
    destination.writer = self;
    destination.readers.clear();
  }
  if (step.peer.valid()) KeepFence(rank, step, self, &needs);
  std::sort(needs.begin(), needs.end());
  needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
  for (const int32_t need : needs) step.needs.emplace_back(need);
  steps.push_back(std::move(step));
}

/// Only the first transfer of a lane waits: the others of the lane come after it anyway.
void ScheduleBuilder::KeepFence(int32_t rank, const Step& step, int32_t self, std::vector<int32_t>* needs) {
  RankState& state = state_[static_cast<size_t>(rank)];
  const auto [lane, first] = state.last.insert_or_assign({step.peer.value(), step.kind}, self);
  if (first) needs->insert(needs->end(), state.fence.begin(), state.fence.end());
}

void ScheduleBuilder::Fence() {
  for (RankState& state : state_) {
    if (state.last.empty()) continue;  // the one before still holds
    state.fence.clear();
    for (const auto& [lane, step] : state.last) state.fence.push_back(step);
    state.last.clear();
  }
}

int32_t ScheduleBuilder::TakeScratch(int32_t rank) {
  RankState& state = state_[static_cast<size_t>(rank)];
  if (static_cast<int32_t>(state.free_scratch.size()) < std::max(kLeastSpare, schedule_.chunk_count)) {
    schedule_.scratch_chunks = std::max(schedule_.scratch_chunks, state.scratch + 1);
    return state.scratch++;
  }
  const int32_t chunk = state.free_scratch.front();
  state.free_scratch.pop_front();
  return chunk;
}

void ScheduleBuilder::Transfer(int32_t from, ChunkRef source, int32_t to, ChunkRef destination) {
  Add(from, {.kind = StepKind::kSend, .peer = RankId(to), .source = source});
  Add(to, {.kind = StepKind::kRecv, .peer = RankId(from), .destination = destination});
}

void ScheduleBuilder::TransferAndAdd(int32_t from, ChunkRef source, int32_t to, ChunkRef destination) {
  const int32_t scratch = TakeScratch(to);
  Transfer(from, source, to, ScratchChunk(scratch));
  Add(to, {.kind = StepKind::kReduce, .source = ScratchChunk(scratch), .destination = destination});
  state_[static_cast<size_t>(to)].free_scratch.push_back(scratch);
}

void ScheduleBuilder::Copy(int32_t rank, ChunkRef destination, ChunkRef source) {
  Add(rank, {.kind = StepKind::kCopy, .source = source, .destination = destination});
}

Schedule ScheduleBuilder::Finish() { return std::move(schedule_); }

}  // namespace weft::planner::collectives

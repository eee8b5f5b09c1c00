#include "collectives/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace weft::collectives {
namespace {

using planner::BufferKind;
using planner::ChunkRef;
using planner::Collective;
using planner::Schedule;
using planner::Step;
using planner::StepKind;

/// Where the chunks of each rank's buffers lie. A buffer that holds part of the full one has the same chunk lengths as
/// that part.
class Geometry {
 public:
  Geometry(const Schedule& schedule, int64_t count) : schedule_(schedule), count_(count) {}

  int64_t Offset(int32_t rank, ChunkRef chunk) const {
    if (chunk.buffer == BufferKind::kScratch) return chunk.chunk * ScratchChunk();
    const int64_t base = Base(rank, chunk.buffer);
    return Begin(base + chunk.chunk) - Begin(base);
  }
  int64_t Length(int32_t rank, ChunkRef chunk) const {
    const int64_t at = Base(rank, chunk.buffer) + chunk.chunk;
    return Begin(at + 1) - Begin(at);
  }
  int64_t ScratchChunk() const { return (count_ + schedule_.chunk_count - 1) / schedule_.chunk_count; }
  int64_t Elements(int32_t rank, BufferKind buffer, int32_t chunks) const {
    const int64_t base = Base(rank, buffer);
    return Begin(base + chunks) - Begin(base);
  }
  bool Even() const { return count_ % schedule_.chunk_count == 0; }

 private:
  int64_t Begin(int64_t chunk) const { return ChunkBegin(chunk, count_, schedule_.chunk_count); }
  /// Index in the full buffer of the first chunk of `buffer`.
  int64_t Base(int32_t rank, BufferKind buffer) const {
    const bool part = (buffer == BufferKind::kInput && schedule_.collective == Collective::kAllGather) ||
                      (buffer == BufferKind::kOutput && schedule_.collective == Collective::kReduceScatter);
    return part ? int64_t{rank} * (schedule_.chunk_count / schedule_.rank_count()) : 0;
  }

  const Schedule& schedule_;
  int64_t count_;
};

/// How many elements each step moves. Only a chunk of scratch has no length of its own: it has that of what was last
/// put there in list order, which for a receive is what the sender had. Followed back to a chunk with a length.
class Lengths {
 public:
  Lengths(const Schedule& schedule, const Geometry& geometry) : schedule_(schedule), geometry_(geometry) {
    for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) Index(rank);
  }

  Result<std::vector<int64_t>> Of(int32_t rank) {
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < Steps(rank).size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const int64_t length, Length({rank, i}));
      WEFT_RETURN_IF_ERROR(CheckEnds({rank, i}, length));
      lengths.push_back(length);
    }
    return lengths;
  }

 private:
  struct Place {
    int32_t rank;
    size_t step;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  static constexpr int64_t kInProgress = -1;

  const std::vector<Step>& Steps(int32_t rank) const { return schedule_.ranks[static_cast<size_t>(rank)]; }

  /// Notes who filled each scratch chunk that is read, and which send each receive meets.
  void Index(int32_t rank) {
    std::map<int32_t, size_t> filled;
    for (size_t i = 0; i < Steps(rank).size(); ++i) {
      const Step& step = Steps(rank)[i];
      if (step.kind != StepKind::kRecv && step.source.buffer == BufferKind::kScratch) {
        if (const auto by = filled.find(step.source.chunk); by != filled.end()) origin_[{rank, i}] = {rank, by->second};
      }
      if (step.kind == StepKind::kSend) sends_[{rank, step.peer.value()}].push_back(i);
      if (step.kind == StepKind::kRecv) {
        const size_t ordinal = received_[{step.peer.value(), rank}]++;
        receive_ordinal_[{rank, i}] = ordinal;
      }
      const bool fills = step.kind == StepKind::kRecv || step.kind == StepKind::kCopy;
      if (fills && step.destination.buffer == BufferKind::kScratch) filled[step.destination.chunk] = i;
    }
  }

  Place SendOf(Place receive) {
    const int32_t peer = Steps(receive.rank)[receive.step].peer.value();
    return {peer, sends_[{peer, receive.rank}][receive_ordinal_[receive]]};
  }

  Result<int64_t> Length(Place place) {
    const auto known = length_.find(place);
    if (known != length_.end() && known->second != kInProgress) return known->second;
    const Step& step = Steps(place.rank)[place.step];
    const bool receive = step.kind == StepKind::kRecv;
    const ChunkRef chunk = receive ? step.destination : step.source;
    int64_t length = 0;
    if (chunk.buffer != BufferKind::kScratch) {
      length = geometry_.Length(place.rank, chunk);
    } else {
      const auto origin = origin_.find(place);
      if (known != length_.end() || (!receive && origin == origin_.end())) {
        return Fail(Code::kInvalidArgument,
                    fmt::format("schedule {}: rank {} step {}: reads scratch chunk {} that nothing has filled",
                                schedule_.algorithm, place.rank, place.step, chunk.chunk));
      }
      length_[place] = kInProgress;
      WEFT_ASSIGN_OR_RETURN(length, Length(receive ? SendOf(place) : origin->second));
    }
    length_[place] = length;
    return length;
  }

  /// What arrives must fill the chunk it is for.
  Status CheckEnds(Place place, int64_t length) {
    const Step& step = Steps(place.rank)[place.step];
    int64_t have = length;
    if (step.kind == StepKind::kRecv) {
      WEFT_ASSIGN_OR_RETURN(have, Length(SendOf(place)));
    } else if (step.kind != StepKind::kSend && step.destination.buffer != BufferKind::kScratch) {
      length = geometry_.Length(place.rank, step.destination);
    }
    if (have == length) return Ok();
    return Fail(Code::kInvalidArgument, fmt::format("schedule {}: rank {} step {}: {} elements into a chunk of {}",
                                                    schedule_.algorithm, place.rank, place.step, have, length));
  }

  const Schedule& schedule_;
  const Geometry& geometry_;
  std::map<Place, Place> origin_;  // of a step that reads scratch: the step that filled it
  std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> sends_;
  std::map<std::pair<int32_t, int32_t>, size_t> received_;
  std::map<Place, size_t> receive_ordinal_;
  std::map<Place, int64_t> length_;
};

/// A copy of a chunk onto itself.
bool NoOp(const Step& step) {
  return step.kind == StepKind::kCopy && step.source.buffer == BufferKind::kInput &&
         step.destination.buffer == BufferKind::kOutput && step.source.chunk == step.destination.chunk;
}

bool Reads(const Step& step, BufferKind buffer) { return step.kind != StepKind::kRecv && step.source.buffer == buffer; }
bool Writes(const Step& step, BufferKind buffer) {
  return step.kind != StepKind::kSend && step.destination.buffer == buffer;
}

void Need(ProgramStep* step, int32_t other) {
  if (std::find(step->needs.begin(), step->needs.end(), other) == step->needs.end()) step->needs.push_back(other);
}

/// With input and output in one memory, a write of output chunk c must wait for the earlier reads of input chunk c; a
/// later read would find the wrong data, and asks for a copy of the input.
void OrderInPlace(const std::vector<Step>& steps, Program* program) {
  std::map<int32_t, std::vector<int32_t>> readers;
  std::map<int32_t, bool> written;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (NoOp(step)) continue;
    if (Reads(step, BufferKind::kInput)) {
      if (written[step.source.chunk]) program->stage_input = true;
      readers[step.source.chunk].push_back(static_cast<int32_t>(i));
    }
    if (Writes(step, BufferKind::kOutput)) {
      written[step.destination.chunk] = true;
      for (const int32_t reader : readers[step.destination.chunk]) {
        if (reader != static_cast<int32_t>(i)) Need(&program->steps[i], reader);
        else program->stage_input = true;
      }
    }
  }
}

/// Sums into one chunk happen in list order, so that timing never changes a result.
void OrderReductions(const std::vector<Step>& steps, Program* program) {
  std::map<std::pair<BufferKind, int32_t>, int32_t> last_writer;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind == StepKind::kSend) continue;
    const std::pair place{steps[i].destination.buffer, steps[i].destination.chunk};
    const auto writer = last_writer.find(place);
    if (steps[i].kind == StepKind::kReduce && writer != last_writer.end()) {
      Need(&program->steps[i], writer->second);
    }
    last_writer[place] = static_cast<int32_t>(i);
  }
}

Status CheckFits(const Schedule& schedule, const ProgramOptions& options) {
  if (options.rank.value() < 0 || options.rank.value() >= schedule.rank_count()) {
    return Fail(Code::kInvalidArgument, fmt::format("schedule {}: for {} ranks, this is rank {}", schedule.algorithm,
                                                    schedule.rank_count(), options.rank.value()));
  }
  if (options.count < 0) {
    return Fail(Code::kInvalidArgument, fmt::format("count {}: expected at least 0", options.count));
  }
  if (schedule.collective == Collective::kAllToAll && options.count % schedule.chunk_count != 0) {
    return Fail(Code::kInvalidArgument, fmt::format("all-to-all of {} elements: expected a multiple of {} chunks",
                                                    options.count, schedule.chunk_count));
  }
  return Ok();
}

std::vector<RankPair> PairsOf(const Schedule& schedule) {
  std::vector<RankPair> pairs;
  for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    for (const Step& step : schedule.ranks[static_cast<size_t>(rank)]) {
      if (step.kind == StepKind::kSend) pairs.push_back({rank, step.peer.value()});
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

}  // namespace

int64_t ChunkBegin(int64_t chunk, int64_t count, int64_t chunks) {
  return chunk * (count / chunks) + chunk * (count % chunks) / chunks;
}

Result<Program> CompileProgram(const Schedule& schedule, const ProgramOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckFits(schedule, options));
  const int32_t rank = options.rank.value();
  const Geometry geometry(schedule, options.count);
  const std::vector<Step>& steps = schedule.ranks[static_cast<size_t>(rank)];
  std::vector<int64_t> lengths(steps.size(), geometry.ScratchChunk());
  if (!geometry.Even()) {
    WEFT_ASSIGN_OR_RETURN(lengths, Lengths(schedule, geometry).Of(rank));
  }
  Program program;
  program.slice_elements = std::max<int64_t>(1, options.slice_elements);
  program.slices = (geometry.ScratchChunk() + program.slice_elements - 1) / program.slice_elements;
  program.input_elements = geometry.Elements(rank, BufferKind::kInput, schedule.input_chunks());
  program.output_elements = geometry.Elements(rank, BufferKind::kOutput, schedule.output_chunks());
  program.scratch_elements = geometry.ScratchChunk() * schedule.scratch_chunks;
  program.pairs = PairsOf(schedule);
  program.steps.resize(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    ProgramStep& step = program.steps[i];
    step.kind = steps[i].kind;
    step.elements = lengths[i];
    for (const StepId need : steps[i].needs) step.needs.push_back(need.value());
    if (step.kind != StepKind::kRecv) step.source = {steps[i].source.buffer, geometry.Offset(rank, steps[i].source)};
    if (step.kind != StepKind::kSend) {
      step.destination = {steps[i].destination.buffer, geometry.Offset(rank, steps[i].destination)};
    }
    if (step.kind == StepKind::kSend || step.kind == StepKind::kRecv) step.peer = steps[i].peer.value();
    program.reads_input |= step.elements > 0 && Reads(steps[i], BufferKind::kInput);
    program.writes_output |= step.elements > 0 && Writes(steps[i], BufferKind::kOutput);
  }
  OrderReductions(steps, &program);
  if (options.in_place) OrderInPlace(steps, &program);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (const int32_t need : program.steps[i].needs) {
      program.steps[static_cast<size_t>(need)].dependents.push_back(static_cast<int32_t>(i));
    }
  }
  return program;
}

}  // namespace weft::collectives

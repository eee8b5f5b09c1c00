#include "formats/msccl_xml.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace weft::formats {
namespace {

using planner::BufferKind;
using planner::ChunkRef;
using planner::Collective;
using planner::Schedule;
using planner::Step;
using planner::StepKind;

constexpr size_t kMostBlocks = 128;

/// A rank's thread blocks: which of its steps each has.
struct Block {
  int32_t send = -1, receive = -1;
  std::vector<size_t> steps;
};

std::vector<Block> BlocksOf(const std::vector<Step>& steps) {
  std::map<std::pair<int32_t, StepKind>, size_t> by_lane;
  std::vector<Block> blocks;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const bool sends = step.kind == StepKind::kSend, receives = step.kind == StepKind::kRecv;
    const std::pair lane = sends || receives ? std::pair{step.peer.value(), step.kind} : std::pair{-1, StepKind::kCopy};
    const auto [at, fresh] = by_lane.emplace(lane, blocks.size());
    if (fresh) blocks.push_back({.send = sends ? lane.first : -1, .receive = receives ? lane.first : -1, .steps = {}});
    blocks[at->second].steps.push_back(i);
  }
  return blocks;
}

std::string_view BufferName(BufferKind buffer) {
  return buffer == BufferKind::kInput ? "i" : buffer == BufferKind::kOutput ? "o" : "s";
}

std::string_view TypeName(StepKind kind) {
  switch (kind) {
    case StepKind::kSend: return "s";
    case StepKind::kRecv: return "r";
    case StepKind::kReduce: return "re";
    case StepKind::kCopy: return "cpy";
  }
  return "nop";
}

/// Where the step stands: block, and number in the block once that is known.
struct Place {
  size_t block = 0;
  size_t position = 0;  // among the block's own steps
  size_t written = 0;   // number in the XML, which counts the waits in front of steps
  bool awaited = false;
};

/// One rank. A step can name one step of another block to wait for; further ones stand in front of it as "nop".
class RankWriter {
 public:
  RankWriter(const Schedule& schedule, int32_t rank, const std::vector<ChunkRef>& arrives)
      : steps_(schedule.ranks[static_cast<size_t>(rank)]), arrives_(arrives), blocks_(BlocksOf(steps_)),
        places_(steps_.size()) {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (size_t k = 0; k < blocks_[b].steps.size(); ++k) places_[blocks_[b].steps[k]] = {b, k};
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      waits_.push_back(Waits(i));
      for (const size_t wait : waits_.back()) places_[wait].awaited = true;
    }
    for (const Block& block : blocks_) {
      size_t number = 0;
      for (const size_t i : block.steps) {
        number += waits_[i].size() > 1 ? waits_[i].size() - 1 : 0;
        places_[i].written = number++;
      }
    }
  }

  size_t blocks() const { return blocks_.size(); }

  void Write(std::string* out) const {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      fmt::format_to(std::back_inserter(*out), "    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"0\">\n", b, blocks_[b].send,
                     blocks_[b].receive);
      for (const size_t i : blocks_[b].steps) WriteStep(i, out);
      *out += "    </tb>\n";
    }
  }

 private:
  /// The last needed step of each other block, by block.
  std::vector<size_t> Waits(size_t step) const {
    std::map<size_t, size_t> last;
    for (const StepId need : steps_[step].needs) {
      if (places_[need.index()].block != places_[step].block) last[places_[need.index()].block] = need.index();
    }
    std::vector<size_t> waits;
    for (const auto& [block, index] : last) waits.push_back(index);
    return waits;
  }

  void WriteLine(size_t number, std::string_view type, ChunkRef from, ChunkRef to, const size_t* wait, bool awaited, int count,
                 std::string* out) const {
    fmt::format_to(std::back_inserter(*out),
                   "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" cnt=\"{}\" "
                   "depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>\n",
                   number, type, BufferName(from.buffer), from.chunk, BufferName(to.buffer), to.chunk, count,
                   wait == nullptr ? -1 : static_cast<int64_t>(places_[*wait].block),
                   wait == nullptr ? -1 : static_cast<int64_t>(places_[*wait].written), awaited ? 1 : 0);
  }

  void WriteStep(size_t i, std::string* out) const {
    const std::vector<size_t>& waits = waits_[i];
    const Step& step = steps_[i];
    for (size_t w = 0; w + 1 < waits.size(); ++w) {
      WriteLine(places_[i].written - (waits.size() - 1) + w, "nop", {}, {}, &waits[w], false, 0, out);
    }
    // Both ends name both places: MSCCL reads the one it needs.
    const ChunkRef from = step.kind == StepKind::kRecv ? arrives_[i] : step.source;
    const ChunkRef to = step.kind == StepKind::kSend ? arrives_[i] : step.destination;
    WriteLine(places_[i].written, TypeName(step.kind), from, to, waits.empty() ? nullptr : &waits.back(), places_[i].awaited, 1,
              out);
  }

  const std::vector<Step>& steps_;
  const std::vector<ChunkRef>& arrives_;
  std::vector<Block> blocks_;
  std::vector<Place> places_;
  std::vector<std::vector<size_t>> waits_;
};

/// For each send the chunk it is received into, for each receive the chunk it was sent from.
std::vector<std::vector<ChunkRef>> OtherEnds(const Schedule& schedule) {
  struct Channel {
    std::vector<std::pair<int32_t, size_t>> sends, receives;
  };
  std::map<std::pair<int32_t, int32_t>, Channel> channels;
  std::vector<std::vector<ChunkRef>> ends;
  for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const std::vector<Step>& steps = schedule.ranks[static_cast<size_t>(rank)];
    ends.emplace_back(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == StepKind::kSend) channels[{rank, steps[i].peer.value()}].sends.emplace_back(rank, i);
      if (steps[i].kind == StepKind::kRecv) channels[{steps[i].peer.value(), rank}].receives.emplace_back(rank, i);
    }
  }
  for (const auto& [pair, channel] : channels) {
    for (size_t k = 0; k < channel.sends.size(); ++k) {
      const auto [from, sent] = channel.sends[k];
      const auto [to, received] = channel.receives[k];
      ends[static_cast<size_t>(from)][sent] = schedule.ranks[static_cast<size_t>(to)][received].destination;
      ends[static_cast<size_t>(to)][received] = schedule.ranks[static_cast<size_t>(from)][sent].source;
    }
  }
  return ends;
}

std::string_view MscclName(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter: return "reduce_scatter";
    default: return planner::CollectiveName(collective);
  }
}

}  // namespace

Result<std::string> MscclXml(const Schedule& schedule, const MscclOptions& options) {
  if (options.protocol != "Simple" && options.protocol != "LL" && options.protocol != "LL128") {
    return Fail(Code::kInvalidArgument, fmt::format("msccl: protocol \"{}\", expected Simple, LL or LL128", options.protocol));
  }
  if (auto valid = planner::ValidateSchedule(schedule); !valid) return Fail(valid.error().WithContext("msccl"));
  const std::vector<std::vector<ChunkRef>> ends = OtherEnds(schedule);
  std::string out = fmt::format(
      "<algo name=\"weft-{}\" nchunksperloop=\"{}\" nchannels=\"1\" ngpus=\"{}\" proto=\"{}\" coll=\"{}\" inplace=\"0\" "
      "outofplace=\"1\" minBytes=\"{}\" maxBytes=\"{}\">\n",
      schedule.algorithm, schedule.chunk_count, schedule.rank_count(), options.protocol, MscclName(schedule.collective),
      options.least.count(), options.most.count());
  for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const RankWriter writer(schedule, rank, ends[static_cast<size_t>(rank)]);
    if (writer.blocks() > kMostBlocks) {
      return Fail(Code::kFailedPrecondition, fmt::format("msccl: rank {} of {} has {} peers and directions, expected at most {} "
                                                         "thread blocks", rank, schedule.algorithm, writer.blocks(),
                                                         kMostBlocks));
    }
    fmt::format_to(std::back_inserter(out), "  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", rank,
                   schedule.input_chunks(), schedule.output_chunks(), schedule.scratch_chunks);
    writer.Write(&out);
    out += "  </gpu>\n";
  }
  return out + "</algo>\n";
}

}  // namespace weft::formats

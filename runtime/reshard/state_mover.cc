#include "runtime/reshard/state_mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::runtime {
namespace {

using planner::StateMove;

/// Largest message, in elements: what the buffer holds.
constexpr int64_t kMostElements = int64_t{1} << 20;

planner::TensorBox Cut(const planner::TensorBox& box, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  return {.tensor = box.tensor, .row = box.row + row, .rows = rows, .column = box.column + column, .columns = columns};
}

/// A move in boxes that each fit into a message.
std::vector<StateMove> Cut(const StateMove& move) {
  const planner::TensorBox& box = move.from.box;
  const int64_t columns = std::min(box.columns, kMostElements), rows = std::max<int64_t>(1, kMostElements / columns);
  std::vector<StateMove> cut;
  for (int64_t r = 0; r < box.rows; r += rows) {
    for (int64_t c = 0; c < box.columns; c += columns) {
      const planner::TensorBox part = Cut(box, r, std::min(rows, box.rows - r), c, std::min(columns, box.columns - c));
      cut.push_back({move.sender, move.receiver, planner::PartOfHeld(move.from, part), planner::PartOfHeld(move.to, part)});
    }
  }
  return cut;
}

/// One message from a rank to another, of all ranks' schedule.
planner::Schedule MessageSchedule(int world, int32_t sender, int32_t receiver) {
  planner::Schedule schedule{.collective = planner::Collective::kSendRecv, .algorithm = "message", .chunk_count = 1};
  schedule.ranks.resize(static_cast<size_t>(world));
  const planner::ChunkRef in{planner::BufferKind::kInput, 0}, out{planner::BufferKind::kOutput, 0};
  schedule.ranks[static_cast<size_t>(sender)].push_back(
      {.kind = planner::StepKind::kSend, .peer = RankId(receiver), .source = in, .destination = {}, .needs = {}});
  schedule.ranks[static_cast<size_t>(receiver)].push_back(
      {.kind = planner::StepKind::kRecv, .peer = RankId(sender), .source = {}, .destination = out, .needs = {}});
  return schedule;
}

/// What stays on a rank goes from the old memory to the new.
void Copy(const planner::StateChange& change, int rank, const RankState& from, const RankState& to) {
  std::vector<std::byte> dense;
  for (const StateMove& move : change.moves) {
    if (move.sender != rank || move.receiver != rank) continue;
    dense.resize(static_cast<size_t>(move.from.box.elements() * planner::BytesOf(from.type)));
    for (size_t part = 0; part < kStateParts; ++part) {
      PackBox(from, part, move.from, dense.data());
      UnpackBox(to, part, move.to, dense.data());
    }
  }
}

}  // namespace

std::vector<StateMover::Piece> StateMover::PiecesOf(const planner::StateChange& change, int32_t sender, int32_t receiver) {
  std::vector<Piece> pieces;
  for (const StateMove& move : change.moves) {
    if (move.sender != sender || move.receiver != receiver) continue;
    for (const StateMove& cut : Cut(move)) {
      for (size_t part = 0; part < kStateParts; ++part) pieces.push_back({cut, part});
    }
  }
  return pieces;
}

Status StateMover::Connect(const planner::StateChange& change) {
  if (!communicator_) {
    WEFT_ASSIGN_OR_RETURN(communicator_, collectives::Communicator::Create(*plugin_, *bootstrap_, options_));
  }
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (const StateMove& move : change.moves) {
    if (move.sender != move.receiver) pairs.push_back({move.sender, move.receiver});
  }
  return communicator_->Connect(pairs);
}

/// All pieces that one of a pair has for the other, as few messages as fit.
Status StateMover::Exchange(const std::vector<Piece>& pieces, const planner::StateRound& pair, bool back, int rank,
                            const RankState& from, const RankState& to) {
  const int32_t sender = back ? pair.second : pair.first, receiver = back ? pair.first : pair.second;
  const planner::Schedule schedule = MessageSchedule(communicator_->world(), sender, receiver);
  const int64_t element = planner::BytesOf(from.type);
  for (size_t begin = 0; begin < pieces.size();) {
    int64_t elements = 0;
    size_t end = begin;
    while (end < pieces.size() && (end == begin || elements + pieces[end].move.from.box.elements() <= kMostElements))
      elements += pieces[end++].move.from.box.elements();
    const bool sends = rank == sender;
    std::byte* at = buffer_.data();
    for (size_t i = begin; sends && i < end; at += pieces[i++].move.from.box.elements() * element)
      PackBox(from, pieces[i].part, pieces[i].move.from, at);
    WEFT_RETURN_IF_ERROR(communicator_->Run(
        schedule, from.type == planner::ElementType::kFloat64 ? collectives::DataType::kFloat64 : collectives::DataType::kFloat32,
        elements, sends ? buffer_.data() : nullptr, sends ? nullptr : buffer_.data()));
    for (size_t i = begin; !sends && i < end; at += pieces[i++].move.to.box.elements() * element)
      UnpackBox(to, pieces[i].part, pieces[i].move.to, at);
    begin = end;
  }
  return Ok();
}

Result<MovedBytes> StateMover::Move(const planner::StateChange& change, int rank, const RankState& from, const RankState& to) {
  if (from.type != to.type) {
    return Fail(Code::kInvalidArgument, fmt::format("a change from {} to {}: expected programs of one type",
                                                    planner::ElementTypeName(from.type), planner::ElementTypeName(to.type)));
  }
  Copy(change, rank, from, to);
  const int64_t element = planner::BytesOf(from.type);
  MovedBytes bytes{.planned = Bytes(change.sent * element * static_cast<int64_t>(kStateParts)), .sent = Bytes(0)};
  if (bootstrap_ == nullptr) return bytes;
  WEFT_RETURN_IF_ERROR(Connect(change));
  buffer_.resize(static_cast<size_t>(kMostElements) * sizeof(double));
  const Bytes before = communicator_->bytes_sent();
  for (const planner::StateRound& pair : change.pairs) {
    if (pair.first != rank && pair.second != rank) continue;
    WEFT_RETURN_IF_ERROR(Exchange(PiecesOf(change, pair.first, pair.second), pair, false, rank, from, to));
    WEFT_RETURN_IF_ERROR(Exchange(PiecesOf(change, pair.second, pair.first), pair, true, rank, from, to));
  }
  const int64_t mine[] = {(communicator_->bytes_sent() - before).count(), element};
  WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap_->AllGather({reinterpret_cast<const uint8_t*>(mine), sizeof mine}));
  for (const std::vector<uint8_t>& blob : all) {
    int64_t theirs[2] = {0, 0};
    std::memcpy(theirs, blob.data(), std::min(blob.size(), sizeof theirs));
    bytes.sent += Bytes(theirs[0]);
  }
  return bytes;
}

}  // namespace weft::runtime

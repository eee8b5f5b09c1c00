#include "planner/tasks/memory_over_time.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::planner::inline tasks {
namespace {

/// Bytes, and how many of them fragment.
struct Held {
  Bytes all, varying;

  Held& operator+=(const Held& other) {
    all += other.all;
    varying += other.varying;
    return *this;
  }
  Held& operator-=(const Held& other) {
    all -= other.all;
    varying -= other.varying;
    return *this;
  }
};

/// All that is held for so long by the passes of one chunk.
Held Sum(const StageOperations& stage, HoldingSpan span, int64_t chunk, int64_t chunks) {
  Held sum;
  for (const Holding& piece : stage.memory) {
    if (piece.span != span) continue;
    if (piece.chunks == HoldingChunks::kFirst && chunk != 0) continue;
    if (piece.chunks == HoldingChunks::kLast && chunk != chunks - 1) continue;
    const bool varies = piece.part == HoldingPart::kActivations || piece.part == HoldingPart::kTransient;
    sum += {piece.bytes, varies ? piece.bytes : Bytes(0)};
  }
  return sum;
}

/// Far more than any stage holds, and far from an overflow.
constexpr double kMostHeld = 0x1p60;

/// Errors: kInvalidArgument where all passes together could hold more than kMostHeld, fragments included.
Status CheckAmounts(const OperationList& list, const StageOperations& stage) {
  double sum = 0;
  for (const Holding& piece : stage.memory) sum += static_cast<double>(piece.bytes.count());
  const double most = sum * static_cast<double>(list.micro_batches * list.chunks) * (1 + stage.fragmentation);
  if (most <= kMostHeld) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("memory over time: {:.3g} bytes in all passes, expected at most {:.3g}", most, kMostHeld));
}

/// What the passes of one chunk hold.
struct ChunkHeld {
  Held micro_batch, pass, backward;
};

}  // namespace

Result<MemoryOverTime> MemoryOfStage(const OperationList& list, int64_t stage) {
  if (const Status order = CheckOrder(list.schedule, list.stages, list.micro_batches, list.chunks); !order) {
    return Fail(order.error().WithContext("memory over time"));
  }
  const StageOperations& own = list.OfStage(stage);
  WEFT_RETURN_IF_ERROR(CheckAmounts(list, own));
  std::vector<ChunkHeld> chunks;
  for (int64_t c = 0; c < list.chunks; ++c) {
    chunks.push_back({.micro_batch = Sum(own, HoldingSpan::kMicroBatch, c, list.chunks),
                      .pass = Sum(own, HoldingSpan::kPass, c, list.chunks),
                      .backward = Sum(own, HoldingSpan::kBackward, c, list.chunks)});
  }
  Held held = Sum(own, HoldingSpan::kIteration, 0, 1);  // once, whoever uses it
  MemoryOverTime memory{.constant = held.all, .passes = {}, .peak = held.all};
  Bytes varying = held.varying;
  const PassKind last = SplitsBackward(list.schedule) ? PassKind::kWeight : PassKind::kData;
  for (const StagePass& pass : StageOrder(list.schedule, stage, list.stages, list.micro_batches, list.chunks)) {
    const ChunkHeld& chunk = chunks[static_cast<size_t>(pass.chunk)];
    if (pass.kind == PassKind::kForward) held += chunk.micro_batch;
    Held during = held;
    during += chunk.pass;
    if (pass.kind == PassKind::kData) during += chunk.backward;
    if (pass.kind == last) held -= chunk.micro_batch;
    memory.passes.push_back({pass, during.all, held.all});
    memory.peak = std::max(memory.peak, during.all);
    varying = std::max(varying, during.varying);
  }
  const Bytes fragments = FragmentsOf(own.fragmentation, varying);
  memory.constant += fragments;
  memory.peak += fragments;
  for (MemoryStep& step : memory.passes) {
    step.during += fragments;
    step.after += fragments;
  }
  return memory;
}

}  // namespace weft::planner::tasks

#include "planner/tasks/pipeline_exchange.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::planner::inline tasks {
namespace {

Status Check(const PipelineTime& time, std::span<const ChunkExchange> exchanges, std::span<const Seconds> after) {
  if (time.chunks.empty() || exchanges.size() != time.chunks.size()) {
    return Fail(Code::kInvalidArgument, fmt::format("pipeline exchange: {} exchanges, expected one for each of {} chunks",
                                                    exchanges.size(), time.chunks.size()));
  }
  for (size_t k = 0; k < exchanges.size(); ++k) {
    if (!(exchanges[k].time.count() >= 0) || exchanges[k].buckets < 1) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("pipeline exchange: chunk {} takes {} s in {} buckets, expected 0 or more in 1 or more", k,
                              exchanges[k].time.count(), exchanges[k].buckets));
    }
  }
  if (after.size() != time.stages.size()) {
    return Fail(Code::kInvalidArgument, fmt::format("pipeline exchange: times after {} stages, expected one for each of {}",
                                                    after.size(), time.stages.size()));
  }
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i].count() >= 0) continue;
    return Fail(Code::kInvalidArgument,
                fmt::format("pipeline exchange: what follows stage {} takes {} s, expected 0 or more", i, after[i].count()));
  }
  return Ok();
}

}  // namespace

Seconds LastExchangeEnd(std::span<const ChunkUse> chunks, std::span<const ChunkExchange> exchanges) {
  Seconds end{0};
  Seconds last_ready{-1};
  // The next chunk to become final, without sorting in memory: stages have few chunks.
  for (size_t done = 0; done < chunks.size();) {
    Seconds next{-1};
    for (const ChunkUse& chunk : chunks) {
      if (chunk.gradients_ready > last_ready && (next.count() < 0 || chunk.gradients_ready < next)) {
        next = chunk.gradients_ready;
      }
    }
    for (size_t c = 0; c < chunks.size(); ++c) {
      if (chunks[c].gradients_ready != next) continue;
      const double n = static_cast<double>(exchanges[c].buckets);
      const Seconds from = chunks[c].gradients_from, ready = next;
      const Seconds start = std::max(end, from + (ready - from) / n);
      if (exchanges[c].time.count() > 0) end = std::max(start + exchanges[c].time, ready + exchanges[c].time / n);
      ++done;
    }
    last_ready = next;
  }
  return end;
}

Result<PipelineEnd> EndOfIteration(ScheduleKind schedule, const PipelineTime& time,
                                   std::span<const ChunkExchange> exchanges, std::span<const Seconds> after) {
  WEFT_RETURN_IF_ERROR(Check(time, exchanges, after));
  const size_t chunks = time.chunks.size() / time.stages.size();
  PipelineEnd end;
  for (size_t i = 0; i < time.stages.size(); ++i) {
    const StageUse& stage = time.stages[i];
    Seconds over = std::max(stage.end, LastExchangeEnd(time.chunks.subspan(i * chunks, chunks),
                                                       exchanges.subspan(i * chunks, chunks))) + after[i];
    if (!HasBarrier(schedule)) over -= stage.start;
    if (over > end.iteration) end = {.iteration = over, .stage = static_cast<int64_t>(i)};
  }
  return end;
}

}  // namespace weft::planner::tasks

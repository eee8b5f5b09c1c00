// The end of a pipelined iteration: gradients of a chunk are exchanged in buckets as soon as they are final, behind what
// its stage and others still compute, and the optimizer follows.
#pragma once

#include <cstdint>
#include <span>

#include "common/result.h"
#include "common/units.h"
#include "planner/tasks/pipeline.h"

namespace weft::planner::inline tasks {

/// The data-parallel exchange of one chunk's gradients.
struct ChunkExchange {
  Seconds time{0};      ///< of all of it, latencies included
  int64_t buckets = 1;  ///< equal; the first may start when its share of the last weight gradients is there
};

struct PipelineEnd {
  Seconds iteration{0};  ///< as PipelineTime::iteration, with exchanges and what follows
  int64_t stage = 0;     ///< that is last
};

/// A stage exchanges its chunks one after another in the order in which they become final. Chunk c, final from f to r, in n
/// buckets of t/n: its first may start at f + (r-f)/n, and its last not before r. What the stage does `after` its last
/// exchange and its last pass follows (optimizer, and exchanges that hide behind nothing); the iteration ends with the last
/// stage, or, for the schedules without a barrier, is the longest stage's own time.
/// Shapes: exchanges [p × v], after [p]. Requires: `time` of a simulation with `schedule` whose scratch is unused since.
/// Errors: kInvalidArgument where the spans have other shapes, a time is negative, or buckets are none. Complexity: O(p·v²).
[[nodiscard]] Result<PipelineEnd> EndOfIteration(ScheduleKind schedule, const PipelineTime& time,
                                                 std::span<const ChunkExchange> exchanges, std::span<const Seconds> after);

/// When the last of a stage's exchanges ends; 0 without any. Requires: one exchange for each chunk. Complexity: O(v²).
Seconds LastExchangeEnd(std::span<const ChunkUse> chunks, std::span<const ChunkExchange> exchanges);

}  // namespace weft::planner::tasks

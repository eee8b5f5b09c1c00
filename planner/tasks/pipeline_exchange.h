// The end of a pipelined iteration: gradients of a chunk are exchanged in buckets as soon as they are final, behind what
// its stage and others still compute, and the optimizer follows.
#pragma once

#include <cstdint>
#include <span>

#include "common/result.h"
#include "common/units.h"
#include "planner/tasks/pipeline.h"

namespace weft::planner {

/// The data-parallel exchange of one chunk's gradients.
struct ChunkExchange {
  Seconds time{0};      ///< of all of it, latencies included
  int64_t buckets = 1;  ///< equal; the first may start when its share of the last weight gradients is there
};

struct PipelineEnd {
  Seconds iteration{0};  ///< as PipelineTime::iteration, with exchanges and optimizer
  Seconds exposed{0};    ///< what exchanges add to it
  int64_t stage = 0;     ///< that is last
};

/// A stage exchanges its chunks one after another in the order in which they become final. Chunk c, final from f to r, in n
/// buckets of t/n: its first may start at f + (r-f)/n, and its last not before r. The stage's optimizer follows its last
/// exchange and its last pass; the iteration ends with the last stage, or, for the schedules without a barrier, is the
/// longest stage's own time.
/// Requires: `time` of a simulation with `schedule` whose scratch is unused since. Errors: kInvalidArgument where
/// exchanges are not one per chunk, negative, or without buckets. Complexity: O(p·v²).
[[nodiscard]] Result<PipelineEnd> EndOfIteration(ScheduleKind schedule, const PipelineTime& time,
                                                 std::span<const ChunkExchange> exchanges, Seconds optimizer);

}  // namespace weft::planner

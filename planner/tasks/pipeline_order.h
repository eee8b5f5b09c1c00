// The order of passes on one stage, written out: what a runtime executes, and what task graphs are built from. The
// simulation of pipeline.h has the same orders as arithmetic; a test holds the two together.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "planner/tasks/schedule_kind.h"

namespace weft::planner::inline tasks {

enum class PassKind : uint8_t {
  kForward,
  kData,    ///< data gradient; the whole backward pass where the schedule does not split it
  kWeight,  ///< weight gradient; only where the schedule splits
};

/// One micro-batch through one chunk, in one direction.
struct StagePass {
  PassKind kind = PassKind::kForward;
  int32_t chunk = 0;
  int64_t micro_batch = 0;

  friend bool operator==(const StagePass&, const StagePass&) = default;
};

/// Whether p stages of v chunks have an order for m micro-batches. Errors: kInvalidArgument naming the schedule, and what of the shape
/// it does not allow: kInterleaved with v > 1 wants p | m, kZbV v = 2, the others v = 1; at most 4096 stages and 2²⁸ passes.
[[nodiscard]] Status CheckOrder(ScheduleKind schedule, int64_t p, int64_t m, int64_t v);

/// All passes of stage `stage` of p in the order in which it runs them; m micro-batches, v chunks per stage.
/// Requires: a shape that CheckOrder() accepts. Complexity: O(m·v).
std::vector<StagePass> StageOrder(ScheduleKind schedule, int64_t stage, int64_t p, int64_t m, int64_t v);

/// Position on the way of a micro-batch through the model: which virtual stage a chunk of a stage is.
int64_t VirtualStage(ScheduleKind schedule, int64_t stage, int64_t chunk, int64_t p);

/// The stage and chunk of a virtual stage: the inverse of VirtualStage.
struct StageChunk {
  int64_t stage = 0, chunk = 0;
};
StageChunk PlaceOf(ScheduleKind schedule, int64_t virtual_stage, int64_t p);

}  // namespace weft::planner::tasks

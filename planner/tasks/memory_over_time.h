// What one stage holds in memory, pass by pass, read off the list of operations: everything that lives for the whole iteration, the
// activations of the micro-batches that are in flight, and what exists only while a pass runs.
//
//   WEFT_ASSIGN_OR_RETURN(const MemoryOverTime memory, MemoryOfStage(list, stage));
//   memory.peak is what CostModel::EvaluateMemory() says of the stage.
//
// Leaves out: what follows the last pass; the exchange's own buffers count as held all the time.
#pragma once

#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/tasks/operations.h"
#include "planner/tasks/pipeline_order.h"

namespace weft::planner::inline tasks {

/// What is held while a pass runs, and from its end until the next one starts.
struct MemoryStep {
  StagePass pass;
  Bytes during, after;
};

struct MemoryOverTime {
  Bytes constant;                 ///< before the first pass: what is held all the time, and what is lost to fragments
  std::vector<MemoryStep> passes;  ///< in the order in which the stage runs them
  Bytes peak;                     ///< the most of all of it
};

/// What the allocator cannot give back. Fragments do not go away when what they came from does: they count with their peak.
inline Bytes FragmentsOf(double fragmentation, Bytes varying) {
  return Bytes(static_cast<int64_t>(static_cast<double>(varying.count()) * fragmentation));
}

/// Errors: kInvalidArgument for a shape that has no order, as CheckOrder() says, or more bytes than any stage holds.
/// Requires: 0 ≤ stage < list.stages, and a class that has it. Complexity: O(micro-batches · chunks).
[[nodiscard]] Result<MemoryOverTime> MemoryOfStage(const OperationList& list, int64_t stage);

}  // namespace weft::planner::tasks

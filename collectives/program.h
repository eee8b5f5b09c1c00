// One rank's part of a planner::Schedule, made ready to run for one element count: every step with its offsets and
// its length, the steps that wait for it, and the pairs of ranks that talk. What the schedule leaves to the executor is
// decided here: where chunks begin, how long a chunk in scratch is, what happens when input and output are one memory.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "planner/collectives/schedule.h"

namespace weft::collectives {

/// `from` sends to `to`.
struct RankPair {
  int32_t from;
  int32_t to;
  friend auto operator<=>(const RankPair&, const RankPair&) = default;
};

/// A place in one of the rank's buffers, in elements.
struct Operand {
  planner::BufferKind buffer = planner::BufferKind::kInput;
  int64_t offset = 0;
};

struct ProgramStep {
  planner::StepKind kind = planner::StepKind::kCopy;
  int32_t peer = -1;
  Operand source;
  Operand destination;
  int64_t elements = 0;
  std::vector<int32_t> needs;       ///< steps whose slice i must be done before slice i of this one
  std::vector<int32_t> dependents;  ///< the reverse
};

/// All steps run in `slices` slices of `slice_elements` elements; those past a step's own length are empty.
struct Program {
  std::vector<ProgramStep> steps;
  int64_t slice_elements = 1;
  int64_t slices = 0;
  int64_t input_elements = 0;
  int64_t output_elements = 0;
  int64_t scratch_elements = 0;
  bool reads_input = false;     ///< any step of this rank that moves data
  bool writes_output = false;
  bool stage_input = false;     ///< input and output are one memory and the schedule reads input after writing there
  std::vector<RankPair> pairs;  ///< of all ranks, ascending
};

struct ProgramOptions {
  RankId rank{0};
  int64_t count = 0;           ///< elements of the full buffer
  int64_t slice_elements = 1;
  bool in_place = false;       ///< input and output are the same memory
};

/// Where chunk `chunk` of `chunks` begins in `count` elements: floor(chunk · count / chunks), without overflow.
int64_t ChunkBegin(int64_t chunk, int64_t count, int64_t chunks);

/// Requires: ValidateSchedule(schedule). Errors: kInvalidArgument for a rank or count that does not fit, or naming the
/// steps whose two ends differ in length.
/// Complexity: O(steps of the rank), of all ranks when `count` does not divide evenly and scratch is used.
[[nodiscard]] Result<Program> CompileProgram(const planner::Schedule& schedule, const ProgramOptions& options);

}  // namespace weft::collectives

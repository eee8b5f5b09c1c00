// What lasts from one step to the next, and where it is: for each rank of a step program the parts of the model's tensors that it
// keeps, in elements. Parameters and the two moments of the optimizer lie alike, so that one account is true of all three. Under
// ZeRO-1 and above that is the rank's shard: the rest of the parameters is gathered anew by the step that uses them.
//
// Checkpoints (who writes which part of which tensor, who reads it) and changes of strategy (who sends what to whom) are both
// made from it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "planner/tasks/part_tensors.h"
#include "planner/tasks/step_program.h"
#include "planner/tasks/tensor_box.h"

namespace weft::planner::inline tasks {

/// A tensor of the model: number `index` of LayoutOf(part). Vectors are columns, [n × 1]. A tied head is the embedding's.
struct StateTensor {
  ModelPart part = ModelPart::kEmbedding;
  int32_t layer = -1;
  int32_t index = 0;
  int64_t rows = 0, columns = 0;
  int64_t elements() const { return rows * columns; }
  friend bool operator==(const StateTensor&, const StateTensor&) = default;
};

struct ProgramState {
  std::vector<StateTensor> tensors;         ///< of the whole model, by layer and part: the same for every program of it
  std::vector<std::vector<HeldBox>> ranks;  ///< by rank, ascending by place in memory; no two of a rank's overlap
};

/// The state of a program. Requires: a checked program. Errors: kInvalidArgument for a program of another model, naming the block
/// whose size differs or that the model does not have.
[[nodiscard]] Result<ProgramState> StateOf(const StepProgram& program, const ModelSpec& model);

/// A part of the state on one rank. Of all ranks' parts that are `owned` every element of the model is in exactly one.
struct StateShare {
  HeldBox held;
  bool owned = false;
};

/// Each rank's boxes, cut so that one of those that hold an element owns it: the one that owns least so far.
/// Errors: kInvalidArgument naming a tensor of which no rank has some part. Complexity: O(ranks · boxes) by tensor.
[[nodiscard]] Result<std::vector<std::vector<StateShare>>> OwnersOf(const ProgramState& state);

}  // namespace weft::planner::tasks

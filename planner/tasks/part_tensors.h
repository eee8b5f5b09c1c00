// The tensors that the parameters of a part are, and which share of each a tensor rank has: what computes them, saves them and
// moves them reads it here.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/tasks/step_program.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline tasks {

/// Where a tensor of a block comes from: the rank's share of a tensor of the whole model. A product's outputs may be several
/// matrices, one below the other (queries, keys, values; gate and up), each of which is cut.
struct TensorLayout {
  const char* name = "";
  std::vector<int64_t> whole;        ///< sizes of the model's tensor: one or two, by_expert three
  int64_t cut = -1;                  ///< dimension that tensor ranks share; -1: all have it whole
  std::vector<int64_t> pieces = {};  ///< sizes along `cut` that are cut one by one; empty: all of it
  enum class Start : uint8_t { kZero, kOne, kNormal, kResidual } start = Start::kNormal;
  bool by_expert = false;            ///< one matrix for each expert, along the first dimension: ranks share experts and `cut`
};

/// The tensors of a block, in the order in which they lie in its memory; none for a part without parameters.
std::vector<TensorLayout> LayoutOf(ModelPart part, const ModelSpec& model);

}  // namespace weft::planner::tasks

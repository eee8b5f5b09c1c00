// What one computation of a part takes: internal to program_memory.cc. All of it follows from shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/tasks/step_program.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline tasks {

/// A tensor that a pass leaves for a later one: memory of its own, or that of an input or output.
struct KeptTensor {
  enum class Of : uint8_t { kOwn, kInput, kOutput } of = Of::kOwn;
  int64_t index = 0;  ///< of the input or output
  int64_t bytes = 0;  ///< of kOwn
};

struct PartMemory {
  int64_t first = 0;                  ///< besides what there is, at the most, until what was kept is dropped; outputs included
  int64_t second = 0;                 ///< likewise afterwards
  std::vector<KeptTensor> kept;       ///< by a forward pass
  std::vector<KeptTensor> gradients;  ///< by a data gradient
  int64_t still_kept = -1;            ///< index of what a data gradient keeps of the forward pass's; -1: nothing
  bool output_is_input = false;       ///< a view
};

/// Sizes of one computation. `rank` of the program; shapes are those of the list's values.
struct PartShape {
  const StepProgram& program;
  const ModelSpec& model;
  const RankPlace& rank;
  const Instruction& instruction;
  std::vector<ValueShape> inputs, outputs;
};

PartMemory MemoryOfPart(const PartShape& shape);
/// Of a part of a 3D CNN, and of its samples of a micro-batch: bytes and classes.
PartMemory MemoryOfVolumes(const PartShape& shape);
int64_t MemoryOfSamples(const StepProgram& program);

}  // namespace weft::planner::tasks

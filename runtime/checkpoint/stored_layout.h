// Which file of a checkpoint has which tensor, and where. It follows from the model alone, whatever the strategy and the number
// of ranks: each rank writes its parts into the same files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/units.h"
#include "formats/hf_tensors.h"
#include "formats/safetensors.h"
#include "planner/planner.h"
#include "planner/tasks/program_state.h"

namespace weft::runtime {

/// A tensor of a file: a part of the state (runtime/state/unit_state.h) of some rows of a tensor of the model.
struct LaidTensor {
  formats::StoredTensor stored;
  formats::HfTensor part;
  int32_t tensor = 0;  ///< of ProgramState::tensors
  size_t state_part = 0;
};

struct LaidFile {
  std::string name;
  std::string header;
  int64_t bytes = 0;
  std::vector<LaidTensor> tensors;
};

/// Parameters in "model….safetensors", moments in "optimizer….safetensors"; a file ends before it has more than `most`, but has
/// one tensor at least.
std::vector<LaidFile> LayFiles(const planner::ModelSpec& model, const planner::ProgramState& state, planner::ElementType type,
                               Bytes most);

}  // namespace weft::runtime

// Loads a TorchScript file and runs it once on the CPU, to see its operators with their shapes.
#pragma once

#include <string>

#include "common/result.h"
#include "runtime/profile/traced_model.h"

namespace weft::runtime {

struct TraceOptions {
  std::string path;
  Shape input;           ///< of the example
  bool tokens = false;   ///< whole numbers below the least embedding, else real ones
};

/// Progress goes to stderr, where a person looks. Errors: kNotFound for a missing file; kInvalidArgument for one that LibTorch does
/// not load or whose forward() does not take one tensor of that shape, with LibTorch's first line; kResourceExhausted when memory
/// runs out; kFailedPrecondition for a model that runs operators in other threads.
[[nodiscard]] Result<TracedModel> TraceTorchScript(const TraceOptions& options);

}  // namespace weft::runtime

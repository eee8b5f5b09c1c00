// From a trace to a model that the planner knows: a decoder of the GPT-2, Llama or Mixtral family, or a sequence of convolutions,
// poolings and dense layers.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "planner/workload/model_spec.h"
#include "runtime/profile/traced_model.h"

namespace weft::runtime {

struct Recognised {
  planner::ModelSpec model;
  std::vector<std::string> assumptions;  ///< what the trace does not show
};

/// The model has exactly the trace's parameters, and its products' FLOPs within 1 % (of narrow models what biases count besides).
/// Errors: kFailedPrecondition naming a parameter without elements, what the structure has that none of these has, or the counts.
/// Requires: an input with elements.
[[nodiscard]] Result<Recognised> Recognise(const TracedModel& traced);

/// The two halves of it. Errors: as above, before the counts are compared. Requires for the first: some operator is attention.
[[nodiscard]] Result<Recognised> RecogniseDecoder(const TracedModel& traced);
[[nodiscard]] Result<Recognised> RecogniseSequence(const TracedModel& traced);

/// Whether a product of two results stands in the trace, or a fused attention.
bool HasAttention(const TracedModel& traced);

}  // namespace weft::runtime

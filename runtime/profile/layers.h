// The operators of a trace by the layers that their parameters' names tell.
#pragma once

#include <string>
#include <vector>

#include "planner/workload/operator_list.h"
#include "runtime/profile/traced_model.h"

namespace weft::runtime {

/// Operators that follow each other in one layer, or outside of all.
struct Segment {
  std::string stack;   ///< what stands before the layer's number, such as "h."; empty outside of layers
  int64_t index = -1;  ///< of the layer
  std::vector<const TracedOperator*> operators;
};

/// An operator without parameters lies where the one before it does. The layer's number is the first part of a name that is a whole
/// number; where no name has one, the first number in it that differs between names. The trace outlives the result.
std::vector<Segment> SegmentsOf(const TracedModel& traced);

/// For the file: layers that have the same operators put together, and in each what has the same name ("experts.0", "experts.1").
/// Parameters that this input did not reach are with their layer.
planner::OperatorProfile ProfileOf(const TracedModel& traced);

}  // namespace weft::runtime

// Sums, or the larger elements, of one buffer into another: the only arithmetic of collectives/.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"

namespace weft::collectives {

/// destination[i] += source[i] (int32 wraps), or the larger of both. Requires: aligned to the element, not overlapping.
void ReduceInto(DataType type, ReduceOperation operation, void* destination, const void* source, int64_t elements);

}  // namespace weft::collectives

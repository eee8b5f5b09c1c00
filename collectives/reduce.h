// Sums of one buffer into another: the only arithmetic of collectives/.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"

namespace weft::collectives {

/// destination[i] += source[i]; int32 wraps. Requires: aligned to the element, not overlapping.
void AddInto(DataType type, void* destination, const void* source, int64_t elements);

}  // namespace weft::collectives

// What a backward pass computes again in place of keeping it.
#pragma once

#include <cstdint>

namespace weft::planner::inline workload {

/// What of a layer's forward pass runs again in the backward pass: nothing, attention's core, all of it.
enum class Recompute : uint8_t { kNone, kSelective, kFull };

}  // namespace weft::planner::workload

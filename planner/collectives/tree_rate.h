// How much of its bandwidth a tree reaches by size: chunks start and end at every level.
// Source: NCCL 2.30.7, src/graph/tuning.cc, treeCorrectionFactor.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "planner/collectives/algorithm_kind.h"

namespace weft::planner::inline collectives {

/// [protocol][i]: of an all-reduce of 64 B · 2^i.
inline constexpr std::array<std::array<double, 24>, 3> kTreeRateShares = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

/// Requires: bytes ≥ 0. Complexity: O(1).
inline double TreeRateShare(Protocol protocol, double bytes) {
  const auto units = static_cast<uint64_t>(std::min(bytes, 0x1p62) / 64);
  const auto log = static_cast<size_t>(std::bit_width(units));  // 1 + floor(log2), 0 of less than a unit
  if (log == 0 || log > kTreeRateShares[0].size()) return 1;
  return kTreeRateShares[static_cast<size_t>(protocol)][log - 1];
}

}  // namespace weft::planner::collectives

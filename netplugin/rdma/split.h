// How one message is cut over the queue pairs of a flow.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "netplugin/rdma/wire.h"

namespace weft::net::rdma {

/// LL128 lines: a cut within one would let the receiving GPU see a flag before its payload.
inline constexpr uint64_t kLineBytes = 128;

/// One queue pair as the split sees it.
struct LaneShare {
  uint32_t weight = 0;  ///< 0: carries nothing
  double served = 0;    ///< bytes / weight so far; grows with what SplitMessage gives it
};

struct Part {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint8_t lane = 0;
};

/// Cuts `size` bytes into parts for the lanes with a weight, in proportion to their weights; every cut is a multiple
/// of kLineBytes from the message's start. With less than `split_bytes` for each, fewer lanes get a part: those that
/// were served least, so that small messages keep to the weights over time. A message of no bytes is one empty part.
/// Returns how many of `parts` are set, at least 1. Requires: some weight is not 0. Complexity: O(lanes²), no
/// allocation.
uint32_t SplitMessage(uint64_t size, uint64_t split_bytes, std::span<LaneShare> lanes,
                      std::array<Part, kMaxParts>* parts);

}  // namespace weft::net::rdma

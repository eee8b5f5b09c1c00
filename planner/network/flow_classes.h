// Equal flows as one: flows with the same links in the same order, weight, cap and priority get the same rate, so
// that a solver needs them once, with a count. Internal to planner/network.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/network/max_min.h"

namespace weft::planner::inline network {

/// Flows with caps from here on have none.
inline constexpr double kNoCap = 1e299;

bool SameClass(const MaxMinFlow& a, const MaxMinFlow& b);
uint64_t ClassHash(const MaxMinFlow& flow);

struct FlowClasses {
  std::vector<size_t> of_flow;         ///< per flow: its class
  std::vector<size_t> representative;  ///< per class: its first flow
  std::vector<int32_t> count;          ///< per class: how many flows
};

/// Classes in order of their first flow. Where a sample says that merging would not pay, every flow is its own class.
/// Complexity: O(Σ|links|).
FlowClasses MergeFlows(std::span<const MaxMinFlow> flows);

}  // namespace weft::planner::network

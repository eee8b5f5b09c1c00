// A FlowProblem in the shape that the solvers of this folder work on: plain numbers, usable paths only. Internal to
// planner/flows.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/flows/path_choice.h"

namespace weft::planner::inline flows {

using PathLinks = std::vector<int32_t>;
using Shares = std::vector<std::vector<double>>;  ///< [flow][path], each row sums to 1

struct InstanceFlow {
  double demand = 0;              ///< bits per second
  size_t job = 0;                 ///< counted from 0 as jobs first come
  std::vector<PathLinks> paths;
  std::vector<size_t> usable;     ///< paths without a dead link, ascending; empty: the flow cannot be served
};

struct Instance {
  std::vector<double> capacity;      ///< bits per second, by link
  std::vector<InstanceFlow> flows;
  std::vector<size_t> order;         ///< flows by falling intensity, then demand, then rising key
};

/// Requires: what ChoosePaths requires.
Instance MakeInstance(const FlowProblem& problem);

/// Load per link in bits per second. Flows that cannot be served load nothing.
std::vector<double> Loads(const Instance& instance, const Shares& shares);

/// Max over links of load / capacity; infinite where a dead link has load.
double Bottleneck(const Instance& instance, const Shares& shares);

/// Rates in bits per second when every flow is busy, all lanes of all flows share links fairly, and a flow sends on each
/// of its paths strictly its share: the lanes of a flow grow in proportion, its largest like an unsplit flow, and all stop
/// when one of them is held. Equals MaxMinRates for unsplit flows. Complexity: O(bottlenecks · Σ|links|).
std::vector<double> StripedRates(const Instance& instance, const Shares& shares);

/// Served fractions rate / demand, ascending: what answers are compared by.
std::vector<double> Served(const Instance& instance, const Shares& shares);

/// Whether `candidate` serves some flow better than `base` by more than `gain` (relative) without serving a worse-off one
/// worse; both from Served().
bool ClearlyBetter(const std::vector<double>& base, const std::vector<double>& candidate, double gain);

}  // namespace weft::planner::flows

// Event-driven fluid simulation: flows start at given times, share links by weighted max-min, and end when their bytes
// are through. Rates change only at starts and ends.
#pragma once

#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/network/max_min.h"

namespace weft::planner {

struct SimulatedFlow {
  std::vector<LinkId> links;
  Bytes bytes;
  Seconds start{0};
  double weight = 1;
  BitsPerSecond cap{1e300};
};

struct SimulationResult {
  std::vector<Seconds> finish;            ///< per flow; infinity where a link of capacity 0 blocks it for ever
  std::vector<double> link_busy_bytes;    ///< bytes carried per link
  int64_t events = 0;
};

/// Runs all flows to their end. Complexity: O(events · one max-min solution).
SimulationResult SimulateFlows(std::span<const BitsPerSecond> capacity, std::span<const SimulatedFlow> flows);

}  // namespace weft::planner

// Weighted max-min fair rates by progressive filling: raise all rates in proportion to their weights; when a link is
// full, freeze the flows that cross it; go on with the rest. A flow's rate cap is a private link.
//
// Source: Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2.
#pragma once

#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"

namespace weft::planner {

/// One flow as the solver sees it. `links` must be distinct and stay alive during the call.
struct MaxMinFlow {
  std::span<const LinkId> links;
  double weight = 1;                 ///< > 0
  BitsPerSecond cap{1e300};
};

/// Rates in the order of `flows`. `capacity[l]` belongs to LinkId(l); a flow without links gets its cap.
/// Requires: weights > 0, capacities ≥ 0. Complexity: O((Σ|links| + L) log L).
std::vector<BitsPerSecond> MaxMinRates(std::span<const BitsPerSecond> capacity, std::span<const MaxMinFlow> flows);

}  // namespace weft::planner

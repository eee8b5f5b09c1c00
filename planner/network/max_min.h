// Weighted max-min fair rates with strict priorities and rate caps, by progressive filling: raise all rates of the
// highest priority in proportion to their weights; when a link is full, freeze the flows that cross it; go on with
// the rest, then with the next priority on what is left. A flow's rate cap is a private link.
//
// Source: Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"

namespace weft::planner::inline network {

/// One flow as the solver sees it. `links` must be distinct and stay alive during the call.
struct MaxMinFlow {
  std::span<const LinkId> links;
  double weight = 1;                 ///< > 0
  BitsPerSecond cap{1e300};          ///< from 1e299 on: none
  int32_t priority = 0;              ///< ≥ 0; 0 is served first, a higher number only on what is left
};

/// Rates in the order of `flows`. `capacity[l]` belongs to LinkId(l); a flow without links gets its cap. Equal
/// flows (same links in the same order, weight, cap and priority) are solved as one where they are many. Requires:
/// weights > 0, capacities ≥ 0. Complexity: O((Σ|links| + priorities · L) log L).
std::vector<BitsPerSecond> MaxMinRates(std::span<const BitsPerSecond> capacity, std::span<const MaxMinFlow> flows);

}  // namespace weft::planner::network

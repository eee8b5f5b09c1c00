// The fractional multi-commodity optimum: least max utilisation over all splits of all flows, with a certified bound.
//
// The soft maximum Φ(u) = τ ln Σ_l exp(u_l / τ) of the utilisations is convex in the shares and within τ ln L of their
// maximum. Each update moves share of one flow from its dearest used path to its cheapest one, exactly to where both
// cost the same (a line search on Φ); sweeps over all flows descend to Φ's minimum, and τ is halved until the certificate
// is tight. Certificate (LP duality): for prices y ≥ 0 with Σ C_l y_l = 1, no split is below Σ_f d_f min_p Σ_{l ∈ p} y_l;
// the soft maximum's weights are such prices. Since an update compares only the links of two paths, flows away from the
// worst link are spread as well.
// Source: Young 2001, Sequential and parallel algorithms for mixed packing and covering (soft maximum); bound: LP duality.
#pragma once

#include <stop_token>

#include "planner/flows/instance.h"

namespace weft::planner::inline flows {

struct FractionalResult {
  Shares shares;
  double bottleneck = 0;  ///< of `shares`
  double bound = 0;       ///< no split is below this
};

/// Starts from `start`; at most `updates` flow updates, and none once a stop is asked for. Flows that cannot be served keep their shares.
/// Complexity: O(updates · paths · hops).
FractionalResult FractionalOptimum(const Instance& instance, Shares start, int64_t updates, const std::stop_token& stop = {});

}  // namespace weft::planner::flows

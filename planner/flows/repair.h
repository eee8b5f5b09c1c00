// What a change calls for, and no more: flows that have no place yet, that lie on a dead link, or that cross a crowded one are moved; all
// others count as load. For problems that are too large to be solved anew at every change.
#pragma once

#include <vector>

#include "planner/flows/local_search.h"

namespace weft::planner::inline flows {

/// From `placed`: where every flow is, the new ones on the best whole paths that are left. Crowded is a link that is asked for more than it
/// has, or for almost as much as the fullest. Flows on one path stay on one path, except to leave a dead link.
/// Complexity: O(flows that are touched · paths² · hops) per sweep, within the budget.
Shares Repaired(const Instance& instance, const Shares& placed, Budget* budget);

}  // namespace weft::planner::flows

// What each link carries for jobs, in the mean over iterations: what others will find taken. The last
// second (weft links) would not do: training sends in bursts, and a second may hit one or miss it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/units.h"
#include "controller/flow_table.h"

namespace weft::controller {

/// Bytes per second that the flow carries in the mean of its iterations, or of some 15 s where these are not known; 0 where it has
/// fallen silent.
double CarriedRate(const SendFlow& flow, double now_s);

/// [links of `table`'s fabric] mean rate of the flows of all jobs but those in `except`: bytes over period where whole iterations were measured,
/// else what was carried lately, with a memory of 10 s. A flow's lanes share it by their weights. Flows that have been silent for half
/// a minute and for three of their periods count nothing. Complexity: linear in lanes and their paths.
std::vector<BitsPerSecond> LinkLoad(const FlowTable& table, size_t links, const std::set<std::string>& except, Seconds now);

}  // namespace weft::controller

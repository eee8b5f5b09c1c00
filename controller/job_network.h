// The network of a submitted job as the planner prices collectives on it: the cluster's, with what probes have shown of its hosts.
#pragma once

#include <cstdint>
#include <optional>

#include "common/units.h"
#include "planner/planner.h"

namespace weft::controller {

/// `node_rate`: that a host can send to the others at, in place of what its NICs would give; shared by its `ranks_per_host` ranks.
/// Requires: ranks_per_host >= 1.
planner::GroupNetwork JobNetwork(const planner::ClusterSpec& cluster, int64_t ranks_per_host, std::optional<BitsPerSecond> node_rate,
                                 planner::CollectiveLibrary library);

}  // namespace weft::controller

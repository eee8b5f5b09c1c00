// Planning over groups of different machines (two GPU types, two link speeds, two sites): replicas inside each group
// with shares of the batch that match their speed, or one pipeline through all groups with stages that do. Internal
// to planner.
//
// Batch shares: every group runs a strategy of its own, found by the whole search on that group with its share; the
// shares start in proportion to throughput and are moved from the slowest group to the fastest while that helps.
// Gradients are exchanged between the groups afterwards, not hidden. This is also data parallelism over slow links
// between sites. Pipeline: all groups have the same tp, dp and micro-batch; stages follow each other group by group,
// and layers are cut so that the slowest stage is fastest, exactly (stage_partition.h).
#pragma once

#include <optional>

#include "planner/planner.h"

namespace weft::planner {

struct GroupPlan {
  Seconds iteration{0};
  std::vector<GroupShare> groups;
  std::vector<std::string> why;
};

/// The faster of both ways; nullopt if neither is feasible, or compute was measured: of the
/// whole job, which says nothing of a group. The shares are a local optimum, not proved.
/// Requires: a heterogeneous cluster, and that the job takes all of it. Errors: as Plan().
[[nodiscard]] Result<std::optional<GroupPlan>> PlanGroups(const JobSpec& job, const ClusterSpec& cluster,
                                                          const PlanOptions& options);

}  // namespace weft::planner

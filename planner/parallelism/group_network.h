// The network of a cluster as collectives are priced on it: rates and latencies of the links, what their kind and the library
// leave of them, in the calibration's constants. The only maker of a GroupNetwork from a ClusterSpec: `weft plan`, `weft validate`
// and the controller's tables get theirs here.
#pragma once

#include <string_view>

#include "planner/collectives/collective_cost.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/calibration.h"

namespace weft::planner::inline parallelism {

/// Who runs the collectives.
enum class CollectiveLibrary {
  kNccl,   ///< NCCL, RCCL: a ring for each NIC, three protocols, sums in the NVSwitch
  kWeft,   ///< Weft's own runtime: one schedule at a time, whole chunks
};

/// The kind of what joins the GPUs of a node, as the calibration names it: "nvlink3", "nvlink5", "nvl72", "xgmi", "pcie", "cpu";
/// "nvlink" for a device that is not known.
std::string_view LinkKindOf(const ClusterSpec& cluster);

/// Whether links of some kind have that name among the constants: LinkKindOf()'s, and those of NICs.
bool IsLinkKind(std::string_view name);

/// Complexity: O(tiers · log constants). A rate is not positive where the cluster's is not.
GroupNetwork MakeGroupNetwork(const ClusterSpec& cluster, CollectiveLibrary library, const Calibration& calibration);

}  // namespace weft::planner::parallelism

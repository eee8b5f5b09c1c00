// What no controller can beat: tier cuts of a topology, the bytes of each job over them, and the master problem on top.
// Internal to planner.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "planner/joint_plan.h"

namespace weft::planner {

/// A set of nodes and what can leave it.
struct TierCut {
  std::string name;               ///< "out of h1", "into the hosts of leaf1"
  std::vector<bool> inside;       ///< by node
  BitsPerSecond capacity;         ///< of the links from inside to outside
};

/// Out of and into each host, and out of and into each switch together with the hosts that hang on it alone. Those that every
/// byte crosses anyway are left out. Complexity: O(switches · nodes + links).
std::vector<TierCut> TierCuts(const Topology& topology);

struct JointBound {
  std::vector<Seconds> alone;     ///< per job: max(compute, release + worst bytes / capacity of a cut); 0: not modelled
  double gpu_use = 0;             ///< of all modelled jobs' GPUs
  std::vector<std::string> tight; ///< cuts with a price, the dearest first
};

/// `modelled[j]`: the job counts. Errors: those of SolveMaster; kFailedPrecondition for bytes over a cut without capacity.
[[nodiscard]] Result<JointBound> BoundJointly(const JointProblem& problem, const std::vector<bool>& modelled);

}  // namespace weft::planner

// Which algorithm a communicator should use for a collective of a given size.
//
// Three questions, from the most to the least that a site can enforce; the first two have one account, collective_cost.h:
//   Choose        our own runtime runs any schedule: the cheapest closed form on the links that there are
//   CellsOn       NCCL can be told algorithm and protocol (tuner plugin): the cells of its table, at what they cost on those links
//   NcclTable     what NCCL does alone (nccl_model.h)
#pragma once

#include <span>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/algorithm.h"
#include "planner/collectives/collective_cost.h"
#include "planner/collectives/nccl_model.h"
#include "planner/collectives/tree_packing.h"

namespace weft::planner::inline collectives {

struct AlgorithmCost {
  AlgorithmSpec spec;
  Seconds time{0};
  int32_t slices = 1;  ///< of the pipeline, for tree and pipelined
};

struct ChoiceOptions {
  Bytes slice{512 << 10};               ///< pipelining grain of the executor
  const TreePacking* packing = nullptr; ///< makes forest a candidate
  BitsPerSecond packing_unit;           ///< what capacity 1 of the packing's graph is
};

/// All candidates, cheapest first, ties by algorithm: every algorithm that knows the collective, hierarchical and torus with the
/// network's own nodes as groups, over ranks that fill them one after the other. Requires: a network with single_ring. Errors:
/// kInvalidArgument for less than one rank or a rate that is not positive. Complexity: O(algorithms · log ranks).
[[nodiscard]] Result<std::vector<AlgorithmCost>> Choose(Collective collective, const GroupNetwork& network, int32_t ranks, Bytes bytes,
                                                        const ChoiceOptions& options = {});

/// One cell of NCCL's table at what it costs.
struct NcclCost {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  Seconds time{0};
};

/// The cells of NcclTable that the network has, cheapest first, ties in the order of `believed`: CollectiveTime of each, on rates
/// after oversubscription, collisions and slow links, of which NCCL knows nothing. Complexity: O(cells).
std::vector<NcclCost> CellsOn(const GroupNetwork& network, const Group& group, Collective collective, Bytes bytes,
                              std::span<const NcclEntry> believed);

}  // namespace weft::planner::collectives

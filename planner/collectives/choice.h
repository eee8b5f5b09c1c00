// Which algorithm a communicator should use for a collective of a given size.
//
// Three questions, from the most to the least that a site can enforce:
//   Choose        our own runtime runs any schedule: the cheapest closed form on the links that there are
//   NcclTableOn   NCCL can be told algorithm and protocol (tuner plugin): its own table, with the bandwidth that the network
//                 really gives in place of the one it assumes
//   NcclTable     what NCCL does alone (nccl_model.h)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/algorithm.h"
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
/// shape's own groups. Errors: kInvalidArgument for a shape without ranks or with a rate that is not positive.
/// Complexity: O(algorithms · log ranks).
[[nodiscard]] Result<std::vector<AlgorithmCost>> Choose(Collective collective, const CommunicatorShape& shape, Bytes bytes,
                                                        const ChoiceOptions& options = {});

/// NcclTable with each entry's bandwidth held to what a node can really send to the others: `node_rate` after oversubscription,
/// collisions and slow links. A ring sends 2 (M-1)/M of the data through each node and a tree up to 2 of it (1 with two
/// nodes), so that a ring's higher bandwidth inside the node no longer pays for its longer way.
/// Requires: as NcclTable; node_rate > 0.
std::vector<NcclEntry> NcclTableOn(const NcclGraph& graph, Collective collective, Bytes bytes, BitsPerSecond node_rate);

}  // namespace weft::planner::collectives

// What the schedules of algorithm.h cost on the links of a GroupNetwork: the part of the one account (collective_cost.h) that is
// of Weft's own runtime. With S the full buffer, n ranks, a and b latency and time per byte of equal links, k slices of the
// pipeline:
//
//   ring              collective_cost.h, one ring: allreduce 2 (n-1) (a + S/n b); allgather, reducescatter n-1 of the same steps
//   tree              double binary tree: 2 S b + 2 (depth a + fill of the pipeline), for allreduce
//   halving-doubling  2 (ceil(log2 n) a + (n-1)/n S b)
//   direct            2 (a + (n-1)/n S b); all-to-all: a + (n-1)/n S b
//   pairwise          all-to-all in n-1 exchanges: (n-1) (a + S/n b)
//   hierarchical      sum over the levels of what each one's pattern costs on its share of the data
//   torus             2 ((w-1)(a + S/2w b) + (h-1)(a + S/2wh b)) for a square, all links of both dimensions busy
//   ps                2 (a + (n-1)/servers S b)
//   pipelined         broadcast down a chain: (n-1) a + (n-2+k) S/k b
//   forest            spanning trees packed on the links that there are (tree_packing.h): no closed form
#pragma once

#include <cstdint>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/algorithm.h"
#include "planner/collectives/collective_cost.h"
#include "planner/collectives/communicator_shape.h"

namespace weft::planner::inline collectives {

/// Closed-form time of ranks 0 to `ranks` - 1 that fill the network's nodes one after the other. On several nodes, steps that some
/// rank takes across nodes cost what the NICs cost. `slices` is the pipeline of tree and pipelined; the others move whole chunks.
/// Requires: a network with single_ring, ranks ≥ 1.
/// Errors: as MakeSchedule; kUnimplemented for forest, whose cost is that of its packing. Complexity: O(log ranks).
[[nodiscard]] Result<Seconds> AlgorithmTime(const AlgorithmSpec& spec, Collective collective, const GroupNetwork& network,
                                            int32_t ranks, Bytes bytes, int32_t slices = 1);

/// The network that has groups of a shape as its nodes, without a library's start-up times.
GroupNetwork NetworkOf(const CommunicatorShape& shape);

}  // namespace weft::planner::collectives

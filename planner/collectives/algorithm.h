// The algorithms by name: the schedule of each, and its closed-form cost. With S the full buffer, n ranks, a and b latency
// and time per byte of equal links, k slices of the pipeline:
//
//   ring              allreduce 2 (n-1) (a + S/n b); allgather, reducescatter n-1 of the same steps
//   tree              double binary tree: 2 S b + 2 (depth a + fill of the pipeline), for allreduce
//   halving-doubling  2 (ceil(log2 n) a + (n-1)/n S b)
//   direct            2 (a + (n-1)/n S b); all-to-all: a + (n-1)/n S b
//   pairwise          all-to-all in n-1 exchanges: (n-1) (a + S/n b)
//   hierarchical      sum over the levels of what each one's pattern costs on its share of the data
//   torus             2 ((w-1)(a + S/2w b) + (h-1)(a + S/2wh b)) for a square, all links of both dimensions busy
//   ps                2 (a + (n-1)/servers S b)
//   pipelined         broadcast down a chain: (n-1) a + (n-2+k) S/k b
//   forest            spanning trees packed on the links that there are (tree_packing.h)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/communicator_shape.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

enum class Algorithm : uint8_t {
  kRing, kTree, kHalvingDoubling, kHierarchical, kTorus, kDirect, kPairwise, kParameterServer, kPipelined, kForest
};

/// An algorithm and its one parameter: the ranks per group (hierarchical, forest), the width (torus), the servers (ps). 0 is
/// the default: the divisor or number nearest to the square root; all ranks for servers.
struct AlgorithmSpec {
  Algorithm algorithm = Algorithm::kRing;
  int32_t parameter = 0;
  friend auto operator<=>(const AlgorithmSpec&, const AlgorithmSpec&) = default;
};

std::string_view AlgorithmName(Algorithm algorithm);
/// "ring", "hierarchical:8". Errors: kInvalidArgument with the accepted names.
[[nodiscard]] Result<AlgorithmSpec> ParseAlgorithm(std::string_view text);
std::string ToString(const AlgorithmSpec& spec);

/// The algorithms that have a schedule for `collective`, in the order of the enumeration.
std::vector<Algorithm> AlgorithmsFor(Collective collective);

/// Errors: kInvalidArgument when the algorithm does not know the collective, or the parameter does not fit the ranks.
[[nodiscard]] Result<Schedule> MakeSchedule(const AlgorithmSpec& spec, Collective collective, int32_t ranks,
                                            RankId root = RankId(0));

/// Closed-form time, by the table above. On a shape of several groups, steps that some rank takes across groups cost what
/// the outer link costs. `slices` is the pipeline of tree and pipelined; the others move whole chunks.
/// Errors: as MakeSchedule; kUnimplemented for forest, whose cost is that of its packing.
[[nodiscard]] Result<Seconds> AlgorithmTime(const AlgorithmSpec& spec, Collective collective,
                                            const CommunicatorShape& shape, Bytes bytes, int32_t slices = 1);

}  // namespace weft::planner::collectives

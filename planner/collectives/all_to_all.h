// All-to-all: every rank has a block for every rank, D in all.
//
//   direct        a + (n-1)/n D b            all at once, each rank beginning with the one behind it
//   pairwise      (n-1) (a + D/n b)          step k with the ranks at distance k, one after the other: no incast
//   hierarchical  inside a group of g to the rank of the right rail, then along the rail:
//                 a1 + (g-1)/g D b1 + a2 + (m-1)/m D b2 for m groups; no NIC ever talks to another rail
//
// Source: Thakur, Rabenseifner and Gropp 2005 (pairwise); NCCL's PXN, nccl release 2.12 (rails).
#pragma once

#include <cstdint>

#include "common/result.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

/// Requires: ranks ≥ 1.
Schedule DirectAllToAll(int32_t ranks);
Schedule PairwiseAllToAll(int32_t ranks);

/// Groups of `group` consecutive ranks; the last may be smaller: its ranks then forward for several rails.
/// Requires: ranks ≥ 1, group ≥ 1.
Schedule HierarchicalAllToAll(int32_t ranks, int32_t group);

}  // namespace weft::planner::collectives

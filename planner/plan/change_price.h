// What a change from one step program to another costs a running job: the state that has to move between its ranks, and how long the
// fabric takes for it. Each rank takes the place of its own number, as the new program is priced on the fabric in order of rank.
//
// Leaves out: new connections and memory, which take no bytes of the fabric (the caller's to add), and what others send meanwhile
// beyond what `cluster` has taken off.
#pragma once

#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"

namespace weft::planner {

struct ChangePrice {
  Bytes moved;      ///< from ranks to others: parameters and both moments
  Seconds moving;   ///< until the last rank is through with the rounds of planner/tasks/state_change.h
};

/// Most ranks of a program that PriceChange() looks at.
inline constexpr int64_t kMostPricedRanks = 512;

/// `cluster` has at least as many GPUs as the programs have ranks, which fill it node after node. Links give what collectives are priced
/// with (group_network.h). A rank exchanges with one other at a time, first one way and then the other, and goes on when both are through;
/// those who send out of, or into, one node or unit of a tier in the same half of a round share what it lets out.
/// Errors: kInvalidArgument for programs of another model, of unlike sizes, of more ranks than kMostPricedRanks or the cluster has, or
/// where something would be lost (LeftBehind()).
/// Complexity: O(ranks² · boxes).
[[nodiscard]] Result<ChangePrice> PriceChange(const ModelSpec& model, const ClusterSpec& cluster, const StepProgram& from,
                                              const StepProgram& to);

}  // namespace weft::planner

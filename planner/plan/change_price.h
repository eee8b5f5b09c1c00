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
  Seconds moving;   ///< of all rounds of planner/tasks/state_change.h, one after the other
};

/// Most ranks of a program that PriceChange() looks at.
inline constexpr int64_t kMostPricedRanks = 512;

/// `cluster` has as many GPUs as the programs have ranks, which fill it node after node. A round takes as long as its busiest node
/// sends or receives, or what leaves or enters its busiest unit of a tier; a pair's two directions follow each other.
/// Errors: kInvalidArgument for programs of another model, of unlike sizes, or of more ranks than kMostPricedRanks or the cluster has.
/// Complexity: O(ranks² · boxes).
[[nodiscard]] Result<ChangePrice> PriceChange(const ModelSpec& model, const ClusterSpec& cluster, const StepProgram& from,
                                              const StepProgram& to);

}  // namespace weft::planner

// An MoE model-of-experts MLP: router, dispatch, grouped products of the local experts, combine; shared experts beside them.
#pragma once

#include "planner/parallelism/layer_time.h"

namespace weft::planner::inline parallelism {

/// Adds the MoE's kernels and exposed exchanges, balanced and dropless. Tokens of one rank: T/t with every token's
/// K copies; ep · etp ranks exchange them. Source: arXiv 2006.16668 section 2, arXiv 2504.14960 (folding).
void AddMoe(LayerTime& layer, const JobSpec& job, const CalibratedHardware& hardware, const LayerKey& key);

/// Expected number of distinct nodes that a token's K experts lie on, of `nodes` with E/nodes experts each, routing
/// uniform: n (1 - C(E - E/n, K) / C(E, K)). Source: hypergeometric distribution.
double ExpectedNodes(double experts, double per_token, double nodes);

}  // namespace weft::planner::parallelism

// Layer 4: which share of each flow's bytes takes which of its candidate paths, for the flows of all jobs together.
//
// Given links l of capacity C_l, flows f with candidate paths p ∈ P_f, the choice maximises the least served flow:
// find shares x_fp ≥ 0, Σ_p x_fp = 1, so that max_l (Σ_fp: l ∈ p  d_f x_fp) / C_l is least (the fractional
// multi-commodity bound), preferring whole flows on one path where that costs nothing, and the present shares where a
// change would gain less than the cost of switching.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/fabric/topology.h"

namespace weft::planner::inline flows {

/// One way from source to destination.
struct CandidatePath {
  std::vector<LinkId> links;
};

/// One flow of one job. `demand` is what it would send while it communicates if nothing held it back (its line rate is
/// a sound choice for a collective's flow); `intensity` orders jobs when they cannot all be served alike.
struct FlowDemand {
  uint64_t key = 0;       ///< the caller's name for it; ties are broken by it
  std::string job;
  BitsPerSecond demand;
  double intensity = 1;   ///< FLOPs per second of communication, relative (Crux, SIGCOMM'24, section 4.1)
  std::vector<CandidatePath> paths;
  std::vector<double> present_shares;  ///< per path, sum 1; empty: the flow is new
};

struct FlowProblem {
  Topology topology;
  std::vector<FlowDemand> flows;
  double split_gain = 0.05;      ///< least relative gain that justifies a flow on several paths at once
  double switching_gain = 0.05;  ///< least relative gain of the worst flow's rate that justifies moving anything
  bool whole_only = false;       ///< every flow on one path, and no bound: bottleneck_bound is 0
  bool quick = false;            ///< only what a change calls for (repair.h): flows on links that are not crowded stay
  int node_budget = 100'000;     ///< local-search evaluations; past it the answer says complete = false. As many again for
                                 ///< splitting alike (even_split.h), which is left out past it
};

struct FlowShare {
  uint64_t key = 0;
  std::vector<double> shares;      ///< per candidate path, sum 1
  std::vector<int32_t> weights;    ///< the shares as the smallest integers in their ratio (at most 64 where Weft chose them)
  BitsPerSecond predicted_rate;    ///< max-min fair, all flows busy at once; striped flows keep strictly to their shares
};

struct FlowPlan {
  std::vector<FlowShare> flows;    ///< in the order of the problem
  double bottleneck_before = 0;    ///< max over links of load / capacity with the present shares; new flows count as
                                   ///< spread evenly; infinite when a flow lies on a dead link but need not
  double bottleneck_after = 0;
  double bottleneck_bound = 0;     ///< fractional optimum
  bool changed = false;            ///< any share differs from the present one
  bool complete = true;
  std::vector<std::string> why;    ///< one line per flow that moved, and per flow that stayed on a loaded link
};

/// Solves `problem`: whole flows first (greedy by intensity, then local search on the worst links), unequal splits where
/// they serve the worst flow better by more than split_gain; few flows between the same places are split alike where that
/// leaves one of them clearly more while the others pause. Flows without a usable path keep what they have and get rate
/// 0. A function: same input, same answer, byte for byte. Requires: every flow has at least one path, a positive demand,
/// and no present shares or one per path. Once a stop is asked for it ends soon, with an answer that is
/// not to be used.
FlowPlan ChoosePaths(const FlowProblem& problem, const std::stop_token& stop = {});

}  // namespace weft::planner::flows

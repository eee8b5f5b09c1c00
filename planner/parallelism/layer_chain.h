// The exact inner problem of per-layer strategies (Galvatron): every layer of a chain takes one option with a time
// and an amount of memory; two neighbours with different layouts pay for the re-layout between them; memory stays
// within a budget; the total time is least.
//
// Method: label setting over (option, memory, time) layer by layer. A label goes when another one with no more memory
// is no later even after a re-layout, or when its Lagrangian bound (shortest path to the end with memory priced)
// reaches the best answer known, which narrow first passes find.
//
//   const ChainAnswer answer = SolveLayerChain({{{options, 32}}, layouts, relayout, budget}, {});
#pragma once

#include <cstdint>
#include <vector>

#include "planner/parallelism/choice_knapsack.h"

namespace weft::planner::inline parallelism {

struct LayerOption {
  double time = 0;       ///< seconds
  int64_t memory = 0;    ///< bytes
  size_t layout = 0;     ///< row of the re-layout matrix
};

/// Consecutive layers with the same options.
struct LayerRun {
  std::vector<LayerOption> options;
  int64_t count = 1;
};

struct ChainProblem {
  std::vector<LayerRun> runs;
  size_t layouts = 1;
  std::vector<double> relayout;  ///< [layouts × layouts], seconds, row = layout of the earlier layer; empty: free
  int64_t budget = 0;            ///< bytes
};

struct ChainAnswer {
  bool feasible = false;
  bool complete = true;          ///< false: the limit on states ended the search, `lower_bound` still holds
  double time = 0;
  int64_t memory = 0;
  double lower_bound = 0;        ///< +infinity if nothing fits
  int64_t states = 0;
  std::vector<size_t> option;    ///< [layer]
};

/// The least time within the budget, exactly (up to limits.tolerance). Ties go to what the fixed order of labels finds
/// first. Requires: every run has options, layouts in range, times and memories ≥ 0, relayout of size layouts² or 0.
/// Complexity: O(layers · labels · options); equal layers keep the labels few, for their sums coincide.
/// Source: problem, arXiv 2211.13878 section 5 (there solved over quantised memory); Lagrangian bound for constrained
/// shortest paths, Handler and Zang, Networks 10 (1980).
ChainAnswer SolveLayerChain(const ChainProblem& problem, const KnapsackLimits& limits);

}  // namespace weft::planner::parallelism

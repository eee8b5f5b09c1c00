// Where to cut a chain of layers into pipeline stages: an exact inner problem. Stage times come from the caller, who
// may solve a problem of its own for each (how many layers must recompute so that the stage fits).
//
//   const StagePartition cut = PartitionStages({.layers = 96, .stages = 8, .micro_batches = 64}, cost);
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace weft::planner::inline parallelism {

struct PartitionProblem {
  int64_t layers = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
};

/// Seconds of forward and backward of one micro-batch on `stage` if it holds `count` layers from `first` on; infinity
/// if they do not fit.
using StageTimeFunction = std::function<double(int64_t stage, int64_t first, int64_t count)>;

struct StagePartition {
  bool feasible = false;
  std::vector<int64_t> layers;   ///< of each stage, at least 1
  double slowest = 0;            ///< stage
  double sum = 0;                ///< over stages
  double iteration = 0;          ///< sum + (micro_batches - 1) · slowest
};

/// The cut with the least `sum + (m - 1) · slowest`, exactly; ties go to the least sum of squares of the layer counts'
/// differences from an even cut, then to more layers on later stages. Complexity: O(stages · layers²) calls, and as
/// much for every candidate of the slowest stage that could still win.
/// Source: objective and enumeration of the slowest stage, arXiv 2201.12023, section 5.
StagePartition PartitionStages(const PartitionProblem& problem, const StageTimeFunction& time);

}  // namespace weft::planner::parallelism

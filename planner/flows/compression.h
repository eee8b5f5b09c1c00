// A priority order in the few classes that a fabric has. Two jobs that share a link and land in one class share it
// fairly, which loses what the order was worth: the intensity of the higher one. Classes are chosen so that the least is
// lost; a job never lands in a higher class than a job before it that it shares a link with.
//
//   const std::vector<int32_t> classes = CompressPriorities({weights, contentions, 8});   // 0 is served first
//
// Both functions are exact for their question. CompressOrder() keeps the whole order, by dynamic programming. The other
// only keeps it between jobs that meet, which loses no more and often less: the loss Σ w_ij [c_i = c_j] subject to
// c_i ≤ c_j is a convex function of class differences, hence a least cut.
//
// Source: max-K-cut over orders of the contention graph is Crux (SIGCOMM'24), section 4.3, which samples orders and cuts
// each; the least cut is derived in the .cc file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::planner::inline flows {

/// Jobs `first` and `second` of the order share a link. Requires: first < second.
struct Contention {
  size_t first, second;
};

/// Jobs are numbered by their place in the order, the most important first.
struct CompressionProblem {
  std::vector<double> weight;           ///< ≥ 0, of each job: what one contention costs that it does not win
  std::vector<Contention> contentions;  ///< each pair once
  int32_t classes = 8;                  ///< ≥ 1
};

/// What an assignment of classes loses: Σ weight[first] over contentions inside one class.
double CompressionLoss(const CompressionProblem& problem, const std::vector<int32_t>& classes);

/// Class per job, ascending along the order, of least loss. Complexity: O(jobs² · classes).
std::vector<int32_t> CompressOrder(const CompressionProblem& problem);

/// Class per job, ascending along every contention, of least loss over all such assignments (weights are rounded to
/// 2^-30 of the largest). Complexity: a least cut of jobs · (classes - 1) nodes.
std::vector<int32_t> CompressPriorities(const CompressionProblem& problem);

}  // namespace weft::planner::flows

// How far a measured value may lie from its prediction: quantiles of measured over predicted on published runs, each predicted
// by constants that were fitted without its source (tools/calibrate.py --leave-one-out). Every source counts alike, so that an
// interval says what to expect of a program, a model and a cluster that nobody has measured yet.
#pragma once

#include <cstdint>
#include <span>

namespace weft::planner::inline parallelism {

/// What is predicted; a mixture of experts is known less well than a dense model.
enum class Predicted : uint8_t { kIteration, kMixtureIteration, kMemory, kCollective, kSmallCollective };
inline constexpr int64_t kSmallCollectiveBytes = 1 << 20;  ///< less is small

/// Factors on a prediction.
struct ErrorInterval {
  double low = 1, high = 1;
};

/// Measured over predicted, ascending; each stands for the same share of the sources. Written by tools/fidelity_report.py.
std::span<const double> PredictionErrors(Predicted kind);

/// That holds the measured value with probability `share`: as much may lie below as above. Requires: 0 < share < 1.
ErrorInterval IntervalOf(Predicted kind, double share);

}  // namespace weft::planner::parallelism

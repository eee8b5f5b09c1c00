#include "planner/parallelism/prediction_interval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "planner/parallelism/memory_risk.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr double kIterations[] = {
#include "planner/parallelism/iteration_errors.inc"
};
constexpr double kMixtures[] = {
#include "planner/parallelism/mixture_errors.inc"
};
constexpr double kCollectives[] = {
#include "planner/parallelism/collective_errors.inc"
};
constexpr double kSmallCollectives[] = {
#include "planner/parallelism/small_collective_errors.inc"
};

/// By nearest rank.
double Quantile(std::span<const double> errors, double share) {
  const auto count = static_cast<double>(errors.size());
  return errors[static_cast<size_t>(std::clamp(std::ceil(share * count - 1e-9), 1.0, count)) - 1];
}

}  // namespace

std::span<const double> PredictionErrors(Predicted kind) {
  switch (kind) {
    case Predicted::kIteration: return kIterations;
    case Predicted::kMixtureIteration: return kMixtures;
    case Predicted::kMemory: return MemoryErrors();
    case Predicted::kCollective: return kCollectives;
    case Predicted::kSmallCollective: return kSmallCollectives;
  }
  return kIterations;
}

ErrorInterval IntervalOf(Predicted kind, double share) {
  const std::span<const double> errors = PredictionErrors(kind);
  return {Quantile(errors, (1 - share) / 2), Quantile(errors, (1 + share) / 2)};
}

}  // namespace weft::planner::parallelism

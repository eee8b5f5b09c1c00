#include "runtime/learning_rate.h"

#include <cmath>
#include <numbers>

namespace weft::runtime {

double LearningRateAt(const LearningRate& rate, int64_t step) {
  if (step < rate.warm_up) return rate.peak * static_cast<double>(step + 1) / static_cast<double>(rate.warm_up);
  if (rate.decay <= rate.warm_up) return rate.peak;
  if (step >= rate.decay) return rate.least;
  const double way = static_cast<double>(step - rate.warm_up) / static_cast<double>(rate.decay - rate.warm_up);
  return rate.least + (rate.peak - rate.least) * (1 + std::cos(std::numbers::pi * way)) / 2;
}

}  // namespace weft::runtime

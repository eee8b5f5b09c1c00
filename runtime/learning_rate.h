// The learning rate of a step: linear warm-up, then constant, or a cosine down to a floor.
#pragma once

#include <cstdint>

namespace weft::runtime {

struct LearningRate {
  double peak = 1e-3;
  int64_t warm_up = 0;  ///< steps; the first one has peak / warm_up
  int64_t decay = 0;    ///< step at which the cosine ends, warm-up included; 0: none, constant
  double least = 0;     ///< at and after `decay`
};

/// Of step `step`, from 0.
double LearningRateAt(const LearningRate& rate, int64_t step);

}  // namespace weft::runtime

// Constants of the cost model as a site's own runs have them. Few runs say little: what a constant was before counts as evidence too,
// so that it moves as far as the runs need it and no further (the most likely constants, given both). A run that nothing explains, say
// one beside a broken NIC, counts less the further off it is (Student's t).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "common/result.h"
#include "planner/parallelism/calibration.h"

namespace weft::planner::inline parallelism {

/// What each run takes by `constants`, in the units of what was measured; NaN where it cannot be said.
using PredictRuns = std::function<Result<std::vector<double>>(const Calibration& constants)>;

struct LearnedConstants {
  std::vector<CalibrationConstant> moved;  ///< with their new values; those that the runs say something of
  std::vector<double> before, after;       ///< predictions, run by run
};

/// Requires: measured values > 0, as many as `predict` gives predictions; `predict` asked at values within the constants' ranges.
/// Constants of single operations ("operation.") stay, and those on a bound, which say what is not there ("no sums in the switch").
/// Errors: those of `predict`.
/// Complexity: at most 5 rounds of 4 predictions and one for each constant, O(constants³ + runs · constants²) each.
[[nodiscard]] Result<LearnedConstants> LearnConstants(const Calibration& base, std::span<const double> measured,
                                                      const PredictRuns& predict);

/// Median of |predicted / measured - 1|, without predictions that are NaN; NaN without any. Requires: as many of both.
double MedianError(std::span<const double> predicted, std::span<const double> measured);

}  // namespace weft::planner::parallelism

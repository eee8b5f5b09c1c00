// Statistics of predictions: errors by file and class, order within sweeps. Internal to cli/validate*.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/validate_predict.h"

namespace weft::cli {

struct ErrorSummary {
  int64_t rows = 0;
  double mean = 0, median = 0, p90 = 0, worst = 0;   ///< of |predicted / measured - 1|; of "fits" the share of wrong rows
};
/// Percentiles by nearest rank. Empty: all zero.
ErrorSummary Summarise(std::vector<double> absolute_errors);

/// A regret up to this meets what is promised of a picked plan.
inline constexpr double kSmallRegret = 0.03;
/// Measured times nearer than this are not told apart: repetitions of one run differ by as much.
inline constexpr double kMeasuredTie = 0.02;

/// One sweep of at least two settings; repetitions of one setting count once, by their mean.
struct SweepSummary {
  std::string file, sweep;
  int64_t settings = 0;
  double kendall_tau = 0;            ///< tau-b over all pairs
  int64_t distinct_pairs = 0;        ///< measured further apart than kMeasuredTie
  double distinct_tau = 0;           ///< of those pairs, share ordered alike minus share ordered otherwise
  double regret = 0;                 ///< measured time of the setting predicted best over the best measured, minus 1
  int64_t picked_line = 0, best_line = 0;  ///< a row of the setting predicted best, and of the one measured best
};
/// In order of file and sweep.
std::vector<SweepSummary> SummariseSweeps(std::span<const RowPrediction> rows);

/// Means over sweeps.
struct OrderSummary {
  int64_t sweeps = 0;
  double kendall_tau = 0;
  double regret = 0;
  int64_t small_regret = 0;          ///< sweeps with at most kSmallRegret
  int64_t distinct_sweeps = 0;       ///< sweeps with a pair that the measurements tell apart
  double distinct_tau = 0;           ///< mean over those
};
OrderSummary SummariseOrder(std::span<const RowPrediction> rows);

struct FileSummary {
  std::string file, kind;
  ErrorSummary errors;
  OrderSummary order;
};
/// One entry per file and class, in order of appearance.
std::vector<FileSummary> SummariseFiles(std::span<const RowPrediction> rows);

}  // namespace weft::cli

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
/// Rows marked as calibration are left out by the caller. Percentiles by nearest rank. Empty: all zero.
ErrorSummary Summarise(std::vector<double> absolute_errors);

struct OrderSummary {
  int64_t sweeps = 0;
  double kendall_tau = 0;  ///< mean over sweeps
  double regret = 0;       ///< mean over sweeps
};
/// Over sweeps of at least two settings; repetitions of one setting count once, by their mean. Kendall's tau-b.
/// Regret: measured time of the setting predicted best over the best measured, minus 1.
OrderSummary SummariseOrder(std::span<const RowPrediction> rows);

struct FileSummary {
  std::string file, kind;
  ErrorSummary errors;
  OrderSummary order;
};
/// One entry per file and class, in order of appearance.
std::vector<FileSummary> SummariseFiles(std::span<const RowPrediction> rows);

}  // namespace weft::cli

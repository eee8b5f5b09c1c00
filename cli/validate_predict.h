// One row's prediction. Internal to cli/validate*.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "formats/validation_case.h"
#include "planner/planner.h"

namespace weft::cli {

struct RowPrediction {
  std::string file, source, model, metric;
  int64_t line = 0;
  int64_t bytes = 0;       ///< of a collective; 0: none
  std::string kind;        ///< "time", "memory", "fits", "collective" or "collective-small"
  double measured = 0, predicted = 0;
  bool complete = false;   ///< a time row with tp, pp, dp, micro-batch, global batch, seq, layers and hidden
  std::string sweep;       ///< rows of equal sweep compete with each other; empty: with none
  std::string setting;     ///< rows of equal setting are repetitions
  std::vector<std::string> defaults;
  planner::Strategy strategy;  ///< as priced: what the row does not say is decided
  planner::Estimate estimate;
  bool feasible = true;

  double error() const { return measured == 0 ? predicted - measured : predicted / measured - 1; }
};

/// `asks_feasibility`: whether RowPrediction::feasible is asked for, which costs as much again; rows of fits_in_memory always ask.
/// Errors: with the reason why the row cannot be predicted.
[[nodiscard]] Result<RowPrediction> PredictRow(const formats::ValidationRow& row, std::string_view file,
                                               const planner::Calibration& calibration, bool asks_feasibility = true);

}  // namespace weft::cli

// Tables of measurements, predicted row by row. Internal to cli/validate* and cli/calibrate_runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/validate_predict.h"
#include "common/result.h"
#include "planner/planner.h"

namespace weft::cli {

struct Skipped {
  std::string file;
  int64_t row = 0;         ///< its line; 0: the whole file
  std::string reason;
};

/// Each row of the tables is in one of both.
struct Validation {
  std::vector<RowPrediction> rows;
  std::vector<Skipped> skipped;
};

/// Adds the rows of the CSV file at `path`, of training or of collectives. `asks_feasibility` as of PredictRow. Errors: a file that
/// cannot be read or is no CSV.
[[nodiscard]] Status AddTable(const std::string& path, const planner::Calibration& calibration, bool asks_feasibility, Validation& all);

/// A file's constants in place of those compiled in, with whatever names and ranges: a fit may try new ones. Errors: those of
/// formats::ReadCalibrationYaml.
[[nodiscard]] Result<planner::Calibration> ReadOverCompiled(const std::string& file);

}  // namespace weft::cli

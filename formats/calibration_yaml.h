// The cost model's constants as YAML (planner/parallelism/calibration.h says what they mean):
//
//   version: 1
//   constants:
//     - {name: gpu.a100.gemm16, value: 0.85, least: 0.3, most: 0.97, fitted: true, source: "…"}
//   rows:                                # what was fitted on: left out of every summary
//     - {file: bloom_a100.csv, line: 2, value: 160.29}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/parallelism/calibration.h"

namespace weft::formats {

/// A row of a table that constants were fitted on; `value` is the measured one, so that another table of the same name
/// is not mistaken for it.
struct CalibrationRow {
  std::string file;
  int64_t line = 0;
  double value = 0;
};

struct CalibrationFile {
  planner::Calibration calibration;
  std::vector<CalibrationRow> rows;
};

/// Errors: kNotFound for a missing file; kInvalidArgument naming file, line, key and what was expected, e.g. for a value
/// outside its physical range.
[[nodiscard]] Result<CalibrationFile> ReadCalibrationYaml(const std::string& path);
[[nodiscard]] Result<CalibrationFile> ParseCalibrationYaml(std::string_view text, std::string_view source);

/// What is compiled in, rows included.
const CalibrationFile& DefaultCalibrationFile();

}  // namespace weft::formats

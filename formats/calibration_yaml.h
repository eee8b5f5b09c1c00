// The cost model's constants as YAML (planner/parallelism/calibration.h says what they mean):
//
//   version: 1
//   constants:
//     - {name: gpu.a100.gemm16, value: 0.85, least: 0.3, most: 0.97, fitted: true, source: "…"}
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/parallelism/calibration.h"

namespace weft::formats {

/// Errors: kNotFound for a missing file; kInvalidArgument naming file, line, key and what was expected, e.g. for a value
/// outside its physical range.
[[nodiscard]] Result<planner::Calibration> ReadCalibrationYaml(const std::string& path);
[[nodiscard]] Result<planner::Calibration> ParseCalibrationYaml(std::string_view text, std::string_view source);

/// The constants of a file that win over those compiled in. Errors: as above; and naming file and constant for a name that no
/// prediction reads, and for a value outside of the range compiled in, whatever range the file gives.
[[nodiscard]] Result<std::vector<planner::MeasuredConstant>> ReadMeasuredConstants(const std::string& path);

/// A file of these constants, by name. Requires: names and sources without quotes.
std::string WriteCalibrationYaml(std::span<const planner::CalibrationConstant> constants);

}  // namespace weft::formats

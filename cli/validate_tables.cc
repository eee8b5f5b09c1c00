#include "cli/validate_tables.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include "cli/validate_collectives.h"
#include "formats/calibration_yaml.h"
#include "formats/collectives_csv.h"
#include "formats/read_file.h"
#include "formats/validation_csv.h"

namespace weft::cli {

Status AddTable(const std::string& path, const planner::Calibration& calibration, bool asks_feasibility, Validation& all) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, formats::ReadFile(path));
  const std::string file = std::filesystem::path(path).filename().string();
  if (formats::IsCollectiveTable(text)) {
    WEFT_ASSIGN_OR_RETURN(CollectivePredictions predictions, PredictCollectives(text, path, calibration));
    for (const SkippedCollective& row : predictions.skipped) all.skipped.push_back({file, row.line, row.reason});
    std::move(predictions.rows.begin(), predictions.rows.end(), std::back_inserter(all.rows));
    return Ok();
  }
  if (!formats::IsTrainingTable(text)) {
    all.skipped.push_back({file, 0, "no table of training measurements: no column measured_metric"});
    return Ok();
  }
  WEFT_ASSIGN_OR_RETURN(const auto rows, formats::ParseValidationCsv(text, path));
  for (const formats::ValidationRow& row : rows) {
    auto prediction = PredictRow(row, file, calibration, asks_feasibility);
    if (!prediction) {
      all.skipped.push_back({file, row.line, prediction.error().message()});
      continue;
    }
    all.rows.push_back(*std::move(prediction));
  }
  return Ok();
}

Result<planner::Calibration> ReadOverCompiled(const std::string& file) {
  WEFT_ASSIGN_OR_RETURN(const planner::Calibration read, formats::ReadCalibrationYaml(file));
  std::vector<planner::MeasuredConstant> constants;
  for (const planner::CalibrationConstant& c : read.constants()) constants.push_back({.name = c.name, .value = c.value});
  return planner::Calibration().With(constants);
}

}  // namespace weft::cli

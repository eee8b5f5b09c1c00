#include "cli/calibrate_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "cli/validate_tables.h"
#include "formats/calibration_yaml.h"
#include "formats/write_file.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

constexpr size_t kMostShown = 20;  // runs, and tables named in a file's sources

/// A run by its place in the tables: two files may have the same name.
struct RunKey {
  size_t table = 0;
  int64_t line = 0;
  auto operator<=>(const RunKey&) const = default;
};

/// The runs of all tables, those of which a time, a size or a collective was measured.
class Runs {
 public:
  static Result<Runs> Read(const std::vector<std::string>& tables, const planner::Calibration& base) {
    Runs runs(tables);
    for (size_t table = 0; table < tables.size(); ++table) {
      WEFT_ASSIGN_OR_RETURN(Validation all, runs.Predict(table, base));
      for (Skipped& row : all.skipped) runs.skipped_.push_back(std::move(row));
      for (RowPrediction& row : all.rows) {
        if (row.kind == "fits" || !(row.measured > 0)) {
          runs.skipped_.push_back({row.file, row.line, "whether it fits: no amount that constants could be held against"});
          continue;
        }
        runs.at_[{table, row.line}] = runs.rows_.size();
        runs.measured_.push_back(row.measured);
        runs.rows_.push_back(std::move(row));
      }
    }
    if (!runs.rows_.empty()) return runs;
    const std::string first = runs.skipped_.empty() ? "no rows" : fmt::format("{}:{}: {}", runs.skipped_[0].file, runs.skipped_[0].row,
                                                                              runs.skipped_[0].reason);
    return Fail(Code::kInvalidArgument, fmt::format("--runs {}: no run that can be predicted, expected a table of measurements as "
                                                    "tests/validation/README.md has it: {}", tables[0], first));
  }

  /// NaN of what these constants cannot predict.
  Result<std::vector<double>> Predictions(const planner::Calibration& constants) const {
    std::vector<double> predicted(rows_.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t table = 0; table < tables_.size(); ++table) {
      WEFT_ASSIGN_OR_RETURN(const Validation all, Predict(table, constants));
      for (const RowPrediction& row : all.rows) {
        if (const auto found = at_.find({table, row.line}); found != at_.end()) predicted[found->second] = row.predicted;
      }
    }
    return predicted;
  }

  const std::vector<RowPrediction>& rows() const { return rows_; }
  const std::vector<double>& measured() const { return measured_; }
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  explicit Runs(const std::vector<std::string>& tables) : tables_(tables) {}
  Result<Validation> Predict(size_t table, const planner::Calibration& constants) const {
    Validation all;
    WEFT_RETURN_IF_ERROR(AddTable(tables_[table], constants, false, all));
    return all;
  }

  std::vector<std::string> tables_;
  std::vector<RowPrediction> rows_;
  std::vector<double> measured_;
  std::vector<Skipped> skipped_;
  std::map<RunKey, size_t> at_;
};

void Report(const Runs& runs, const planner::LearnedConstants& learned) {
  for (size_t i = 0; i < std::min(runs.rows().size(), kMostShown); ++i) {
    const RowPrediction& row = runs.rows()[i];
    fmt::print(stderr, "weft calibrate: {}:{} {}, {}: predicted {:+.1f} % off before, {:+.1f} % now\n", row.file, row.line, row.model,
               row.metric, 100 * (learned.before[i] / row.measured - 1), 100 * (learned.after[i] / row.measured - 1));
  }
  if (runs.rows().size() > kMostShown) fmt::print(stderr, "weft calibrate: and {} more runs\n", runs.rows().size() - kMostShown);
  for (size_t i = 0; i < std::min(runs.skipped().size(), kMostShown); ++i) {
    const Skipped& row = runs.skipped()[i];
    fmt::print(stderr, "weft calibrate: skipped {}:{}: {}\n", row.file, row.row, row.reason);
  }
  if (runs.skipped().size() > kMostShown) fmt::print(stderr, "weft calibrate: skipped {} more\n", runs.skipped().size() - kMostShown);
  fmt::print(stderr, "weft calibrate: {} runs, median error {:.1f} % before, {:.1f} % now; {} constants moved\n", runs.rows().size(),
             100 * planner::MedianError(learned.before, runs.measured()), 100 * planner::MedianError(learned.after, runs.measured()), learned.moved.size());
}

/// What was learned, over what the file to begin with has.
std::vector<planner::CalibrationConstant> ToWrite(const planner::Calibration& base, const std::vector<planner::MeasuredConstant>& begun,
                                                  const planner::LearnedConstants& learned, size_t runs) {
  std::map<std::string, planner::CalibrationConstant> all;
  for (const planner::MeasuredConstant& measured : begun) {
    planner::CalibrationConstant constant = base.RangeOf(measured.name);
    constant.name = measured.name, constant.value = measured.value;
    all[constant.name] = std::move(constant);
  }
  for (const planner::CalibrationConstant& moved : learned.moved) {
    all[moved.name] = moved;
    all[moved.name].source = fmt::format("learned from {} runs", runs);
  }
  std::vector<planner::CalibrationConstant> list;
  std::transform(all.begin(), all.end(), std::back_inserter(list), [](auto& entry) { return std::move(entry.second); });
  return list;
}

}  // namespace

Status CalibrateFromRuns(const CalibrateRunsOptions& options) {
  std::vector<planner::MeasuredConstant> begun;
  if (!options.calibration.empty()) {
    WEFT_ASSIGN_OR_RETURN(begun, formats::ReadMeasuredConstants(options.calibration));
  }
  const planner::Calibration compiled, base = compiled.With(begun);
  WEFT_ASSIGN_OR_RETURN(const Runs runs, Runs::Read(options.tables, base));
  fmt::print(stderr, "weft calibrate: {} runs, {} constants\n", runs.rows().size(), base.constants().size());
  const auto predict = [&](const planner::Calibration& constants) { return runs.Predictions(constants); };
  WEFT_ASSIGN_OR_RETURN(const planner::LearnedConstants learned, planner::LearnConstants(base, runs.measured(), predict));
  Report(runs, learned);
  const std::string text = formats::WriteCalibrationYaml(ToWrite(compiled, begun, learned, runs.rows().size()));
  if (!options.out.empty()) return formats::WriteFile(options.out, text);
  fmt::print("{}", text);
  return Ok();
}

}  // namespace weft::cli

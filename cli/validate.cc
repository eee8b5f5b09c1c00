#include "cli/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/validate_summary.h"
#include "cli/validate_tables.h"
#include "common/exit_code.h"

namespace weft::cli {
namespace {

using nlohmann::json;

ErrorSummary CompleteTimes(const std::vector<RowPrediction>& rows) {
  std::vector<double> errors;
  for (const RowPrediction& row : rows) {
    if (row.complete) errors.push_back(std::abs(row.error()));
  }
  return Summarise(std::move(errors));
}

json PartsJson(const planner::Estimate& e) {
  return {{"compute", e.compute.count()},   {"tensor", e.tensor.count()},       {"context", e.context.count()},
          {"expert", e.expert.count()},     {"data", e.data.count()},           {"pipeline", e.pipeline.count()},
          {"bubble", e.bubble.count()},     {"optimizer", e.optimizer.count()}, {"overhead", e.overhead.count()},
          {"memory", e.memory.total().count()}};
}

json ErrorsJson(const ErrorSummary& s) {
  return {{"rows", s.rows}, {"mape", s.mean}, {"median", s.median}, {"p90", s.p90}, {"worst", s.worst}};
}

json SweepsJson(const std::vector<RowPrediction>& rows) {
  json sweeps = json::array();
  for (const SweepSummary& sweep : SummariseSweeps(rows)) {
    sweeps.push_back({{"file", sweep.file}, {"sweep", sweep.sweep}, {"settings", sweep.settings},
                      {"kendall_tau", sweep.kendall_tau}, {"distinct_pairs", sweep.distinct_pairs},
                      {"kendall_tau_distinct", sweep.distinct_pairs > 0 ? json(sweep.distinct_tau) : json(nullptr)},
                      {"regret", sweep.regret}, {"within_3_percent", sweep.regret <= kSmallRegret},
                      {"picked_line", sweep.picked_line}, {"best_line", sweep.best_line}});
  }
  return sweeps;
}

void PrintJson(const Validation& all) {
  json rows = json::array(), skipped = json::array(), files = json::array();
  for (const RowPrediction& row : all.rows) {
    rows.push_back({{"file", row.file}, {"line", row.line}, {"source", row.source}, {"model", row.model},
                    {"metric", row.metric}, {"class", row.kind}, {"bytes", row.bytes > 0 ? json(row.bytes) : json(nullptr)}, {"measured", row.measured},
                    {"predicted", row.predicted}, {"error", row.error()},
                    {"complete", row.complete}, {"feasible", row.feasible}, {"defaults", row.defaults},
                    {"setting", row.setting}, {"parts", PartsJson(row.estimate)}});
  }
  for (const Skipped& row : all.skipped) skipped.push_back({{"file", row.file}, {"row", row.row}, {"reason", row.reason}});
  for (const FileSummary& file : SummariseFiles(all.rows)) {
    json entry = ErrorsJson(file.errors);
    entry["file"] = file.file;
    entry["class"] = file.kind;
    const bool ordered = file.order.sweeps > 0;
    entry["sweeps"] = file.order.sweeps;
    entry["kendall_tau"] = ordered ? json(file.order.kendall_tau) : json(nullptr);
    entry["regret"] = ordered ? json(file.order.regret) : json(nullptr);
    entry["sweeps_within_3_percent"] = file.order.small_regret;
    files.push_back(std::move(entry));
  }
  json summary = ErrorsJson(CompleteTimes(all.rows));
  const OrderSummary order = SummariseOrder(all.rows);
  summary["sweeps"] = order.sweeps;
  summary["kendall_tau"] = order.kendall_tau;
  summary["regret"] = order.regret;
  summary["sweeps_within_3_percent"] = order.small_regret;
  summary["sweeps_distinct"] = order.distinct_sweeps;
  summary["kendall_tau_distinct"] = order.distinct_tau;
  const json answer = {{"rows", rows}, {"skipped", skipped}, {"by_file", files}, {"sweeps", SweepsJson(all.rows)},
                       {"summary", summary}};
  fmt::print("{}\n", answer.dump(1));
}

void PrintRows(const Validation& all) {
  for (const RowPrediction& row : all.rows) {
    fmt::print("{:<28} {:>4} {:<22} {:<26} {:>12.5g} {:>12.5g} {:>+7.1f} %\n", row.file, row.line, row.model, row.metric,
               row.measured, row.predicted, 100 * row.error());
  }
}

void PrintTable(const Validation& all, bool rows) {
  if (rows) PrintRows(all);
  fmt::print("{:<28} {:<7} {:>5} {:>8} {:>8} {:>8} {:>6} {:>8}\n", "file", "class", "rows", "median", "p90", "worst", "tau",
             "regret");
  for (const FileSummary& file : SummariseFiles(all.rows)) {
    fmt::print("{:<28} {:<7} {:>5} {:>6.1f} % {:>6.1f} % {:>6.1f} %", file.file, file.kind, file.errors.rows,
               100 * file.errors.median, 100 * file.errors.p90, 100 * file.errors.worst);
    if (file.order.sweeps > 0) fmt::print(" {:>6.2f} {:>6.1f} %", file.order.kendall_tau, 100 * file.order.regret);
    fmt::print("\n");
  }
  const ErrorSummary total = CompleteTimes(all.rows);
  const OrderSummary order = SummariseOrder(all.rows);
  fmt::print("{:<28} {:<7} {:>5} {:>6.1f} % {:>6.1f} % {:>6.1f} % {:>6.2f} {:>6.1f} %\n", "all with a complete setting",
             "time", total.rows, 100 * total.median, 100 * total.p90, 100 * total.worst, order.kendall_tau,
             100 * order.regret);
  if (order.sweeps > 0) {
    fmt::print("picked setting measured best or within 3 %: {} of {} sweeps; tau of pairs measured more than 2 % apart: "
               "{:.2f} over {} sweeps\n", order.small_regret, order.sweeps, order.distinct_tau, order.distinct_sweeps);
  }
  for (const Skipped& row : all.skipped) fmt::print("skipped {}:{}: {}\n", row.file, row.row, row.reason);
}

/// Rows once, and what each calibration predicts of them; NaN, which JSON writes as null, where it cannot.
json PredictionsJson(const std::vector<Validation>& runs) {
  json rows = json::array(), predicted = json::array();
  for (const RowPrediction& row : runs[0].rows) {
    rows.push_back({{"file", row.file}, {"line", row.line}, {"source", row.source}, {"model", row.model}, {"metric", row.metric},
                    {"class", row.kind}, {"bytes", row.bytes}, {"measured", row.measured}, {"predicted", row.predicted},
                    {"complete", row.complete}});
  }
  for (const Validation& run : runs) {
    std::map<std::pair<std::string_view, int64_t>, double> of;
    for (const RowPrediction& row : run.rows) of[{row.file, row.line}] = row.predicted;
    json values = json::array();
    for (const RowPrediction& row : runs[0].rows) {
      const auto found = of.find({row.file, row.line});
      values.push_back(found == of.end() ? std::numeric_limits<double>::quiet_NaN() : found->second);
    }
    predicted.push_back(std::move(values));
  }
  return {{"rows", rows}, {"predicted", predicted}};
}

/// Calibrations side by side: what a fit asks for many times.
Result<int> RunSeveral(const ValidateOptions& options) {
  if (options.output != "json") {
    return Fail(Code::kInvalidArgument, fmt::format("--output \"{}\" with several --calibration: expected json", options.output));
  }
  std::vector<Validation> runs;
  for (const std::string& file : options.calibrations) {
    WEFT_ASSIGN_OR_RETURN(const planner::Calibration calibration, ReadOverCompiled(file));
    Validation& run = runs.emplace_back();
    for (const std::string& path : options.tables) WEFT_RETURN_IF_ERROR(AddTable(path, calibration, false, run));
  }
  fmt::print("{}\n", PredictionsJson(runs).dump());
  return kExitDone;
}

Result<int> Run(const ValidateOptions& options) {
  if (options.output != "table" && options.output != "json") {
    return Fail(Code::kInvalidArgument, fmt::format("--output \"{}\": expected table or json", options.output));
  }
  if (options.calibrations.size() > 1) return RunSeveral(options);
  planner::Calibration calibration;
  if (!options.calibrations.empty()) {
    WEFT_ASSIGN_OR_RETURN(calibration, ReadOverCompiled(options.calibrations[0]));
  }
  Validation all;
  for (const std::string& path : options.tables) WEFT_RETURN_IF_ERROR(AddTable(path, calibration, true, all));
  if (all.rows.empty()) {
    const std::string first = all.skipped.empty() ? "no rows" : fmt::format("{}: {}", all.skipped[0].file, all.skipped[0].reason);
    return Fail(Code::kInvalidArgument, fmt::format("no row to compare, expected a table of measurements such as "
                                                    "tests/validation/*.csv: {}", first));
  }
  if (options.output == "json") {
    PrintJson(all);
  } else {
    PrintTable(all, options.rows);
  }
  return kExitDone;
}

}  // namespace

int RunValidate(const ValidateOptions& options) {
  const auto status = Run(options);
  if (status) return *status;
  fmt::print(stderr, "weft validate: {}\n", status.error().message());
  return ExitCodeOf(status.error());
}

}  // namespace weft::cli

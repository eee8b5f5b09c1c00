#include "cli/validate_collectives.h"

#include <fmt/format.h>

#include <filesystem>

#include "formats/collectives_csv.h"
#include "planner/collectives/measured_nccl.h"

namespace weft::cli {
namespace {

constexpr Bytes kLarge(1 << 20);

std::string KindOf(Bytes bytes) { return bytes >= kLarge ? "collective" : "collective-small"; }

RowPrediction PredictTime(const formats::CollectiveRow& row, const std::string& file) {
  RowPrediction out{.file = file, .source = row.source, .model = row.system, .line = row.line};
  out.metric = fmt::format("{} time_s", planner::CollectiveName(row.collective));
  out.kind = KindOf(row.bytes);
  out.bytes = row.bytes.count();
  out.measured = row.time.count();
  out.predicted = planner::MeasuredNcclTime(row.communicator, row.collective, row.bytes).count();
  return out;
}

Result<RowPrediction> PredictShare(const formats::EfficiencyRow& row, const std::string& file) {
  for (const planner::EfficiencyConstants& constants : planner::EfficiencyTable()) {
    if (constants.fabric != row.fabric || constants.all_to_all != row.all_to_all) continue;
    RowPrediction out{.file = file, .source = row.source, .line = row.line};
    out.model = fmt::format("{} x {} {}", row.nodes, row.gpus / row.nodes, row.fabric);
    out.metric = row.all_to_all ? "alltoall efficiency" : "ring efficiency";
    out.kind = KindOf(row.bytes);
    out.bytes = row.bytes.count();
    out.measured = row.efficiency;
    out.predicted = planner::Efficiency(constants, row.gpus, row.bytes);
    return out;
  }
  return Fail(Code::kNotFound, fmt::format("fabric \"{}\" has no constants", row.fabric));
}

}  // namespace

Result<CollectivePredictions> PredictCollectives(std::string_view text, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const formats::CollectiveTable table, formats::ParseCollectiveTable(text, path));
  const std::string file = std::filesystem::path(path).filename().string();
  CollectivePredictions all;
  for (const formats::CollectiveRow& row : table.measured) {
    if (row.degraded) {
      all.skipped.push_back({row.line, "its source reports a degraded system"});
      continue;
    }
    all.rows.push_back(PredictTime(row, file));
  }
  for (const formats::EfficiencyRow& row : table.efficiencies) {
    auto prediction = PredictShare(row, file);
    if (prediction) all.rows.push_back(*std::move(prediction));
    else all.skipped.push_back({row.line, prediction.error().message()});
  }
  return all;
}

}  // namespace weft::cli

#include "cli/validate_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "formats/collectives_csv.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

constexpr Bytes kLarge(1 << 20);

/// What the search would take for the collective: the library's choice, or the best protocol of the algorithm that the row names.
double PredictTime(const formats::CollectiveRow& row, const planner::Calibration& calibration) {
  const planner::GroupNetwork network = planner::MakeGroupNetwork(row.cluster, planner::CollectiveLibrary::kNccl, calibration);
  const planner::Group group{row.cluster.TotalGpus(), 1};
  const auto bytes = static_cast<double>(row.bytes.count());
  if (!row.algorithm) return planner::CollectiveTime(network, group, row.collective, bytes);
  double least = std::numeric_limits<double>::infinity();
  for (const auto protocol : {planner::Protocol::kLl, planner::Protocol::kLl128, planner::Protocol::kSimple}) {
    const auto time = planner::CollectiveTime(network, group, row.collective, *row.algorithm, protocol, bytes);
    least = std::min(least, time.value_or(least));
  }
  return least;
}

}  // namespace

Result<CollectivePredictions> PredictCollectives(std::string_view text, const std::string& path, const planner::Calibration& calibration) {
  WEFT_ASSIGN_OR_RETURN(const formats::CollectiveTable table, formats::ParseCollectiveTable(text, path));
  const std::string file = std::filesystem::path(path).filename().string();
  CollectivePredictions all;
  for (const formats::CollectiveRow& row : table.measured) {
    if (row.degraded) {
      all.skipped.push_back({row.line, "its source reports a degraded system"});
      continue;
    }
    RowPrediction out{.file = file, .source = row.source, .model = row.system, .line = row.line};
    out.metric = fmt::format("{} time_s", planner::CollectiveName(row.collective));
    out.kind = row.bytes >= kLarge ? "collective" : "collective-small";
    out.bytes = row.bytes.count();
    out.measured = row.time.count();
    out.predicted = PredictTime(row, calibration);
    if (!std::isfinite(out.predicted)) {
      all.skipped.push_back({row.line, "the network has no such algorithm"});
      continue;
    }
    all.rows.push_back(std::move(out));
  }
  for (const int64_t line : table.shares) {
    all.skipped.push_back({line, "a share of a peak whose links are not stated: nothing to price it from"});
  }
  return all;
}

}  // namespace weft::cli

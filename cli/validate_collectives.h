// `weft validate` for tables of collectives. Internal to cli/validate*.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/validate_predict.h"
#include "common/result.h"

namespace weft::cli {

struct SkippedCollective {
  int64_t line = 0;
  std::string reason;
};

struct CollectivePredictions {
  std::vector<RowPrediction> rows;   ///< measured and predicted: seconds
  std::vector<SkippedCollective> skipped;
};

/// Priced by the account of the search on the network that it would have (planner/parallelism/group_network.h). Rows from 1 MiB are
/// of the class "collective", smaller ones of "collective-small"; rows of degraded systems, and shares of an unknown peak, are skipped.
/// Errors: those of formats::ParseCollectiveTable.
[[nodiscard]] Result<CollectivePredictions> PredictCollectives(std::string_view text, const std::string& path,
                                                               const planner::Calibration& calibration);

}  // namespace weft::cli

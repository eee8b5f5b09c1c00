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
  std::vector<RowPrediction> rows;   ///< measured and predicted: seconds, or the share of the peak bandwidth
  std::vector<SkippedCollective> skipped;
};

/// Rows from 1 MiB are of the class "collective", smaller ones of "collective-small"; rows of degraded systems are skipped.
/// Errors: those of formats::ParseCollectiveTable.
[[nodiscard]] Result<CollectivePredictions> PredictCollectives(std::string_view text, const std::string& path);

}  // namespace weft::cli

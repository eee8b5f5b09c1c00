// `weft validate TABLE.csv…`: predicts every row of tables of published training measurements and compares. A row is
// predicted or skipped with a reason, never dropped.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct ValidateOptions {
  std::vector<std::string> tables;
  std::string output = "table";   ///< or json
  std::vector<std::string> calibrations;  ///< YAML files; none: what is compiled in. With several, JSON of the bare predictions
  bool rows = false;              ///< table: every row, not only the summaries
};

int RunValidate(const ValidateOptions& options);

}  // namespace weft::cli

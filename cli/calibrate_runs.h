// `weft calibrate --runs`: the cost model's constants as a site's own runs have them. A run is a row of a table of measurements
// (tests/validation/README.md has the columns): of training, what an iteration took or how much memory; or of one collective.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace weft::cli {

struct CalibrateRunsOptions {
  std::vector<std::string> tables;
  std::string calibration;  ///< file to begin with, over what is compiled in; empty: what is compiled in
  std::string out;          ///< file; empty: stdout
};

/// Writes a file for `weft plan --calibration`: the constants that the runs say something of, and those of `calibration`. What each run
/// was predicted to take, before and after, goes to stderr. Errors: a table or file that cannot be read or written; no run that can be
/// predicted, with the first reason; constants that `weft plan` would refuse.
[[nodiscard]] Status CalibrateFromRuns(const CalibrateRunsOptions& options);

}  // namespace weft::cli

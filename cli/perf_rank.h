// One rank of `weft perf`.
#pragma once

#include <functional>
#include <string>

#include "cli/perf_plan.h"
#include "common/result.h"

namespace weft::cli {

/// How this process meets the others.
struct PerfPlace {
  int rank = 0;
  std::string rendezvous;
  int listener = -1;  ///< rank 0: already listening, taken over
};

/// A failure and whether the command line is to blame for it.
struct PerfFailure {
  Error error;
  int exit_code;
};

/// What rank 0 does with the report: `begin` when the plugin is known, `row` after each size.
struct PerfObserver {
  std::function<void(const PerfReport&)> begin = [](const PerfReport&) {};
  std::function<void(const PerfResult&)> row = [](const PerfResult&) {};
};

/// Runs all sizes. The report is complete on every rank. Progress goes to stderr from rank 0 when it takes over a
/// second.
[[nodiscard]] tl::expected<PerfReport, PerfFailure> MeasureRank(const PerfPlan& plan, const PerfPlace& place,
                                                                const PerfObserver& observer);

}  // namespace weft::cli

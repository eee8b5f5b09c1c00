// What `weft perf` prints.
#pragma once

#include <string>

#include "cli/perf_plan.h"

namespace weft::cli {

std::string PerfTableHead(const PerfPlan& plan, const PerfReport& report);
std::string PerfTableRow(const PerfPlan& plan, const PerfResult& result);
/// One JSON object on one line; "wrong" is null without --check.
std::string PerfJson(const PerfPlan& plan, const PerfReport& report);

/// The element at the given share of an ascending, non-empty list (nearest rank).
double Percentile(const std::vector<double>& ascending, double share);

}  // namespace weft::cli

// A simulation as a Chrome trace (the JSON array format that chrome://tracing and Perfetto open): one counter track per
// link in bits per second, one track per job with its phases, an instant per fault.
#pragma once

#include <string>

#include "planner/jobs/simulate/scenario.h"

namespace weft::cli {

/// Processes: 1 links, 2 jobs. A counter holds until its next sample; each ends with a 0 at the scenario's end.
/// Requires: a report with a trace. Complexity: O(samples + phases).
std::string ChromeTraceText(const planner::Scenario& scenario, const planner::SimulationReport& report);

}  // namespace weft::cli

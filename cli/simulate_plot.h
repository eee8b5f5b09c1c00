// Link use over time as an SVG: one strip per busy link, each a step curve of the mean rate per column, in front of the
// peak of that column; below, a thin strip per job that shows when it communicates; faults as dashed lines. Colours are
// chosen to be legible on white and on black.
#pragma once

#include <cstddef>
#include <string>

#include "planner/jobs/simulate/scenario.h"

namespace weft::cli {

struct PlotOptions {
  std::string title;
  Seconds begin{0}, end{0};        ///< of the simulated time; begin < end
  size_t most_links = 12;          ///< those with the highest utilisation
  size_t most_jobs = 12;           ///< the first ones
};

/// Requires: a report with a trace. Every strip is a group with the attributes data-link, data-rate (its full height,
/// bit/s) and data-mean (mean bit/s over the window); of a job data-job and data-share (of the window in which it
/// communicates). Complexity: O(samples + links · columns).
std::string LinkUsePlot(const planner::Scenario& scenario, const planner::SimulationReport& report,
                        const PlotOptions& options);

}  // namespace weft::cli

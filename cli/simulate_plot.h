// Link use over time as an SVG: one strip per busy link, each a step curve of the mean rate per column, under the peak of that
// column; faults as dashed lines. Colours are chosen to be legible on white and on black.
#pragma once

#include <cstddef>
#include <string>

#include "planner/cluster/scenario.h"

namespace weft::cli {

struct PlotOptions {
  std::string title;
  Seconds begin{0}, end{0};        ///< of the simulated time; begin < end
  size_t most_links = 12;          ///< those with the highest utilisation
};

/// Requires: a report with a trace. Every strip is a group with the attributes data-link, data-rate (its full height, bit/s) and
/// data-mean (mean bit/s over the window). Complexity: O(samples + links · columns).
std::string LinkUsePlot(const planner::Scenario& scenario, const planner::SimulationReport& report,
                        const PlotOptions& options);

}  // namespace weft::cli

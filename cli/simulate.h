// `weft simulate`: what a cluster, its jobs and its faults come to under one policy or several, without any of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/jobs/simulate/scenario.h"

namespace weft::cli {

struct SimulateOptions {
  std::string scenario;                ///< a YAML file, formats/scenario_yaml.h
  std::vector<std::string> policies;   ///< names or "all", each possibly several with commas; empty: the file's
  std::string trace;                   ///< Chrome trace to write; with several policies one each, "t.ecmp.json"
  std::string plot;                    ///< SVG to write, likewise
  std::string plot_window;             ///< "10s:12s" of the simulated time; empty: all of it
  std::optional<int64_t> seed;         ///< ≥ 0, in place of the file's
  int64_t evaluations = planner::kDefaultEvaluations;  ///< plans that weft may simulate per decision
  std::string objective = "balanced";  ///< of weft; or "gpu-use"
  std::string output = "table";        ///< or "json"
};

/// Prints the report. Returns the exit status: kExitInfeasible with the reasons when a job's model has no feasible
/// plan.
int RunSimulate(const SimulateOptions& options);

}  // namespace weft::cli

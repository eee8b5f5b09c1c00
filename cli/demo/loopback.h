// The demo where no fabric can be built (no root, no namespaces): the same programs on loopback. Real are the controller,
// one agent per "host", both training jobs with their gradients through the plugin, telemetry and metrics. There is one
// wire, `lo`, and no switch, so nothing about paths, collisions, links and bounds can be shown, and the report says so.
#pragma once

#include <stop_token>
#include <string>

#include "cli/demo/cluster.h"
#include "cli/demo/report.h"
#include "cli/demo/training_job.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::cli {

struct LoopbackOptions {
  Seconds duration{60};  ///< of all measured phases together
  std::string data;
  std::string log_dir;
  std::string at_end;
  JobProgram program = JobProgram::kComposed;
  int hosts_per_leaf = 5;
};

/// Each job alone, then both together, known to the controller. Adds to `report` what was
/// measured and what is not shown. Requires: `cluster` stands on loopback.
/// Errors: the first failure, with the job's name in front; kCancelled.
[[nodiscard]] Status RunLoopback(DemoCluster& cluster, const LoopbackOptions& options, const std::stop_token& stop,
                                 DemoReport& report);

}  // namespace weft::cli

// The subcommands that ask a running controller: submit, release, jobs, explain, topo, links. `--output json` prints the API's own
// messages with their field names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/controller_client.h"

namespace weft::cli {

struct OnlineOptions {
  ControllerAddress controller;
  bool json = false;
  std::string job;  ///< job id of explain and release, job file of submit
  std::string plan;       ///< of submit: file of plans to take the job's strategy from, in place of what the job's file says
  int64_t plan_index = 0; ///< which of its plans
  std::string syntax;     ///< of qos verify: "dcb" or "mlnx_qos", the commands that mend alone; empty: all, for people
  bool dry_run = false;   ///< of qos apply
  std::vector<std::string> hosts;  ///< of qos apply and revert; none: all
};

/// Each returns the process's exit status (common/exit_code.h) and prints its own errors to stderr.
/// kExitDone for a job without a strategy too: it is managed, and what it prints says why it is not planned.
/// kExitUsage for a strategy that the controller refuses; kExitFailed for a controller too old to take one.
int RunSubmit(const OnlineOptions& options);
/// Errors: kExitFailed for a job that the controller does not know.
int RunRelease(const OnlineOptions& options);
int RunJobs(const OnlineOptions& options);
int RunExplain(const OnlineOptions& options);
int RunTopology(const OnlineOptions& options);
int RunLinks(const OnlineOptions& options);

}  // namespace weft::cli

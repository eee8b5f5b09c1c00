// The subcommands that ask a running controller: submit, release, reshard, jobs, explain, topo, links. `--output json` prints the API's own
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
  std::string job;  ///< job id of explain, release and reshard, job file of submit
  std::string plan;       ///< of submit: file of plans to take the job's strategy from, in place of what the job's file says
  int64_t plan_index = 0; ///< which of its plans
  std::string syntax;     ///< of qos verify: "dcb" or "mlnx_qos", the commands that mend alone; empty: all, for people
  bool dry_run = false;   ///< of qos apply and reshard
  std::string strategy;   ///< of reshard: variables such as dp=2,pp=2; empty with back
  bool back = false;      ///< of reshard: to the strategy before the last change
  std::string hold = "10min";  ///< of reshard: how long the controller is to change nothing by itself
  std::vector<std::string> hosts;  ///< of qos apply and revert; none: all
};

/// Each returns the process's exit status (common/exit_code.h) and prints its own errors to stderr.
/// kExitDone for a job without a strategy too: it is managed, and what it prints says why it is not planned.
/// kExitUsage for a strategy that the controller refuses; kExitFailed for a controller too old to take one.
int RunSubmit(const OnlineOptions& options);
/// Errors: kExitFailed for a job that the controller does not know.
int RunRelease(const OnlineOptions& options);
/// Prints what the change costs and gains; with dry_run nothing happens. What the ranks make of it is in explain. Errors: kExitUsage for a
/// strategy that the job cannot have, kExitFailed for a job that takes none now.
int RunReshard(const OnlineOptions& options);
int RunJobs(const OnlineOptions& options);
int RunExplain(const OnlineOptions& options);
int RunTopology(const OnlineOptions& options);
int RunLinks(const OnlineOptions& options);

}  // namespace weft::cli

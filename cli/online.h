// The subcommands that ask a running controller: submit, release, jobs, explain, topo, links. `--output json` prints the API's own
// messages with their field names.
#pragma once

#include <string>

#include "cli/controller_client.h"

namespace weft::cli {

struct OnlineOptions {
  ControllerAddress controller;
  bool json = false;
  std::string job;  ///< job id of explain and release, job file of submit
};

/// Each returns the process's exit status (common/exit_code.h) and prints its own errors to stderr.
/// kExitInfeasible where no strategy fits; the reasons are what it prints then.
int RunSubmit(const OnlineOptions& options);
/// Errors: kExitFailed for a job that the controller does not know.
int RunRelease(const OnlineOptions& options);
int RunJobs(const OnlineOptions& options);
int RunExplain(const OnlineOptions& options);
int RunTopology(const OnlineOptions& options);
int RunLinks(const OnlineOptions& options);

}  // namespace weft::cli

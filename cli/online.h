// The subcommands that ask a running controller: submit, jobs, explain, topo, links. `--output json` prints the API's own
// messages with their field names.
#pragma once

#include <string>

#include "cli/controller_client.h"

namespace weft::cli {

struct OnlineOptions {
  ControllerAddress controller;
  bool json = false;
  std::string job;  ///< job id of explain, job file of submit
};

/// Each returns the process's exit status (common/exit_code.h) and prints its own errors to stderr.
int RunSubmit(const OnlineOptions& options);
int RunJobs(const OnlineOptions& options);
int RunExplain(const OnlineOptions& options);
int RunTopology(const OnlineOptions& options);
int RunLinks(const OnlineOptions& options);

}  // namespace weft::cli

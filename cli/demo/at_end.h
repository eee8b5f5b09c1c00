// The user's own command in the demo: --at-end.
#pragma once

#include <stop_token>
#include <string>

#include "cli/demo/cluster.h"
#include "common/result.h"

namespace weft::cli {

/// Runs a shell command while the jobs still train; its stdout goes to stderr. It finds the daemons by WEFT_CONTROLLER,
/// WEFT_HTTP, WEFT_AGENTS (with blanks between) and WEFT_PROMETHEUS (not set where there is none).
/// Errors: kFailedPrecondition with its exit status; kDeadlineExceeded after 120 s; kCancelled.
[[nodiscard]] Status RunAtEnd(const DemoCluster& cluster, const std::string& command, const std::stop_token& stop);

}  // namespace weft::cli

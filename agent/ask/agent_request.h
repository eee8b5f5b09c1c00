// The other side of the agent's socket: who asks it what a job's plan wants in its launch environment. Slurm's plugin does before the
// launch; ranks that change their strategy while they run do again and again, and say what they run.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace weft::agent {

/// NAME and value, in the agent's order.
using Environment = std::vector<std::pair<std::string, std::string>>;

struct AgentRequest {
  std::string socket_path;
  std::string job;
  std::string host;
};

/// The job's launch environment. The controller tells the agents about a job while Slurm already launches it, so an
/// agent that does not know the job yet is asked again until the timeout.
/// Errors: kNotFound: agent up, job unknown; kDeadlineExceeded: no answer; kDataLoss: malformed answer;
/// kInvalidArgument: a name that does not fit into the request; kUnavailable: there is no agent.
[[nodiscard]] Result<Environment> RequestEnvironment(const AgentRequest& request, std::chrono::milliseconds timeout);

/// What rank 0 runs, beside its question.
struct RunningStrategy {
  uint64_t epoch = 0;    ///< of the newest word that it has seen; 0: none
  uint64_t digest = 0;   ///< of the program that runs
  double iteration_s = 0;  ///< of its last steps; 0: not measured yet
  bool refused = false;  ///< that word was not followed
  std::string reason;    ///< why; cut to what the message holds
};

/// The same, asked once, for a job that runs so: the agent tells the controller. Errors: as above, also kUnavailable where the agent
/// refuses.
[[nodiscard]] Result<Environment> TellStrategy(const AgentRequest& request, const RunningStrategy& running, std::chrono::milliseconds timeout);

/// KEY=VALUE lines, each name a C identifier. Errors: kDataLoss naming the line.
[[nodiscard]] Result<Environment> ParseEnvironment(std::string_view text);

/// Takes variables out that may not come from a controller (common/launch_variable.h); their names, in the same order.
std::vector<std::string> TakeForbidden(Environment* environment);

/// `pattern` with every "%n" replaced by the node's name.
std::string ExpandNodeName(std::string_view pattern, std::string_view node);

}  // namespace weft::agent

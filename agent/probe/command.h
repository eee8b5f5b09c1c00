// `weft-agent probe`: which way would a connection with this source port go? The agent's own prober, asked once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/probe/budget.h"
#include "common/result.h"

namespace weft::agent {

struct ProbeCommand {
  std::string source;       ///< own IPv4 address
  std::string destination;  ///< IPv4 address
  uint16_t port = 0;        ///< destination port
  std::vector<uint16_t> ports;  ///< source ports
  std::string output = "table";
};

/// The answer as text for stdout: a table, or JSON `{"source","destination","port","hop_count","paths":[{"source_port",
/// "hops","complete"}]}`. Errors: kInvalidArgument for the command; kFailedPrecondition without CAP_NET_RAW;
/// kDeadlineExceeded when the destination does not answer.
[[nodiscard]] Result<std::string> RunProbeCommand(const ProbeCommand& command);

}  // namespace weft::agent

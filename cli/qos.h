// `weft qos verify`, `apply` and `revert`: the QoS settings of all hosts, through the controller.
#pragma once

#include <string>

#include "cli/online.h"
#include "proto/controller.pb.h"

namespace weft::cli {

/// Each returns the process's exit status and prints its own errors to stderr.
/// kExitFailed where something is not as declared, or a host has not said how it is.
int RunQosVerify(const OnlineOptions& options);
/// Waits for the hosts' answers, 10 s at most. kExitFailed where one could not do it or did not answer.
int RunQosApply(const OnlineOptions& options);
int RunQosRevert(const OnlineOptions& options);

/// What `weft qos verify` prints. `good`: whether all is as declared.
std::string QosText(const v1::GetQosResponse& response, bool* good);
/// The commands that mend, under a comment with each host's name; `syntax` is "dcb" or "mlnx_qos".
std::string QosCommands(const v1::GetQosResponse& response, const std::string& syntax);

}  // namespace weft::cli

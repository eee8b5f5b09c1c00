#pragma once

#include <memory>

#include "controller/loop_gate.h"

namespace grpc {
class Service;
}

namespace weft::controller {

/// What agents call: a session for each host. Both have to outlive the service.
std::unique_ptr<grpc::Service> MakeAgentService(ControlLoop* loop, Gate* gate);

}  // namespace weft::controller

// The document behind the page: jobs, hosts, links and decisions, in base units. Its keys are those of the messages.
#pragma once

#include <string>

#include "controller/control_loop.h"

namespace weft::controller {

/// {"cluster","mode","uptime_s","jobs":[…],"hosts":[…],"links":[…],"decisions":[…],"replans","policy_epochs"}.
std::string StateJson(const ControlLoop& loop);

}  // namespace weft::controller

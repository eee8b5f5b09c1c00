// What a gate of the controller's needs to know of its loop: the time, and where refusals are counted.
#pragma once

#include <string>

#include "access/gate.h"
#include "controller/control_loop.h"

namespace weft::controller {

using access::Access;
using access::Caller;
using access::Gate;
using access::Refusal;

/// `loop` must outlive the gate.
inline access::GateOptions GateOptionsOf(ControlLoop* loop, bool tls, const std::string& revoked,
                                         const access::TokenFiles& tokens = {}) {
  return {.tls = tls,
          .revoked = revoked,
          .tokens = tokens,
          .component = "controller",
          .now = [loop] { return loop->Now(); },
          .count = [loop](const char* why) { loop->CountRefusal(why); }};
}

}  // namespace weft::controller

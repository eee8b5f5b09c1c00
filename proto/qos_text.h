// What is not as declared, as a line for people: the same one in the controller's log, in `weft explain` and in `weft qos verify`.
#pragma once

#include <string>

#include "proto/qos.pb.h"

namespace weft::rpc {

/// "h1 eth0: pfc: off, expected priorities 3".
std::string DriftLine(const std::string& host, const v1::QosDrift& drift);
/// "DSCP 26 from 10.0.0.1 to 10.0.1.1 arrives as 0 at 10.255.2.1: changed there or by 10.255.1.1".
std::string RewriteLine(const v1::QosRewrite& rewrite);

}  // namespace weft::rpc

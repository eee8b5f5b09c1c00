#pragma once

#include "common/result.h"
#include "controller/loop_gate.h"

namespace grpc {
class CallbackServerContext;
class Status;
}  // namespace grpc

namespace weft::controller {

/// Who calls, as far as the connection says it.
Caller CallerOf(const grpc::CallbackServerContext* context);

grpc::Status ToGrpc(const Error& error);

/// With when to try again, where that is known: gRPC's clients read it from the trailing metadata.
grpc::Status ToGrpc(const Refusal& refusal, grpc::CallbackServerContext* context);

}  // namespace weft::controller

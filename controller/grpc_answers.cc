#include "controller/grpc_answers.h"

#include <grpcpp/grpcpp.h>

#include <cmath>
#include <string>
#include <vector>

namespace weft::controller {
namespace {

// What gRPC's clients read of a refusal: milliseconds until they may try again.
constexpr char kRetryAfter[] = "grpc-retry-pushback-ms";

}  // namespace

Caller CallerOf(const grpc::CallbackServerContext* context) {
  const std::vector<grpc::string_ref> pem = context->auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return {.peer = context->peer(), .certificate = pem.empty() ? "" : std::string(pem[0].data(), pem[0].size()),
          .token = ""};
}

grpc::Status ToGrpc(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code()), error.message()};
}

grpc::Status ToGrpc(const Refusal& refusal, grpc::CallbackServerContext* context) {
  if (refusal.again_after > Seconds(0)) {
    context->AddTrailingMetadata(kRetryAfter, std::to_string(static_cast<int64_t>(std::ceil(refusal.again_after.count() * 1e3))));
  }
  return ToGrpc(refusal.error);
}

}  // namespace weft::controller

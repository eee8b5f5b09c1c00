// The gRPC face, with the check of who calls (access/gate.h): one reactor per agent session with an outbox of bounded length and at
// most one write in flight, and the unary calls of hooks, tools and people. All work is the loop's.
#pragma once

#include <memory>
#include <string>

#include "common/result.h"
#include "controller/config.h"
#include "controller/control_loop.h"
#include "proto/credentials.h"

namespace weft::controller {

class GrpcServer {
 public:
  /// Serves at `endpoint` until destroyed; `loop` must outlive the server. Errors: kFailedPrecondition naming the
  /// address when it cannot be listened at; as MakeServerCredentials for `tls`, and RevokedCertificates::Load for `revoked`.
  [[nodiscard]] static Result<std::unique_ptr<GrpcServer>> Start(const Endpoint& endpoint, const rpc::TlsFiles& tls,
                                                                 ControlLoop* loop, const std::string& revoked = "");
  /// Ends all sessions; takes at most about a second.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::controller

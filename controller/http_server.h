// The controller's HTTP face, read-only: /metrics for Prometheus, /healthz, /api/v1/state, and the page at /.
#pragma once

#include <memory>

#include "access/http_server.h"
#include "common/result.h"
#include "controller/config.h"
#include "controller/control_loop.h"

namespace weft::controller {

/// What the server at `http` is started with besides the address.
struct HttpAccess {
  rpc::TlsFiles tls;           ///< empty: plain, and everybody reads
  std::string revoked;         ///< as ControllerConfig::tls_revoked
  access::TokenFiles tokens;
};

class HttpServer {
 public:
  /// Serves at `endpoint` until destroyed; `loop` must outlive the server. Errors: as access::Gate::Load and
  /// access::HttpServer::Start.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> Start(const Endpoint& endpoint, ControlLoop* loop,
                                                                 const HttpAccess& rights = {});

  int port() const { return server_->port(); }

 private:
  HttpServer(ControlLoop* loop, const HttpAccess& rights);

  access::Gate gate_;
  std::unique_ptr<access::HttpServer> server_;
};

}  // namespace weft::controller

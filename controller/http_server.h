// The controller's HTTP face, read-only: /metrics for Prometheus, /healthz, /api/v1/state, and the page at /.
#pragma once

#include <memory>

#include "common/result.h"
#include "controller/config.h"
#include "controller/control_loop.h"

namespace weft::controller {

class HttpServer {
 public:
  /// Serves at `endpoint` until destroyed; `loop` must outlive the server. Errors: kFailedPrecondition naming the
  /// address when it cannot be listened at.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> Start(const Endpoint& endpoint, const ControlLoop* loop);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::controller

// The agent's HTTP server: /metrics for Prometheus and /healthz. Read-only.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/result.h"

namespace weft::agent {

class Exporter {
 public:
  /// Serves `metrics()` at `address` ("ADDR:PORT", port 0: any). `metrics` is called on the server's threads.
  /// Errors: kInvalidArgument for the address; kFailedPrecondition when nothing can be bound there.
  [[nodiscard]] static Result<std::unique_ptr<Exporter>> Start(const std::string& address,
                                                               std::function<std::string()> metrics);
  virtual ~Exporter() = default;
  /// "ADDR:PORT" with the port that was bound.
  virtual const std::string& address() const = 0;
};

/// "10.0.0.1:7070" or "[::1]:7070" as host and port. Errors: kInvalidArgument naming the text.
[[nodiscard]] Result<std::pair<std::string, uint16_t>> SplitHostPort(const std::string& text);

}  // namespace weft::agent

// The agent's HTTP face: /metrics for Prometheus and /healthz. Read-only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "access/gate.h"
#include "access/http_server.h"
#include "agent/config.h"
#include "common/result.h"

namespace weft::agent {

class Exporter {
 public:
  struct Handlers {
    std::function<std::string()> metrics;       ///< the text of /metrics
    std::function<void(const char*)> refused;   ///< a request that was not answered, by why in a word
  };

  /// Serves at `config.http`, over TLS where the configuration has certificates. The handlers are called on the server's threads.
  /// Errors: kInvalidArgument for the address; as access::Gate::Load and access::HttpServer::Start.
  [[nodiscard]] static Result<std::unique_ptr<Exporter>> Start(const AgentConfig& config, Handlers handlers);
  /// Reads what says who may look. Errors: those of access::Gate::Load.
  [[nodiscard]] static Status Check(const AgentConfig& config) { return Exporter(config, {}).gate_.Load(); }
  /// "ADDR:PORT" with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  Exporter(const AgentConfig& config, const Handlers& handlers);

  access::Gate gate_;
  std::string address_;
  std::unique_ptr<access::HttpServer> server_;
};

/// "10.0.0.1:7070" or "[::1]:7070" as host and port. Errors: kInvalidArgument naming the text.
[[nodiscard]] Result<std::pair<std::string, uint16_t>> SplitHostPort(const std::string& text);

}  // namespace weft::agent

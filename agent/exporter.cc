#include "agent/exporter.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "agent/monotonic.h"

namespace weft::agent {
namespace {

// A host's own work comes first: Prometheus and somebody who looks.
constexpr size_t kConnections = 8, kConnectionsOfAnAddress = 4, kHandshakes = 6, kHandshakesOfAnAddress = 2;

}  // namespace

Exporter::Exporter(const AgentConfig& config, const Handlers& handlers)
    : gate_({.tls = !config.tls_certificate.empty(),
             .revoked = config.tls_revoked,
             .tokens = {.viewer = config.viewer_tokens, .operators = ""},
             .component = "agent",
             .now = [] { return Seconds(static_cast<double>(MonotonicNs()) * 1e-9); },
             .count = handlers.refused}) {}

Result<std::unique_ptr<Exporter>> Exporter::Start(const AgentConfig& config, Handlers handlers) {
  WEFT_ASSIGN_OR_RETURN(const auto where, SplitHostPort(config.http));
  std::unique_ptr<Exporter> made(new Exporter(config, handlers));
  WEFT_RETURN_IF_ERROR(made->gate_.Load());
  using access::HttpAnswer;
  const auto metrics = [text = std::move(handlers.metrics)] { return HttpAnswer{text(), "text/plain; version=0.0.4; charset=utf-8"}; };
  std::map<std::string, access::HttpPage> pages = {{"/metrics", {.answer = metrics}},
                                                   {"/healthz", {.answer = [] { return HttpAnswer{"ok\n"}; }, .open = true}}};
  const access::HttpOptions options{.host = where.first,
                                    .port = where.second,
                                    .tls = {config.tls_certificate, config.tls_key, config.tls_authority},
                                    .connections = kConnections,
                                    .connections_of_an_address = kConnectionsOfAnAddress,
                                    .handshakes = kHandshakes,
                                    .handshakes_of_an_address = kHandshakesOfAnAddress};
  WEFT_ASSIGN_OR_RETURN(made->server_, access::HttpServer::Start(options, std::move(pages), &made->gate_));
  const bool v6 = where.first.find(':') != std::string::npos;
  made->address_ = fmt::format("{}:{}", v6 ? "[" + where.first + "]" : where.first, made->server_->port());
  return made;
}

Result<std::pair<std::string, uint16_t>> SplitHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  bool good = colon != std::string::npos && colon > 0 && colon + 1 < text.size();
  if (good) {
    const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
    good = parsed.ec == std::errc() && parsed.ptr == end;
  }
  std::string host = good ? text.substr(0, colon) : "";
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!good || (!bracketed && host.find(':') != std::string::npos)) {
    return Fail(Code::kInvalidArgument, fmt::format("address \"{}\", expected HOST:PORT", text));
  }
  return std::pair(host, port);
}

}  // namespace weft::agent

#include "controller/http_server.h"

#include <map>
#include <string>
#include <utility>

#include "controller/loop_gate.h"
#include "controller/page.h"
#include "controller/state_json.h"

namespace weft::controller {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

std::map<std::string, access::HttpPage> PagesOf(const ControlLoop* loop) {
  using access::HttpAnswer;
  return {{"/metrics",
           {.answer = [loop] { return HttpAnswer{loop->MetricsText(), "text/plain; version=0.0.4; charset=utf-8"}; }}},
          {"/healthz", {.answer = [] { return HttpAnswer{"ok\n"}; }, .open = true}},
          {"/api/v1/state",
           {.answer = [loop] { return HttpAnswer{StateJson(*loop), "application/json", {{"Cache-Control", "no-store"}}}; }}},
          {"/", {.answer = [] { return HttpAnswer{kPage, "text/html; charset=utf-8", {{"Content-Security-Policy", kPolicy}}}; }}}};
}

}  // namespace

HttpServer::HttpServer(ControlLoop* loop, const HttpAccess& rights)
    : gate_(GateOptionsOf(loop, !rights.tls.empty(), rights.revoked, rights.tokens)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const Endpoint& endpoint, ControlLoop* loop, const HttpAccess& rights) {
  std::unique_ptr<HttpServer> made(new HttpServer(loop, rights));
  WEFT_RETURN_IF_ERROR(made->gate_.Load());
  std::string host = endpoint.host;  // the resolver wants no brackets around IPv6
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  WEFT_ASSIGN_OR_RETURN(made->server_, access::HttpServer::Start({.host = host, .port = endpoint.port, .tls = rights.tls},
                                                                 PagesOf(loop), &made->gate_));
  return made;
}

}  // namespace weft::controller

#include "controller/http_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "controller/page.h"
#include "controller/state_json.h"

namespace weft::controller {
namespace {

constexpr size_t kThreads = 4;
constexpr char kPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

/// Without SO_REUSEPORT, which the library sets by default: a second controller must not share the port.
void OnlyReuseAddress(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace

struct HttpServer::Impl {
  httplib::Server server;
  int port = 0;
  std::atomic<bool> ended = false;
  std::jthread thread;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const Endpoint& endpoint, const ControlLoop* loop) {
  auto impl = std::make_unique<Impl>();
  httplib::Server& server = impl->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_socket_options(OnlyReuseAddress);
  server.set_keep_alive_max_count(100);
  server.set_keep_alive_timeout(2);  // an idle viewer holds a thread for so long
  server.set_read_timeout(5);
  server.set_write_timeout(5);
  server.set_payload_max_length(64 << 10);
  server.Get("/metrics", [loop](const httplib::Request&, httplib::Response& response) {
    response.set_content(loop->MetricsText(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain");
  });
  server.Get("/api/v1/state", [loop](const httplib::Request&, httplib::Response& response) {
    response.set_header("Cache-Control", "no-store");
    response.set_content(StateJson(*loop), "application/json");
  });
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_header("Content-Security-Policy", kPolicy);
    response.set_content(kPage, "text/html; charset=utf-8");
  });
  std::string host = endpoint.host;  // the resolver wants no brackets around IPv6
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (endpoint.port == 0) {
    impl->port = server.bind_to_any_port(host);
  } else {
    impl->port = server.bind_to_port(host, endpoint.port) ? endpoint.port : -1;
  }
  if (impl->port <= 0) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("listen at {} for HTTP: the address cannot be used (is another program listening there?)",
                            endpoint.text()));
  }
  impl->thread = std::jthread([impl = impl.get()] {
    impl->server.listen_after_bind();
    impl->ended = true;
  });
  // stop() has no effect before the loop runs, so a server that is started and stopped at once would never end.
  while (!server.is_running() && !impl->ended) std::this_thread::yield();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { impl_->server.stop(); }
int HttpServer::port() const { return impl_->port; }

}  // namespace weft::controller

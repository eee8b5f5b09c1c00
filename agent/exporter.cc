#include "agent/exporter.h"

#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <thread>

namespace weft::agent {
namespace {

class HttpExporter final : public Exporter {
 public:
  explicit HttpExporter(std::function<std::string()> metrics) : metrics_(std::move(metrics)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(2); };  // the server deletes it
    // The library's default shares the port with whoever else asks to.
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    server_.set_keep_alive_timeout(1);  // an idle connection must not hold up the end
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(metrics_(), "text/plain; version=0.0.4; charset=utf-8");
    });
    server_.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", "text/plain");
    });
  }
  ~HttpExporter() override {
    // Before its loop runs the server would not hear stop().
    if (thread_.joinable()) {
      while (!server_.is_running() && !ended_.load()) std::this_thread::yield();
      server_.stop();
      thread_.join();
    }
  }

  Status Bind(const std::string& host, uint16_t port) {
    const int bound = port == 0 ? server_.bind_to_any_port(host) : server_.bind_to_port(host, port) ? port : -1;
    if (bound <= 0) {
      return Fail(Code::kFailedPrecondition,
                  fmt::format("serve metrics at {}:{}: the address cannot be bound; is the port in use?", host, port));
    }
    const bool v6 = host.find(':') != std::string::npos;
    address_ = v6 ? fmt::format("[{}]:{}", host, bound) : fmt::format("{}:{}", host, bound);
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      ended_.store(true);
    });
    return Ok();
  }
  const std::string& address() const override { return address_; }

 private:
  const std::function<std::string()> metrics_;
  httplib::Server server_;
  std::string address_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace

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

Result<std::unique_ptr<Exporter>> Exporter::Start(const std::string& address, std::function<std::string()> metrics) {
  WEFT_ASSIGN_OR_RETURN(const auto where, SplitHostPort(address));
  auto exporter = std::make_unique<HttpExporter>(std::move(metrics));
  WEFT_RETURN_IF_ERROR(exporter->Bind(where.first, where.second));
  return exporter;
}

}  // namespace weft::agent

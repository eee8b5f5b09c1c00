#include "access/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>
#include <utility>

#include "access/tls_server.h"
#include "access/wire.h"
#include "common/log.h"

namespace weft::access {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kRequestsPerConnection = 100;
constexpr seconds kIdle{2};  // between two requests: a viewer that is silent holds a thread for so long
constexpr seconds kLinger{1};

/// "ipv4:10.0.0.7:40112", as gRPC has it: one way to name who calls.
std::string PeerOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown:0";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return fmt::format("ipv4:{}:{}", text, ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return fmt::format("ipv6:[{}]:{}", text, ntohs(v6.sin6_port));
}

/// How many connections each address has.
class Seats {
 public:
  explicit Seats(size_t most) : most_(most) {}
  bool Take(const std::string& address) {
    const std::lock_guard lock(mutex_);
    size_t& taken = taken_[address];
    return taken < most_ && ++taken > 0;
  }
  void Leave(const std::string& address) {
    const std::lock_guard lock(mutex_);
    if (--taken_[address] == 0) taken_.erase(address);
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  std::map<std::string, size_t> taken_;  // none of them 0
};

/// A connection as the library reads and writes it: each request has so many bytes and so much time.
class BoundedStream final : public httplib::Stream {
 public:
  /// `too_much` is called when a request has more bytes than it may.
  BoundedStream(Wire* wire, std::string peer, std::function<void()> too_much)
      : wire_(wire), peer_(std::move(peer)), too_much_(std::move(too_much)) {}

  void BeginRequest() {
    until_ = Clock::now() + seconds(HttpServer::kMostSeconds);
    left_ = HttpServer::kMostBytes;
  }
  bool is_readable() const override { return wire_->WaitReadable(until_); }
  bool is_writable() const override { return wire_->WaitWritable(until_); }
  ssize_t read(char* to, size_t size) override {
    if (left_ == 0) {
      too_much_();
      return -1;
    }
    const ssize_t got = wire_->Read(to, std::min(size, left_), until_);
    left_ -= static_cast<size_t>(std::max<ssize_t>(got, 0));
    return got;
  }
  ssize_t write(const char* from, size_t size) override { return wire_->Write(from, size, until_); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip = peer_, port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  socket_t socket() const override { return wire_->socket(); }

 private:
  Wire* const wire_;
  const std::string peer_;
  const std::function<void()> too_much_;
  Clock::time_point until_;
  size_t left_ = 0;
};

/// Of the connection that the thread at hand serves: the library's handlers know of none.
struct Connection {
  std::string peer, certificate;
  bool refused = false;  // nothing more is read from it
};
thread_local Connection* connection = nullptr;
/// There is no thread for the connection at hand.
thread_local bool turned_away = false;

/// A thread per connection, up to as many as there may be.
class BoundedPool final : public httplib::ThreadPool {
 public:
  explicit BoundedPool(size_t most) : ThreadPool(most), most_(most) {}
  void enqueue(std::function<void()> serve) override {
    if (busy_.fetch_add(1) < most_) {
      ThreadPool::enqueue([this, serve = std::move(serve)] {
        serve();
        --busy_;
      });
      return;
    }
    --busy_;
    turned_away = true;
    serve();
    turned_away = false;
  }

 private:
  const size_t most_;
  std::atomic<size_t> busy_{0};
};

void Tell(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_header("Connection", "close");
  response.set_content(why + "\n", "text/plain; charset=utf-8");
}

}  // namespace

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

class HttpServer::Impl final : public httplib::Server {
 public:
  Impl(const HttpOptions& options, std::map<std::string, HttpPage> pages, Gate* gate)
      : pages_(std::move(pages)), gate_(gate), seats_(options.connections_of_an_address) {
    new_task_queue = [most = options.connections] { return new BoundedPool(most); };  // the library deletes it
    // Without SO_REUSEPORT, which the library sets by default: a second daemon must not share the port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return MayGoOn(request, response) ? HandlerResponse::Unhandled : HandlerResponse::Handled;
    });
    set_expect_100_continue_handler([this](const httplib::Request&, httplib::Response& response) {
      RefuseBody(response);
      return response.status;
    });
    for (const auto& [path, page] : pages_) {
      Get(path, [&answer = page.answer](const httplib::Request&, httplib::Response& response) {
        const HttpAnswer said = answer();
        for (const auto& [name, value] : said.headers) response.set_header(name, value);
        response.set_content(said.content, said.type);
      });
    }
  }
  ~Impl() override {
    ending_ = true;
    stop();
  }

  Status Listen(const HttpOptions& options) {
    if (!options.tls.empty()) {
      WEFT_ASSIGN_OR_RETURN(tls_, TlsServer::Make(options.tls));
      if (!tls_->IsForServers()) {
        LogWarn("access", "the certificate is for clients only, so nobody reads HTTP here: issue it again with weft pki",
                {{"certificate", options.tls.certificate}});
      }
    }
    port_ = options.port == 0 ? bind_to_any_port(options.host) : bind_to_port(options.host, options.port) ? options.port : -1;
    if (port_ <= 0) {
      return Fail(Code::kFailedPrecondition,
                  fmt::format("listen at {}:{} for HTTP: the address cannot be used (is another program listening there?)",
                              options.host, options.port));
    }
    thread_ = std::jthread([this] {
      listen_after_bind();
      ended_ = true;
    });
    // stop() has no effect before the loop runs, so a server that is started and stopped at once would never end.
    while (!is_running() && !ended_) std::this_thread::yield();
    return Ok();
  }
  int port() const { return port_; }

 private:
  bool process_and_close_socket(socket_t socket) override {
    UniqueFd owned(socket);
    const std::string peer = PeerOf(socket);
    const std::string address = peer.substr(0, peer.rfind(':'));
    if (turned_away || !seats_.Take(address)) {
      gate_->Refuse("connections", peer, Error(Code::kResourceExhausted, "too many connections, of this address or in all"));
      return false;
    }
    Serve(std::move(owned), peer);
    seats_.Leave(address);
    return true;
  }

  void Serve(UniqueFd socket, const std::string& peer) {
    auto secured = tls_ ? tls_->Connection() : nullptr;
    if (tls_ && !secured) {  // never without
      gate_->Refuse("handshake", peer, Error(Code::kInternal, "no memory for a TLS connection"));
      return;
    }
    Wire wire(std::move(socket), std::move(secured), &ending_);
    if (const Status shaken = wire.Handshake(Clock::now() + seconds(kMostSeconds)); !shaken) {
      gate_->Refuse("handshake", peer, shaken.error());
      return;
    }
    Connection own{.peer = peer, .certificate = wire.PeerCertificate()};
    connection = &own;
    BoundedStream stream(&wire, peer, [this] { Refuse("size", fmt::format("a request of more than {} bytes", kMostBytes)); });
    bool more = true;
    for (size_t left = kRequestsPerConnection; more && left > 0 && wire.WaitReadable(Clock::now() + kIdle); --left) {
      stream.BeginRequest();
      bool closed = false;
      more = process_request(stream, left == 1, closed, nullptr) && !closed && !own.refused;
    }
    connection = nullptr;
    wire.Linger(8 * kMostBytes, Clock::now() + kLinger);
  }

  void Refuse(const char* why, const std::string& reason) {
    if (std::exchange(connection->refused, true)) return;  // said
    gate_->Refuse(why, connection->peer, Error(Code::kInvalidArgument, reason));
  }
  void RefuseBody(httplib::Response& response) {
    Refuse("size", "a request with a body, expected none");
    Tell(response, 413, "expected a request without a body");
  }

  /// Whether the request is answered; else the response says why not.
  bool MayGoOn(const httplib::Request& request, httplib::Response& response) {
    // A body that nobody reads would be taken for the next request.
    const size_t lengths = request.get_header_value_count("Content-Length");
    const bool body = request.has_header("Transfer-Encoding") || lengths > 1 ||
                      (lengths == 1 && request.get_header_value("Content-Length") != "0");
    if (body) {
      RefuseBody(response);
      return false;
    }
    // Each part would be copied into the answer.
    if (request.ranges.size() > 1) {
      Refuse("size", fmt::format("a request for {} ranges, expected at most one", request.ranges.size()));
      Tell(response, 416, "expected at most one range");
      return false;
    }
    const bool reads = request.method == "GET" || request.method == "HEAD";
    const auto page = pages_.find(request.path);
    if (reads && page != pages_.end() && page->second.open) return true;
    const Caller caller{.peer = connection->peer, .certificate = connection->certificate,
                        .token = TokenOf(request.get_header_value("Authorization"))};
    const auto who = gate_->Admit(caller, reads ? Access::kRead : Access::kOperate);
    if (!who) {
      connection->refused = true;
      TellRefusal(who.error(), response);
      return false;
    }
    if (reads) return true;
    Tell(response, 405, "nothing can be changed here: use weft");
    response.set_header("Allow", "GET, HEAD");
    return false;
  }

  static void TellRefusal(const Refusal& refusal, httplib::Response& response) {
    const std::string why = refusal.why;
    if (why == "rate") {
      Tell(response, 429, refusal.error.message());
      response.set_header("Retry-After", fmt::format("{:.0f}", std::ceil(refusal.again_after.count())));
    } else if (why == "identity" || why == "token") {
      Tell(response, 401, refusal.error.message() + ", or a token");
      response.set_header("WWW-Authenticate", "Basic realm=\"weft: the password is a token\", charset=\"UTF-8\"");
    } else {
      Tell(response, 403, refusal.error.message());
    }
  }

  const std::map<std::string, HttpPage> pages_;
  Gate* const gate_;
  Seats seats_;
  std::unique_ptr<TlsServer> tls_;  // none: plain
  int port_ = 0;
  std::atomic<bool> ending_{false}, ended_{false};
  std::jthread thread_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, std::map<std::string, HttpPage> pages,
                                                      Gate* gate) {
  auto impl = std::make_unique<Impl>(options, std::move(pages), gate);
  WEFT_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }

}  // namespace weft::access

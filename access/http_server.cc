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

#include "access/seats.h"
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
constexpr char kText[] = "text/plain; charset=utf-8";

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

std::string PlaceOf(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

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
  response.set_content(why + "\n", kText);
}

}  // namespace

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

class HttpServer::Impl final : public httplib::Server {
 public:
  Impl(const HttpOptions& options, std::map<std::string, HttpPage> pages, Gate* gate)
      : pages_(std::move(pages)), gate_(gate), seats_(options.connections_of_an_address, options.connections),
        handshakes_(options.handshakes_of_an_address, options.handshakes), handshake_time_(options.handshake_time),
        authority_(options.tls.authority) {
    new_task_queue = [most = options.connections] { return new BoundedPool(most); };  // the library deletes it
    // Without SO_REUSEPORT, which the library sets by default: a second daemon must not share the port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return MayGoOn(request, response) ? HandlerResponse::Unhandled : HandlerResponse::Handled;
    });
    set_expect_100_continue_handler([this](const httplib::Request& request, httplib::Response& response) {
      RefuseBody(request, response);
      return response.status;
    });
    for (const auto& [path, page] : pages_) {
      Get(path, [&answer = page.answer](const httplib::Request&, httplib::Response& response) {
        const HttpAnswer said = answer();
        for (const auto& [name, value] : said.headers) response.set_header(name, value);
        response.set_content(said.content, said.type);
      });
    }
    set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (response.status != 404 || !response.body.empty()) return;
      std::string paths;
      for (const auto& [path, page] : pages_) paths += (paths.empty() ? "" : ", ") + path;
      response.set_content(fmt::format("{}: no such page, expected one of {}\n", request.method, paths), kText);
    });
  }
  ~Impl() override {
    ending_ = true;
    stop();
  }

  Status Listen(const HttpOptions& options) {
    if (!options.tls.empty()) {
      WEFT_ASSIGN_OR_RETURN(tls_, TlsServer::Make(options.tls));
      if (!tls_->IsForServers()) {
        LogWarn("access", "certificate of HTTP is for clients only, expected one for servers: nobody reads here until it is issued again "
                          "with weft pki",
                {{"host", options.host}, {"port", options.port}, {"certificate", options.tls.certificate}});
      }
    }
    port_ = options.port == 0 ? bind_to_any_port(options.host) : bind_to_port(options.host, options.port) ? options.port : -1;
    if (port_ <= 0) {
      return Fail(Code::kFailedPrecondition,
                  fmt::format("listen at {} for HTTP: the address cannot be used, expected one of this host's that no other program "
                              "listens at: see which does with ss -ltnp, or configure another",
                              PlaceOf(options.host, options.port)));
    }
    place_ = "HTTP at " + PlaceOf(options.host, port_);
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
    const Seats::Answer seat = turned_away ? Seats::Answer::kAllFull : seats_.Take(address);
    if (seat != Seats::Answer::kTaken) {
      RefuseSeat("connections", "connections", seats_, seat, peer);
      return false;
    }
    Serve(std::move(owned), peer, address);
    seats_.Leave(address);
    return true;
  }

  /// Says that there is no place in `seats` for one more of `what`.
  void RefuseSeat(const char* why, const char* what, const Seats& seats, Seats::Answer answer, const std::string& peer) {
    const bool all = answer == Seats::Answer::kAllFull;
    gate_->Refuse(why, peer,
                  Error(Code::kResourceExhausted,
                        fmt::format("{}: {} {} {} at once, expected at most that: close some, or come again later", place_,
                                    all ? "all callers have" : "its address has", all ? seats.in_all() : seats.of_an_address(), what)));
  }

  /// Whether the wire has TLS now, if it is to have any: in its own time, and with few at once who are not that far. Who never ends his
  /// handshake holds a thread for no longer, and leaves the rest to those who have ended theirs.
  bool Shake(Wire& wire, const std::string& peer, const std::string& address) {
    if (!tls_) return true;
    if (const Seats::Answer seat = handshakes_.Take(address); seat != Seats::Answer::kTaken) {
      RefuseSeat("handshakes", "TLS handshakes that are not done yet", handshakes_, seat, peer);
      return false;
    }
    const Status shaken = wire.Handshake(Clock::now() + handshake_time_);
    handshakes_.Leave(address);
    if (shaken) return true;
    gate_->Refuse("handshake", peer,
                  Error(shaken.error().code(),
                        fmt::format("{}: {}, expected a TLS handshake within {} s, with no certificate or one in date of authority "
                                    "\"{}\": look at the caller's with openssl x509 -noout -issuer -dates",
                                    place_, shaken.error().message(), std::chrono::duration<double>(handshake_time_).count(),
                                    authority_)));
    return false;
  }

  void Serve(UniqueFd socket, const std::string& peer, const std::string& address) {
    auto secured = tls_ ? tls_->Connection() : nullptr;
    if (tls_ && !secured) {  // never without
      gate_->Refuse("handshake", peer, Error(Code::kInternal, place_ + ": OpenSSL makes no TLS connection, expected memory for one: free some "
                                                                       "on this host, the caller may come again"));
      return;
    }
    Wire wire(std::move(socket), std::move(secured), &ending_);
    if (!Shake(wire, peer, address)) return;
    Connection own{.peer = peer, .certificate = wire.PeerCertificate()};
    connection = &own;
    BoundedStream stream(&wire, peer, [this] {
      Refuse("size", fmt::format("a request of more than {} bytes, expected at most that: send fewer headers", kMostBytes));
    });
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
    gate_->Refuse(why, connection->peer, Error(Code::kInvalidArgument, place_ + ": " + reason));
  }
  void RefuseBody(const httplib::Request& request, httplib::Response& response) {
    const std::string said = request.method + ": a request with a body, expected none: ask with GET, and change things with weft";
    Refuse("size", said);
    Tell(response, 413, said);
  }

  /// Whether the request is answered; else the response says why not.
  bool MayGoOn(const httplib::Request& request, httplib::Response& response) {
    // A body that nobody reads would be taken for the next request.
    const size_t lengths = request.get_header_value_count("Content-Length");
    const bool body = request.has_header("Transfer-Encoding") || lengths > 1 ||
                      (lengths == 1 && request.get_header_value("Content-Length") != "0");
    if (body) {
      RefuseBody(request, response);
      return false;
    }
    // Each part would be copied into the answer.
    if (request.ranges.size() > 1) {
      const std::string said = fmt::format("{}: a request for {} ranges, expected at most one: ask for the whole page", request.method,
                                           request.ranges.size());
      Refuse("size", said);
      Tell(response, 416, said);
      const_cast<httplib::Request&>(request).ranges.clear();  // else the library cuts this answer up; its own object is not const
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
    Tell(response, 405, request.method + " changes nothing here, expected GET or HEAD: to change something use weft");
    response.set_header("Allow", "GET, HEAD");
    return false;
  }

  static void TellRefusal(const Refusal& refusal, httplib::Response& response) {
    const std::string why = refusal.why;
    if (why == "rate") {
      Tell(response, 429, refusal.error.message());
      response.set_header("Retry-After", fmt::format("{:.0f}", std::ceil(refusal.again_after.count())));
    } else if (why == "identity" || why == "token") {
      Tell(response, 401, refusal.error.message() + ": show a certificate of a viewer, submitter or operator, or a token that counts; "
                                                    "whoever runs this daemon has them");
      response.set_header("WWW-Authenticate", "Basic realm=\"weft: the password is a token\", charset=\"UTF-8\"");
    } else {
      Tell(response, 403, refusal.error.message() + ": show another certificate or token");
    }
  }

  const std::map<std::string, HttpPage> pages_;
  Gate* const gate_;
  Seats seats_, handshakes_;
  const std::chrono::milliseconds handshake_time_;
  const std::string authority_;
  std::string place_;               // for messages
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

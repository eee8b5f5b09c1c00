// The HTTP face of a daemon: pages that are read, over TLS where the daemon has certificates, each request through the
// gate. Nothing here takes a body. What one caller may hold is bounded: connections in all and of one address, of those the ones whose
// TLS handshake is not done, the time of a handshake, bytes and time of a request.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "access/gate.h"
#include "common/result.h"
#include "proto/credentials.h"

namespace weft::access {

/// What a page answers.
struct HttpAnswer {
  std::string content;
  const char* type = "text/plain";
  std::map<std::string, std::string> headers{};
};

struct HttpPage {
  std::function<HttpAnswer()> answer;  ///< on the server's threads
  bool open = false;                   ///< for anybody who reaches the port, as far as the limits go
};

struct HttpOptions {
  std::string host;                    ///< name or address to listen at, IPv6 without brackets
  int port = 0;                        ///< 0: any
  rpc::TlsFiles tls;                   ///< empty: plain
  size_t connections = 16;             ///< at once, a thread each; those beyond are closed
  size_t connections_of_an_address = 8;
  size_t handshakes = 12;              ///< of TLS at once that are not done yet; the connection of one beyond is closed
  size_t handshakes_of_an_address = 4;
  std::chrono::milliseconds handshake_time{5'000};  ///< that one may take: then the connection is closed
};

/// Whether `host`, a name or an address with or without brackets, is this machine for itself only.
bool IsLoopback(const std::string& host);

class HttpServer {
 public:
  static constexpr size_t kMostBytes = 32 << 10;  ///< of a request
  static constexpr int kMostSeconds = 10;         ///< that a request may take to come, and its answer to go

  /// Serves `pages` by path until destroyed: GET and HEAD to who may read; whatever else is an operator's, and finds
  /// nothing to change. Refused connections and requests are logged and counted by the gate. `gate` must outlive the server; it has `tls` set where `options.tls` is not empty. Errors:
  /// kFailedPrecondition naming the address when it cannot be listened at; as TlsServer::Make.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, std::map<std::string, HttpPage> pages,
                                                                 Gate* gate);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::access

// A connection's bytes: plain, or TLS on the same socket. Every call has a time by which it must be done, since it is the other end
// that decides how slowly it goes; and a server that ends waits for nobody.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"

struct ssl_st;
struct ssl_ctx_st;

namespace weft::access {

struct TlsFree {
  void operator()(ssl_st* object) const;
  void operator()(ssl_ctx_st* object) const;
};

/// Threads: one at a time.
class Wire {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Over `socket`, which is set not to block; TLS if `tls` is there. Once `*stop` is true all waits fail; it must outlive
  /// the wire.
  Wire(UniqueFd socket, std::unique_ptr<ssl_st, TlsFree> tls, const std::atomic<bool>* stop);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// The server's end of TLS; without TLS nothing. Errors: kUnauthenticated saying what was wrong with the other end's certificate,
  /// or with what it sent.
  [[nodiscard]] Status Handshake(Time until);
  /// What the other end's certificate is, PEM; empty without one. It has been checked against the authority.
  std::string PeerCertificate() const;

  /// Whether bytes, or the end, are there to be read.
  bool WaitReadable(Time until) const;
  /// Whether some bytes can be written.
  bool WaitWritable(Time until) const;
  /// Bytes read; 0 at the end, -1 where nothing came in time or the connection failed.
  ssize_t Read(char* to, size_t size, Time until);
  /// Bytes written; -1 as above.
  ssize_t Write(const char* from, size_t size, Time until);
  /// Says that nothing more will be written, and reads what the other end still sends, up to `most` bytes: a socket that is closed
  /// with bytes unread takes the answer back that it was sent.
  void Linger(size_t most, Time until);

  int socket() const { return socket_.get(); }

 private:
  bool Wait(short events, Time until) const;
  /// After a call of OpenSSL's that gave `result`: true where it is to be made again, and may.
  bool Again(int result, Time until);

  const UniqueFd socket_;
  const std::unique_ptr<ssl_st, TlsFree> tls_;
  const std::atomic<bool>* const stop_;
  bool broken_ = false;  // OpenSSL allows no more calls, the farewell included
};

}  // namespace weft::access

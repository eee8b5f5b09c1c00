// TLS of listeners that are not gRPC's, with the same three files. A caller need not show a certificate, since a token may
// stand for it, but one that he shows must be of the authority and in date. Sessions are not resumed: each connection is
// checked anew.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "access/wire.h"
#include "common/result.h"
#include "proto/credentials.h"

namespace weft::access {

/// Threads: any.
class TlsServer {
 public:
  /// Errors: as rpc::ReadTlsTexts.
  [[nodiscard]] static Result<std::unique_ptr<TlsServer>> Make(const rpc::TlsFiles& files);

  /// For one connection, before its handshake. Files that have changed are taken first; while they do not fit together (only one of
  /// certificate and key is new) or cannot be read, what was there before goes on, and the log says so once for each change.
  std::unique_ptr<ssl_st, TlsFree> Connection();
  /// Whether clients take the certificate for a server's: one for clients only names no such use.
  bool IsForServers();

 private:
  explicit TlsServer(rpc::TlsFiles files) : files_(std::move(files)) {}
  std::string Versions() const;

  const rpc::TlsFiles files_;
  std::mutex mutex_;  // guards what follows
  std::string versions_;
  std::unique_ptr<ssl_ctx_st, TlsFree> context_;
};

}  // namespace weft::access

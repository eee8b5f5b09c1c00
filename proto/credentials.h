// Credentials of every gRPC channel and server of Weft, made here and nowhere else, so that turning mTLS on is a change
// of configuration. Without certificate files both sides are plaintext, which is meant for one machine and for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/result.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace weft::rpc {

/// Paths of PEM files. All three or none.
struct TlsFiles {
  std::string certificate;  ///< own chain; its name says the role (agent of host H, submitter, operator, viewer)
  std::string key;
  std::string authority;    ///< what the other side's certificate must be signed by

  bool empty() const { return certificate.empty() && key.empty() && authority.empty(); }
};

/// Errors: those of ReadTlsTexts (tls_texts.h).
/// Made from what the files hold now: after a certificate was replaced, credentials that are made anew show the new one.
/// The process's log of gRPC goes to debug from then on: whoever handles an error says it, once.
[[nodiscard]] Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsFiles& files);

/// The server requires and checks a client certificate whenever it has one of its own. It looks at the three files every two
/// seconds: connections that come later are served with what they hold then. Errors: as above.
[[nodiscard]] Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files);

/// Calls `tell` with what gRPC says of a TLS handshake with a client of a server of this process that came to nothing: gRPC has no other
/// word for who does not come as far as a call. From any thread; empty: nobody is told any more, and no call is under way.
void TellFailedHandshakes(std::function<void(const std::string&)> tell);

/// What gRPC says when no connection came about, made clear: which certificate was refused by whom, or that one side
/// speaks TLS and the other does not. Text that says nothing about this is returned as it is.
std::string ExplainNoConnection(const TlsFiles& own, const std::string& grpc_message);

}  // namespace weft::rpc

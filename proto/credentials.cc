#include "proto/credentials.h"

#include <grpc/support/log.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <chrono>
#include <mutex>
#include <string_view>
#include <utility>

#include "common/log.h"
#include "proto/tls_texts.h"

namespace weft::rpc {
namespace {

constexpr std::chrono::seconds kCertificatesEvery{2};  // a server's files are looked at again

struct Listener {
  std::mutex mutex;
  std::function<void(const std::string&)> tell;
};
Listener& HandshakeListener() {
  static Listener* const listener = new Listener;  // gRPC's threads may outlive main
  return *listener;
}

/// gRPC's own complaints, e.g. about a port in use: what matters of them is said by whoever handles the error.
void LogForGrpc(gpr_log_func_args* args) {
  LogDebug("grpc", args->message);
  if (std::string_view(args->message).find("Handshake failed with fatal error") == std::string_view::npos) return;
  Listener& listener = HandshakeListener();
  const std::lock_guard lock(listener.mutex);
  if (listener.tell) listener.tell(args->message);
}

}  // namespace

void TellFailedHandshakes(std::function<void(const std::string&)> tell) {
  Listener& listener = HandshakeListener();
  const std::lock_guard lock(listener.mutex);
  listener.tell = std::move(tell);
}

Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsFiles& files) {
  gpr_set_log_function(LogForGrpc);
  if (files.empty()) return grpc::InsecureChannelCredentials();
  WEFT_ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsTexts(files));
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = texts.authority;
  options.pem_private_key = texts.key;
  options.pem_cert_chain = texts.certificate;
  return grpc::SslCredentials(options);
}

Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files) {
  gpr_set_log_function(LogForGrpc);
  if (files.empty()) return grpc::InsecureServerCredentials();
  if (const auto texts = ReadTlsTexts(files); !texts) return Fail(texts.error());
  // The only one of gRPC's interfaces that takes new certificates while it runs: experimental still in Debian's 1.51.
  namespace tls = grpc::experimental;
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.authority, static_cast<unsigned>(kCertificatesEvery.count())));
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  return tls::TlsServerCredentials(options);
}

std::string ExplainNoConnection(const TlsFiles& own, const std::string& grpc_message) {
  const auto says = [&](const char* piece) { return grpc_message.find(piece) != std::string::npos; };
  if (own.empty()) {
    // A TLS server hangs up on what is no handshake.
    return says("Socket closed") ? "the connection was closed at once; if TLS is on there, certificate, key and authority "
                                   "are needed here"
                                 : grpc_message;
  }
  if (const size_t peer = grpc_message.find("Peer name "); peer != std::string::npos) {
    return "the certificate shown there is for another host (" + grpc_message.substr(peer) + ")";
  }
  if (says("certificate verify failed")) {
    return "the certificate shown there is out of date or not signed by \"" + own.authority + "\"";
  }
  if (says("wrong version number")) return "no TLS is spoken there, but certificates are given here";
  // Under TLS 1.3 the client is done before the server judges its certificate: all it sees is the end.
  if (says("Socket closed") || says("Connection reset") || says("alert")) {
    return "the certificate \"" + own.certificate + "\" is not accepted there; it must be signed by the authority "
           "configured there";
  }
  return grpc_message;
}

}  // namespace weft::rpc

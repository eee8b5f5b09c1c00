#include "proto/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <fstream>
#include <sstream>

namespace weft::rpc {
namespace {

struct TlsTexts {
  std::string certificate, key, authority;
};

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return Fail(Code::kNotFound, "read TLS file \"" + path + "\"");
  return text.str();
}

Result<TlsTexts> ReadAll(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty() || files.authority.empty()) {
    return Fail(Code::kInvalidArgument, "TLS needs certificate, key and authority; only some are configured");
  }
  TlsTexts texts;
  WEFT_ASSIGN_OR_RETURN(texts.certificate, ReadFile(files.certificate));
  WEFT_ASSIGN_OR_RETURN(texts.key, ReadFile(files.key));
  WEFT_ASSIGN_OR_RETURN(texts.authority, ReadFile(files.authority));
  return texts;
}

}  // namespace

Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsFiles& files) {
  if (files.empty()) return grpc::InsecureChannelCredentials();
  WEFT_ASSIGN_OR_RETURN(const TlsTexts texts, ReadAll(files));
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = texts.authority;
  options.pem_private_key = texts.key;
  options.pem_cert_chain = texts.certificate;
  return grpc::SslCredentials(options);
}

Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files) {
  if (files.empty()) return grpc::InsecureServerCredentials();
  WEFT_ASSIGN_OR_RETURN(const TlsTexts texts, ReadAll(files));
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = texts.authority;
  options.pem_key_cert_pairs.push_back({texts.key, texts.certificate});
  return grpc::SslServerCredentials(options);
}

}  // namespace weft::rpc

#include "access/tls_server.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <vector>

#include "access/text_file.h"
#include "common/log.h"
#include "proto/openssl_owners.h"
#include "proto/tls_texts.h"

namespace weft::access {
namespace {

using Context = std::unique_ptr<ssl_ctx_st, TlsFree>;

std::vector<rpc::CertificateOwner> CertificatesIn(const std::string& text) {
  std::vector<rpc::CertificateOwner> certificates;
  const rpc::BioOwner reader(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  while (rpc::CertificateOwner next{PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  ERR_clear_error();  // the end of the text is one
  return certificates;
}

/// What OpenSSL does not take, and why.
Status Unusable(const char* what, const std::string& file, const char* expected) {
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  ERR_clear_error();
  return Fail(Code::kInvalidArgument,
              fmt::format("TLS of HTTP: {} \"{}\" cannot be used: {}, expected {}: issue it again with weft pki", what, file,
                          reason == nullptr ? "OpenSSL does not say why" : reason, expected));
}

Status UseCertificates(SSL_CTX* context, const rpc::TlsFiles& files, const rpc::TlsTexts& texts) {
  const std::vector<rpc::CertificateOwner> chain = CertificatesIn(texts.certificate);
  bool good = !chain.empty() && SSL_CTX_use_certificate(context, chain.front().get()) == 1;
  for (size_t i = 1; good && i < chain.size(); ++i) good = SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  if (!good) return Unusable("certificate", files.certificate, "PEM with keys as strong as OpenSSL asks for");
  const rpc::BioOwner reader(BIO_new_mem_buf(texts.key.data(), static_cast<int>(texts.key.size())));
  char no_password[] = "";
  const rpc::KeyOwner key(PEM_read_bio_PrivateKey(reader.get(), nullptr, nullptr, no_password));
  if (!key || SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return Unusable("key", files.key, "the certificate's, without a password");
  }
  for (const rpc::CertificateOwner& authority : CertificatesIn(texts.authority)) {
    good = good && X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) == 1 &&
           SSL_CTX_add_client_CA(context, authority.get()) == 1;
  }
  return good ? Ok() : Unusable("authority", files.authority, "PEM certificates");
}

Result<Context> MakeContext(const rpc::TlsFiles& files, const rpc::TlsTexts& texts) {
  Context context(SSL_CTX_new(TLS_server_method()));
  const bool good = context && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1 &&
                    SSL_CTX_set_num_tickets(context.get(), 0) == 1;
  if (!good) return Fail(Unusable("OpenSSL for", files.certificate, "a library with TLS 1.2 and memory for it").error());
  WEFT_RETURN_IF_ERROR(UseCertificates(context.get(), files, texts));
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

}  // namespace

std::string TlsServer::Versions() const {
  return VersionOf(files_.certificate) + "\n" + VersionOf(files_.key) + "\n" + VersionOf(files_.authority);
}

Result<std::unique_ptr<TlsServer>> TlsServer::Make(const rpc::TlsFiles& files) {
  std::unique_ptr<TlsServer> server(new TlsServer(files));
  server->versions_ = server->Versions();
  WEFT_ASSIGN_OR_RETURN(const rpc::TlsTexts texts, rpc::ReadTlsTexts(files));
  WEFT_ASSIGN_OR_RETURN(server->context_, MakeContext(files, texts));
  return server;
}

std::unique_ptr<ssl_st, TlsFree> TlsServer::Connection() {
  const std::lock_guard lock(mutex_);
  if (std::string versions = Versions(); versions != versions_) {
    versions_ = std::move(versions);
    const auto texts = rpc::ReadTlsTexts(files_);
    auto made = texts ? MakeContext(files_, *texts) : Result<Context>(Fail(texts.error()));
    if (made) {
      context_ = *std::move(made);
      LogInfo("access", "certificates of HTTP read again", {{"certificate", files_.certificate}});
    } else {
      LogWarn("access", "certificates of HTTP stay as they were, expected a certificate, its key and an authority: mend the files, which "
                        "are read again when they change",
              {{"certificate", files_.certificate}, {"key", files_.key}, {"reason", made.error().message()}});
    }
  }
  return std::unique_ptr<ssl_st, TlsFree>(SSL_new(context_.get()));
}

bool TlsServer::IsForServers() {
  const std::lock_guard lock(mutex_);
  return X509_check_purpose(SSL_CTX_get0_certificate(context_.get()), X509_PURPOSE_SSL_SERVER, 0) == 1;
}

}  // namespace weft::access

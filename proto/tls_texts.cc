#include "proto/tls_texts.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <fstream>
#include <sstream>

#include "proto/openssl_owners.h"

namespace weft::rpc {
namespace {

BioOwner Reader(const std::string& text) { return BioOwner(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

CertificateOwner FirstCertificate(const std::string& text) {
  return CertificateOwner(PEM_read_bio_X509(Reader(text).get(), nullptr, nullptr, nullptr));
}

/// An encrypted key is not read: a daemon has nobody to ask for the password.
KeyOwner PrivateKey(const std::string& text) {
  char no_password[] = "";
  return KeyOwner(PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, nullptr, no_password));
}

std::string TimeText(const ASN1_TIME* time) {
  const BioOwner out(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(out.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

Status CheckDates(const std::string& file, const X509* certificate) {
  const ASN1_TIME* const from = X509_get0_notBefore(certificate);
  const ASN1_TIME* const to = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(to) < 0) {
    return Fail(Code::kFailedPrecondition, "TLS certificate \"" + file + "\": has expired on " + TimeText(to));
  }
  if (X509_cmp_current_time(from) > 0) {
    return Fail(Code::kFailedPrecondition, "TLS certificate \"" + file + "\": is valid only from " + TimeText(from));
  }
  return Ok();
}

Status Check(const TlsFiles& files, const TlsTexts& texts) {
  const auto wrong = [](const std::string& what, const std::string& file, const std::string& expected) {
    return Fail(Code::kInvalidArgument, "TLS " + what + " \"" + file + "\": expected " + expected);
  };
  const CertificateOwner certificate = FirstCertificate(texts.certificate);
  if (!certificate) return wrong("certificate", files.certificate, "a PEM certificate");
  const KeyOwner key = PrivateKey(texts.key);
  if (!key) return wrong("key", files.key, "a PEM private key without a password");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return wrong("key", files.key, "the key of \"" + files.certificate + "\"");
  }
  if (!FirstCertificate(texts.authority)) return wrong("authority", files.authority, "a PEM certificate");
  return CheckDates(files.certificate, certificate.get());
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return Fail(Code::kNotFound, "read TLS file \"" + path + "\"");
  return text.str();
}

}  // namespace

Status CheckTlsTexts(const TlsFiles& files, const TlsTexts& texts) {
  const Status status = Check(files, texts);
  ERR_clear_error();  // the queue is the thread's, and gRPC reads it too
  return status;
}

Result<TlsTexts> ReadTlsTexts(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty() || files.authority.empty()) {
    return Fail(Code::kInvalidArgument, "TLS needs certificate, key and authority; only some are configured");
  }
  TlsTexts texts;
  WEFT_ASSIGN_OR_RETURN(texts.certificate, ReadFile(files.certificate));
  WEFT_ASSIGN_OR_RETURN(texts.key, ReadFile(files.key));
  WEFT_ASSIGN_OR_RETURN(texts.authority, ReadFile(files.authority));
  WEFT_RETURN_IF_ERROR(CheckTlsTexts(files, texts));
  return texts;
}

}  // namespace weft::rpc

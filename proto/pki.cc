#include "proto/pki.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "common/unique_fd.h"
#include "proto/openssl_owners.h"

namespace weft::rpc {
namespace {

constexpr int kAuthorityDays = 3650, kMostDays = 3650;
constexpr int kSerialBits = 127;
constexpr long kSecondsPerDay = 86400, kClockSkew = 300;
constexpr size_t kLongestCommonName = 64;  // of X.509

Error CryptoError(const std::string& what) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  ERR_clear_error();
  return Error(Code::kInternal, what + ": " + text);
}

Result<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return Fail(Code::kNotFound, "read \"" + path + "\"");
  return text.str();
}

/// Whole or not at all, with its mode from the first byte on.
Status WriteText(const std::string& path, const std::string& text, mode_t mode) {
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(fd.get()) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    return Fail(Code::kFailedPrecondition, ErrnoError("write \"" + path + "\"", errno).message());
  }
  return Ok();
}

std::string TextOf(const BioOwner& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string PemOf(X509* certificate) {
  const BioOwner out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate);
  return TextOf(out);
}

std::string PemOf(EVP_PKEY* key) {
  const BioOwner out(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(out);
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionOwner extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// Without name, issuer, extensions and signature.
Result<CertificateOwner> Blank(EVP_PKEY* key, const std::string& common_name, int days) {
  CertificateOwner certificate(X509_new());
  const NumberOwner serial(BN_new());
  const bool good = certificate && serial && X509_set_version(certificate.get(), 2) == 1 &&
                    BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
                    BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate.get())) != nullptr &&
                    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kClockSkew) != nullptr &&
                    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), days * kSecondsPerDay) != nullptr &&
                    X509_set_pubkey(certificate.get(), key) == 1;
  const std::string name = common_name.substr(0, kLongestCommonName);
  if (!good || X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                                          reinterpret_cast<const unsigned char*>(name.data()), static_cast<int>(name.size()), -1,
                                              0) != 1) {
    return Fail(CryptoError("make certificate"));
  }
  return certificate;
}

/// Names in a certificate's configuration syntax are divided by commas: nothing else may bring one.
bool IsPlain(const std::string& text) {
  return !text.empty() && text.size() <= 255 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '@';
  });
}

Result<std::string> AlternativeNames(const CertificateRequest& request) {
  const auto refuse = [](const std::string& what) {
    return Fail(Code::kInvalidArgument, what + ": expected 1 to 255 letters, digits, '.', '-', '_', ':' or '@'");
  };
  if (!IsPlain(request.name)) return refuse("name \"" + request.name + "\"");
  std::string names = "URI:weft://" + std::string(RoleName(request.role)) + "/" + request.name;
  std::vector<std::string> addresses = request.addresses;
  if (request.role == Role::kAgent && request.name.find_first_of(":@_") == std::string::npos) addresses.push_back(request.name);
  for (const std::string& address : addresses) {
    if (!IsPlain(address)) return refuse("address \"" + address + "\"");
    in6_addr binary{};
    const bool is_ip = inet_pton(AF_INET, address.c_str(), &binary) == 1 || inet_pton(AF_INET6, address.c_str(), &binary) == 1;
    names += (is_ip ? ",IP:" : ",DNS:") + address;
  }
  return names;
}

}  // namespace

Status MakeAuthority(const std::string& folder, const std::string& site) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Fail(ErrnoError("make \"" + folder + "\"", errno));
  if (::access((folder + "/ca.key").c_str(), F_OK) == 0) return Fail(Code::kAlreadyExists,
                                                                     "\"" + folder + "/ca.key\" is there already");
  const KeyOwner key(EVP_EC_gen("P-256"));
  if (!key) return Fail(CryptoError("make key"));
  WEFT_ASSIGN_OR_RETURN(const CertificateOwner certificate, Blank(key.get(), site + " authority of Weft", kAuthorityDays));
  X509* const x = certificate.get();
  const bool good = X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
      AddExtension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    AddExtension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                        AddExtension(x, x, NID_subject_key_identifier, "hash") &&
                    X509_sign(x, key.get(), EVP_sha256()) != 0;
  if (!good) return Fail(CryptoError("make authority"));
  WEFT_RETURN_IF_ERROR(WriteText(folder + "/ca.key", PemOf(key.get()), 0600));
  return WriteText(folder + "/ca.pem", PemOf(x), 0644);
}

Result<std::string> IssueCertificate(const std::string& folder, const CertificateRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const std::string names, AlternativeNames(request));
  if (request.days < 1 || request.days > kMostDays) {
    return Fail(Code::kInvalidArgument, "days " + std::to_string(request.days) + ", expected 1 to " + std::to_string(kMostDays));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string ca_pem, ReadText(folder + "/ca.pem"));
  WEFT_ASSIGN_OR_RETURN(const std::string ca_key_pem, ReadText(folder + "/ca.key"));
  const BioOwner ca_text(BIO_new_mem_buf(ca_pem.data(), static_cast<int>(ca_pem.size())));
  const BioOwner key_text(BIO_new_mem_buf(ca_key_pem.data(), static_cast<int>(ca_key_pem.size())));
  const CertificateOwner ca(PEM_read_bio_X509(ca_text.get(), nullptr, nullptr, nullptr));
  const KeyOwner ca_key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  if (!ca || !ca_key) return Fail(CryptoError("read the authority in \"" + folder + "\""));
  const KeyOwner key(EVP_EC_gen("P-256"));
  if (!key) return Fail(CryptoError("make key"));
  const std::string title = std::string(RoleName(request.role)) + "-" + request.name;
  WEFT_ASSIGN_OR_RETURN(const CertificateOwner certificate, Blank(key.get(), title, request.days));
  X509* const x = certificate.get();
  const bool serves = request.role == Role::kController || request.role == Role::kAgent;  // an agent: its metrics
  const char* const usage = serves ? "serverAuth,clientAuth" : "clientAuth";
  const bool good = X509_set_issuer_name(x, X509_get_subject_name(ca.get())) == 1 &&
      AddExtension(x, ca.get(), NID_basic_constraints, "critical,CA:FALSE") &&
                    AddExtension(x, ca.get(), NID_key_usage, "critical,digitalSignature") &&
                        AddExtension(x, ca.get(), NID_ext_key_usage, usage) &&
                    AddExtension(x, ca.get(), NID_authority_key_identifier, "keyid") &&
                        AddExtension(x, ca.get(), NID_subject_alt_name, names) &&
                    X509_sign(x, ca_key.get(), EVP_sha256()) != 0;
  if (!good) return Fail(CryptoError("make certificate"));
  const std::string pem = PemOf(x);
  WEFT_ASSIGN_OR_RETURN(const Identity identity, ParseIdentity(pem));
  WEFT_RETURN_IF_ERROR(WriteText(folder + "/" + title + ".key", PemOf(key.get()), 0600));
  WEFT_RETURN_IF_ERROR(WriteText(folder + "/" + title + ".pem", pem, 0644));
  return identity.serial;
}

Result<std::string> RevokeCertificate(const std::string& folder, const std::string& file) {
  WEFT_ASSIGN_OR_RETURN(const std::string pem, ReadText(file));
  WEFT_ASSIGN_OR_RETURN(const Identity identity, ParseIdentity(pem));
  const std::string path = folder + "/revoked.txt";
  std::string list = ReadText(path).value_or("");
  if (!list.empty() && list.back() != '\n') list += '\n';
  list += identity.serial + "  # " + std::string(RoleName(identity.role)) + " " + identity.name + "\n";
  WEFT_RETURN_IF_ERROR(WriteText(path, list, 0644));
  return identity.serial;
}

}  // namespace weft::rpc

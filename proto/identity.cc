#include "proto/identity.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace weft::rpc {
namespace {

constexpr std::string_view kScheme = "weft://";
constexpr size_t kLongestName = 255;

constexpr std::array<std::pair<Role, std::string_view>, 5> kRoles{{{Role::kAgent, "agent"},
                                                                   {Role::kSubmitter, "submitter"},
                                                                   {Role::kOperator, "operator"},
                                                                   {Role::kViewer, "viewer"},
                                                                   {Role::kController, "controller"}}};

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Names = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;

tl::unexpected<Error> Nobody(const std::string& why) {
  return Fail(Code::kUnauthenticated, "certificate: " + why + ", expected one name like weft://agent/HOST");
}

std::vector<std::string> UrisOf(X509* certificate) {
  std::vector<std::string> uris;
  const Names names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const text = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text)));
  }
  return uris;
}

std::string SerialOf(X509* certificate) {
  const std::unique_ptr<BIGNUM, Freer<BN_free>> number(ASN1_INTEGER_to_BN(X509_get_serialNumber(certificate), nullptr));
  if (!number) return "";
  char* const text = BN_bn2hex(number.get());
  const std::string serial = text == nullptr ? "" : text;
  OPENSSL_free(text);
  return serial;
}

}  // namespace

std::string_view RoleName(Role role) {
  return std::find_if(kRoles.begin(), kRoles.end(), [&](const auto& entry) { return entry.first == role; })->second;
}

Result<Role> ParseRole(std::string_view word) {
  const auto* const found = std::find_if(kRoles.begin(), kRoles.end(), [&](const auto& entry) { return entry.second == word; });
  if (found != kRoles.end()) return found->first;
  return Fail(Code::kInvalidArgument,
              "role \"" + std::string(word) + "\", expected agent, submitter, operator, viewer or controller");
}

Result<Identity> ParseIdentityUri(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return Nobody("no role");
  uri.remove_prefix(kScheme.size());
  const size_t slash = uri.find('/');
  const auto role = ParseRole(uri.substr(0, slash));
  if (!role) return Nobody(role.error().message());
  const std::string_view name = slash == std::string_view::npos ? std::string_view() : uri.substr(slash + 1);
  const bool good = !name.empty() && name.size() <= kLongestName &&
                    std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '/'; });
  if (!good) return Nobody("no name behind its role");
  return Identity{.role = *role, .name = std::string(name), .serial = ""};
}

Result<Identity> ParseIdentity(const std::string& pem) {
  const std::unique_ptr<BIO, Freer<BIO_free>> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const std::unique_ptr<X509, Freer<X509_free>> certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();  // the queue is the thread's, and gRPC reads it too
  if (!certificate) return Nobody("not readable");
  std::optional<Identity> found;
  for (const std::string& uri : UrisOf(certificate.get())) {
    if (!uri.starts_with(kScheme)) continue;
    if (found) return Nobody("two roles");
    WEFT_ASSIGN_OR_RETURN(found, ParseIdentityUri(uri));
  }
  if (!found) return Nobody("no role");
  found->serial = SerialOf(certificate.get());
  return *std::move(found);
}

}  // namespace weft::rpc

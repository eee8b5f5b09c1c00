// Owners of OpenSSL's objects, which free them; the types stand under the names that its headers give their structs.
// Internal to proto and access.
#pragma once

#include <memory>

struct bignum_st;
struct bio_st;
struct evp_pkey_st;
struct x509_st;
struct X509_extension_st;

namespace weft::rpc {

struct OpensslFree {
  void operator()(bignum_st* object) const;
  void operator()(bio_st* object) const;
  void operator()(evp_pkey_st* object) const;
  void operator()(x509_st* object) const;
  void operator()(X509_extension_st* object) const;
};

using BioOwner = std::unique_ptr<bio_st, OpensslFree>;
using CertificateOwner = std::unique_ptr<x509_st, OpensslFree>;
using ExtensionOwner = std::unique_ptr<X509_extension_st, OpensslFree>;
using KeyOwner = std::unique_ptr<evp_pkey_st, OpensslFree>;
using NumberOwner = std::unique_ptr<bignum_st, OpensslFree>;

}  // namespace weft::rpc

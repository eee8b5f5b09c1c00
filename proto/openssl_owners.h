// Owners of OpenSSL's objects, which free them. Internal to proto.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace weft::rpc {

template <auto Free>
struct OpensslFreer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using BioOwner = std::unique_ptr<BIO, OpensslFreer<BIO_free>>;
using CertificateOwner = std::unique_ptr<X509, OpensslFreer<X509_free>>;
using KeyOwner = std::unique_ptr<EVP_PKEY, OpensslFreer<EVP_PKEY_free>>;
using ExtensionOwner = std::unique_ptr<X509_EXTENSION, OpensslFreer<X509_EXTENSION_free>>;
using NumberOwner = std::unique_ptr<BIGNUM, OpensslFreer<BN_free>>;

}  // namespace weft::rpc

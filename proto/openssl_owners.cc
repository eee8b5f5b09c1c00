#include "proto/openssl_owners.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

namespace weft::rpc {

void OpensslFree::operator()(bignum_st* object) const { BN_free(object); }
void OpensslFree::operator()(bio_st* object) const { BIO_free(object); }
void OpensslFree::operator()(evp_pkey_st* object) const { EVP_PKEY_free(object); }
void OpensslFree::operator()(x509_st* object) const { X509_free(object); }
void OpensslFree::operator()(X509_extension_st* object) const { X509_EXTENSION_free(object); }

}  // namespace weft::rpc

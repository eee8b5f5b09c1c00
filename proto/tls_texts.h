// The PEM texts behind TlsFiles, looked at before gRPC gets them: what is wrong with them it would only say in its log, or
// the other side would, by hanging up.
#pragma once

#include <string>

#include "common/result.h"
#include "proto/credentials.h"

namespace weft::rpc {

struct TlsTexts {
  std::string certificate, key, authority;
};

/// Errors, all naming the file: kInvalidArgument where a text is not PEM of the right kind, or the key is not the
/// certificate's; kFailedPrecondition where the certificate is out of date by this machine's clock.
[[nodiscard]] Status CheckTlsTexts(const TlsFiles& files, const TlsTexts& texts);

/// What the files hold now, looked at. Errors: kInvalidArgument when only some files are named, kNotFound when one cannot be read, and
/// those of CheckTlsTexts.
[[nodiscard]] Result<TlsTexts> ReadTlsTexts(const TlsFiles& files);

}  // namespace weft::rpc

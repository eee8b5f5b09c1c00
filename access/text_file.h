// Small text files that may be replaced while a daemon runs: lists of revoked certificates, tokens, certificates.
#pragma once

#include <string>

#include "common/result.h"

namespace weft::access {

enum class Readers {
  kAnybody,
  kOwner,  ///< neither group nor others may have any right to the file
};

/// Differs when the file does: replaced, rewritten or touched. Empty where there is none.
std::string VersionOf(const std::string& path);

/// The file's text, up to 1 MiB. Errors: kNotFound where it cannot be read; kFailedPrecondition naming its mode where others than
/// `readers` may read it; kInvalidArgument for one that is longer.
[[nodiscard]] Result<std::string> ReadText(const std::string& path, Readers readers = Readers::kAnybody);

}  // namespace weft::access

// Whole files as text, for the parsers of this folder.
#pragma once

#include <string>

#include "common/result.h"

namespace weft::formats {

/// The bytes of the file at `path`. Errors: kNotFound when it is missing; kInvalidArgument when it is a folder or larger
/// than 16 MiB; kFailedPrecondition when it cannot be read. Each names the path.
[[nodiscard]] Result<std::string> ReadFile(const std::string& path);

}  // namespace weft::formats

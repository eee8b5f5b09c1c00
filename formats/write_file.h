// Whole files, written at once.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace weft::formats {

/// Puts `text` into the file at `path`, in place of what was there. Errors: kUnavailable naming the file, which then may hold a part.
[[nodiscard]] Status WriteFile(const std::string& path, std::string_view text);

}  // namespace weft::formats

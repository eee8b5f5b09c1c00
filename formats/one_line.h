// Bytes that nobody vouched for, made fit for a message. Internal to formats/.
#pragma once

#include <string>
#include <string_view>

namespace weft::formats {

/// `text` on one line: at most `most` bytes, every byte outside printable ASCII as '?'.
std::string OneLine(std::string_view text, size_t most = 200);

}  // namespace weft::formats

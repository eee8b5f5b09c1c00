// Invariants of our own code. A failed check is our bug and aborts with file, line and values; it is never for input.
#pragma once

#include <string_view>

namespace weft {

/// Prints `file:line: check failed: condition: message` to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace weft

#define WEFT_CHECK(condition, message)                                             \
  do {                                                                             \
    if (!(condition)) [[unlikely]]                                                 \
      ::weft::CheckFailed(__FILE__, __LINE__, #condition, (message));              \
  } while (false)

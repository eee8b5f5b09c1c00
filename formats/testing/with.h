// A text with one piece of it replaced, for tests of what a reader makes of the change.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace weft::formats::testing {

/// `text` with the first `old` in it replaced; a failure of the test where there is none.
inline std::string With(std::string text, std::string_view old, std::string_view replacement) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return at == std::string::npos ? text : text.replace(at, old.size(), replacement);
}

}  // namespace weft::formats::testing

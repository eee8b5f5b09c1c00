// For tests that stand on a namespace fabric: skips where none can be built, or fails there if the environment variable
// WEFT_REQUIRE (a comma-separated list) names "fabric". For use in SetUp or a test's body. Include after gtest.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "testbed/fabric.h"

namespace weft::testbed {

/// Whether `part` stands in the comma-separated list of the environment variable WEFT_REQUIRE.
inline bool IsRequired(std::string_view part) {
  const char* text = std::getenv("WEFT_REQUIRE");
  std::string_view list = text == nullptr ? "" : text;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == part) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace weft::testbed

#define WEFT_REQUIRE_FABRIC()                                                                           \
  do {                                                                                                  \
    if (const ::weft::Status weft_can = ::weft::testbed::CanBuildFabric(); !weft_can) {                 \
      if (::weft::testbed::IsRequired("fabric")) FAIL() << weft_can.error().message();                  \
      GTEST_SKIP() << weft_can.error().message();                                                       \
    }                                                                                                   \
  } while (false)

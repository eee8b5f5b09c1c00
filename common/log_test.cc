#include "common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ContainsRegex;

TEST(Log, LevelIsNamedAsTheOptionsNameIt) {
  ::testing::internal::CaptureStderr();
  LogWarn("part", "something is odd", {{"count", 3}, {"why", "no reason"}});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("^[0-9-]+T[0-9:.]+ warn  part       something is odd count=3 why=\"no reason\"\n$"));
}

}  // namespace
}  // namespace weft

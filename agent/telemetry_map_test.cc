#include "agent/telemetry_map.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

using ::testing::HasSubstr;

TEST(TelemetryMap, ASegmentOfAnotherUserIsRefused) {
  const TestSegment segment;
  const auto map = TelemetryMap::Attach(segment.Share(), {::getpid(), ::getuid() + 1});
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code(), Code::kUnauthenticated);
  EXPECT_THAT(map.error().message(), HasSubstr("was sent by uid " + std::to_string(::getuid() + 1)));
}

// The host has no room, which says nothing of what the user has.
TEST(TelemetryMap, ASegmentThatCannotBeMappedIsNoUsersQuota) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs address space of its own";
#endif
  const TestSegment segment;
  UniqueFd fd = segment.Share();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit none{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &none), 0);
  const auto map = TelemetryMap::Attach(std::move(fd), {::getpid(), ::getuid()});
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(map);
  EXPECT_THAT(map.error().message(), HasSubstr("map telemetry segment"));
  EXPECT_STREQ(RejectionLabel(map.error().code()), "system");
}

}  // namespace
}  // namespace weft::agent

#include "planner/tasks/schedule_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::planner::inline tasks {
namespace {

using ::testing::HasSubstr;

TEST(ScheduleKind, EveryNameIsParsedBackToItsSchedule) {
  for (const ScheduleKind kind : kAllSchedules) {
    const Result<ScheduleKind> parsed = ParseSchedule(ScheduleName(kind));
    ASSERT_TRUE(parsed) << ScheduleName(kind);
    EXPECT_EQ(*parsed, kind);
  }
}

TEST(ScheduleKind, AnUnknownNameIsRefusedWithAllNames) {
  for (const char* text : {"", "2f2b", "GPipe", "1f1b ", "zb"}) {
    const Result<ScheduleKind> parsed = ParseSchedule(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message(), HasSubstr(std::string("schedule \"") + text + "\""));
    EXPECT_THAT(parsed.error().message(), HasSubstr("gpipe, 1f1b, eager-1f1b, interleaved, zb-h1, zb-h2, zb-v"));
  }
}

}  // namespace
}  // namespace weft::planner::tasks

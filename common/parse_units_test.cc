#include "common/parse_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::HasSubstr;

TEST(ParseUnits, AcceptsSizes) {
  EXPECT_EQ(ParseBytes("1KiB")->count(), 1024);
  EXPECT_EQ(ParseBytes("64 MiB")->count(), 64 << 20);
  EXPECT_EQ(ParseBytes("100MB")->count(), 100'000'000);
  EXPECT_EQ(ParseBytes("8B")->count(), 8);
  EXPECT_EQ(ParseBytes("0")->count(), 0);
}

TEST(ParseUnits, RefusesSizesWithoutAUnit) {
  for (const char* text : {"1024", "", "MiB", "1 Mib", "-4KiB", "1KiBx", "1e300GiB", "nanGiB"}) {
    const auto result = ParseBytes(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(result.error().message(), HasSubstr(text));
  }
}

TEST(ParseUnits, AcceptsRates) {
  EXPECT_EQ(*ParseRate("400Gbit/s"), GigabitsPerSecond(400));
  EXPECT_EQ(*ParseRate("12.5 GB/s"), GigabitsPerSecond(100));
  EXPECT_FALSE(ParseRate("0Gbit/s"));
  EXPECT_FALSE(ParseRate("400"));
}

TEST(ParseUnits, AcceptsDurations) {
  EXPECT_DOUBLE_EQ(ParseDuration("250ms")->count(), 0.25);
  EXPECT_DOUBLE_EQ(ParseDuration("5min")->count(), 300);
  EXPECT_DOUBLE_EQ(ParseDuration("0")->count(), 0);
  EXPECT_FALSE(ParseDuration("60"));
  EXPECT_FALSE(ParseDuration("-1s"));
}

TEST(ParseUnits, FormatsWhatItParses) {
  EXPECT_EQ(FormatBytes(Bytes(64 << 20)), "64MiB");
  EXPECT_EQ(FormatBytes(Bytes(1000)), "1000B");
  EXPECT_EQ(FormatRate(MegabitsPerSecond(150)), "150 Mbit/s");
  EXPECT_EQ(FormatDuration(Seconds(0.0123)), "12.3 ms");
  EXPECT_EQ(FormatDuration(Seconds(999)), "999 s");
  EXPECT_EQ(FormatDuration(Seconds(1200)), "20 min");
  EXPECT_EQ(FormatDuration(Seconds(36700)), "10.2 h");
  EXPECT_EQ(FormatDuration(Seconds(864000)), "10 d");
}

}  // namespace
}  // namespace weft

#include "common/units.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace weft {
namespace {

using namespace literals;

template <typename A, typename B>
concept Addable = requires(A a, B b) { a + b; };

TEST(Units, BytesOverRateIsTime) {
  // 64 MiB = 536,870,912 bit; at 400 Gbit/s: 1.3422 ms.
  EXPECT_NEAR((64_MiB / GigabitsPerSecond(400)).count(), 536870912.0 / 400e9, 1e-15);
}

TEST(Units, RateTimesTimeIsBytes) { EXPECT_EQ((MegabitsPerSecond(8) * Seconds(2)).count(), 2'000'000); }

TEST(Units, GigabytesAreEightGigabits) { EXPECT_EQ(GigabytesPerSecond(50), GigabitsPerSecond(400)); }

TEST(Units, WorkOverRateIsTime) { EXPECT_EQ((Flops(6e12) / FlopsPerSecond(3e12)).count(), 2.0); }

TEST(Units, MeaninglessSumsDoNotCompile) {
  static_assert(!Addable<Bytes, BitsPerSecond>);
  static_assert(!Addable<Bytes, Seconds>);
  static_assert(!Addable<Flops, Bytes>);
  static_assert(!std::is_convertible_v<int64_t, Bytes>);
  static_assert(!std::is_convertible_v<double, BitsPerSecond>);
}

TEST(Units, AreAsLargeAsTheirNumber) {
  static_assert(sizeof(Bytes) == sizeof(int64_t) && sizeof(BitsPerSecond) == sizeof(double));
}

}  // namespace
}  // namespace weft

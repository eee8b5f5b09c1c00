#include "common/fractional_bytes.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace weft {
namespace {

using namespace literals;

TEST(FractionalBytes, KeepWhatWholeBytesRoundAway) {
  const FractionalBytes shard = FractionalBytes(10_B) / 4;
  EXPECT_EQ(shard.count(), 2.5);
  EXPECT_EQ((shard * 4).Truncated(), 10_B);
  EXPECT_EQ(shard.Truncated(), 2_B);
  EXPECT_EQ(0.5 * 5_B, shard) << "not 0, as whole bytes would have it";
}

// 2.5 bytes are 20 bits.
TEST(FractionalBytes, OverRateIsTime) { EXPECT_EQ(FractionalBytes(2.5) / BitsPerSecond(10), Seconds(2)); }

TEST(FractionalBytes, MixWithWholeOnes) {
  EXPECT_EQ(FractionalBytes(1.5) + 1_B, FractionalBytes(2.5));
  EXPECT_EQ(FractionalBytes(6) / 4_B, 1.5);
  EXPECT_LT(2_B, FractionalBytes(2.5));
  static_assert(std::is_convertible_v<Bytes, FractionalBytes> && !std::is_convertible_v<FractionalBytes, Bytes>);
  static_assert(!std::is_convertible_v<double, FractionalBytes>);
}

}  // namespace
}  // namespace weft

#include "controller/slot_ring.h"

#include <gtest/gtest.h>

namespace weft::controller {
namespace {

TEST(SlotRing, SpreadsAnAmountOverTheSlotsThatItCovers) {
  SlotRing ring;
  ring.Add(1.5, 3.5, 100);  // half of slot 1, all of slot 2, half of slot 3
  EXPECT_DOUBLE_EQ(ring.At(1), 25);
  EXPECT_DOUBLE_EQ(ring.At(2), 50);
  EXPECT_DOUBLE_EQ(ring.At(3), 25);
  EXPECT_DOUBLE_EQ(ring.Sum(0, 10), 100);
}

TEST(SlotRing, ForgetsWhatIsOlderThanItHolds) {
  SlotRing ring;
  ring.Add(0, 1, 8);
  ring.Add(40, 41, 4);
  EXPECT_EQ(ring.At(0), 0);
  EXPECT_DOUBLE_EQ(ring.Sum(0, 100), 4);
  ring.Add(2, 3, 7);  // late: before the ring
  EXPECT_DOUBLE_EQ(ring.Sum(0, 100), 4);
}

TEST(SlotRing, KeepsTheNewestPartOfALongSpan) {
  SlotRing ring;
  ring.Add(0, 64, 64);
  EXPECT_NEAR(ring.Sum(0, 100), SlotRing::kSlots - 1, 1e-9);  // the slot that begins at 64 is empty
}

TEST(SlotRing, EmptySpanFallsIntoItsSlot) {
  SlotRing ring;
  ring.Add(5.2, 5.2, 3);
  EXPECT_DOUBLE_EQ(ring.At(5), 3);
}

}  // namespace
}  // namespace weft::controller

#include "access/seats.h"

#include <gtest/gtest.h>

namespace weft::access {
namespace {

using Answer = Seats::Answer;

TEST(Seats, EachAddressHasSoManyAndAllTogetherSoMany) {
  Seats seats(2, 3);
  EXPECT_EQ(seats.Take("a"), Answer::kTaken);
  EXPECT_EQ(seats.Take("a"), Answer::kTaken);
  EXPECT_EQ(seats.Take("a"), Answer::kAddressFull);
  EXPECT_EQ(seats.Take("b"), Answer::kTaken);
  EXPECT_EQ(seats.Take("b"), Answer::kAllFull);
  EXPECT_EQ(seats.Take("c"), Answer::kAllFull);
  seats.Leave("a");
  EXPECT_EQ(seats.Take("c"), Answer::kTaken) << "what was refused has taken none";
  seats.Leave("c");
  EXPECT_EQ(seats.Take("a"), Answer::kTaken);
}

}  // namespace
}  // namespace weft::access

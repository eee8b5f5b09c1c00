#include "controller/move_brake.h"

#include <gtest/gtest.h>

namespace weft::controller {
namespace {

const std::set<std::string> kJobs = {"a", "b"};

TEST(MoveBrake, WhatWasMovedIsMovedAgainForMoreOnly) {
  MoveBrake brake;
  EXPECT_TRUE(brake.Passes(0.01, kJobs, 0, 100)) << "nothing was moved yet";
  EXPECT_FALSE(brake.Passes(0.04, kJobs, 0, 105));
  EXPECT_TRUE(brake.Passes(0.06, kJobs, 0, 110));
  EXPECT_FALSE(brake.Passes(0.06, kJobs, 0, 115)) << "twice as much by now";
  EXPECT_TRUE(brake.Passes(0.3, kJobs, 0, 120)) << "a link that died is worth it";
}

TEST(MoveBrake, ForgetsWithTimeAndWithOtherJobs) {
  MoveBrake brake;
  EXPECT_TRUE(brake.Passes(0.01, kJobs, 0, 100));
  EXPECT_FALSE(brake.Passes(0.03, kJobs, 0, 110));
  EXPECT_TRUE(brake.Passes(0.03, kJobs, 0, 170)) << "after a minute half of it will do";
  EXPECT_FALSE(brake.Passes(0.01, kJobs, 0, 171));
  EXPECT_TRUE(brake.Passes(0.01, {"a"}, 0, 172));
  EXPECT_TRUE(brake.Passes(0.01, kJobs, 0, 173));
  EXPECT_TRUE(brake.Passes(0.01, kJobs, 0, 1000)) << "long ago";
}

TEST(MoveBrake, BeginsAnewWhenALinkGivesSomethingElse) {
  MoveBrake brake;
  EXPECT_TRUE(brake.Passes(0.01, kJobs, 7, 100));
  EXPECT_FALSE(brake.Passes(0.03, kJobs, 7, 110));
  EXPECT_TRUE(brake.Passes(0.03, kJobs, 8, 111));
  EXPECT_FALSE(brake.Passes(0.03, kJobs, 8, 112));
}

TEST(MoveBrake, ToAndFroComesToRest) {
  MoveBrake brake;
  int moved = 0;
  for (int plan = 0; plan < 60; ++plan) moved += brake.Passes(0.055, kJobs, 0, 100 + 5 * plan) ? 1 : 0;
  EXPECT_LE(moved, 8) << "in five minutes, of 60 plans that each promise 5.5 % more";
}

}  // namespace
}  // namespace weft::controller

#include "cli/demo/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DemoReport Report(const Ratio& ratio) {
  JobReport job;
  job.name = "a";
  job.weft_ratio = {.value = 1.02, .low = 1, .high = 1.04, .blocks = 9};
  job.faulted_ratio = ratio;
  job.communication_share = 0.5;
  job.first_loss = 5;
  job.final_loss = 4;
  DemoReport report;
  report.jobs = {job};
  report.replans_after_fault = 1;
  report.links_compared = true;
  return report;
}

TEST(Shortfalls, LinkUseThatIsWrongOrWasNotComparedFallsShort) {
  DemoReport report = Report({.value = 1.02, .low = 1, .high = 1.04, .blocks = 9});
  report.worst_link_disagreement = 0.024;
  EXPECT_THAT(Shortfalls(report), IsEmpty());
  report.worst_link_disagreement = 0.031;
  EXPECT_THAT(Shortfalls(report), ElementsAre("link use is 3.1 % of the line rate off the switches' counters, promised 2.5 %"));
  report.worst_link_disagreement = 0;
  report.links_compared = false;
  EXPECT_THAT(Shortfalls(report), ElementsAre(HasSubstr("was compared with the switches' counters in no phase")));
}

TEST(Shortfalls, OnlyAWholeIntervalOverThePromiseFallsShort) {
  const DemoReport slow = Report({.value = 1.152, .low = 1.11, .high = 1.2, .blocks = 9});
  EXPECT_THAT(Shortfalls(slow),
              ElementsAre("a with Weft after the faults: +15.2 % (+11.0 to +20.0) over the bound in 9 blocks, promised 10 %"));
  EXPECT_THAT(Undecided(slow), IsEmpty());
  const DemoReport open = Report({.value = 1.152, .low = 1.05, .high = 1.2, .blocks = 9});
  EXPECT_THAT(Shortfalls(open), IsEmpty());
  EXPECT_THAT(Undecided(open), ElementsAre(HasSubstr("+15.2 % (+5.0 to +20.0)")));
}

TEST(Shortfalls, WhatWasNotMeasuredIsNoSuccess) {
  EXPECT_THAT(Shortfalls(Report({})), ElementsAre("a with Weft after the faults: not measured"));
}

TEST(Shortfalls, AJobThatTrainsNothingHasNoLoss) {
  DemoReport report = Report({.value = 1.02, .low = 1, .high = 1.04, .blocks = 9});
  report.jobs[0].first_loss = report.jobs[0].final_loss = 0;
  EXPECT_THAT(Shortfalls(report), IsEmpty());
  report.jobs[0].first_loss = report.jobs[0].final_loss = 4;
  EXPECT_THAT(Shortfalls(report), ElementsAre("a: loss went from 4 to 4"));
}

TEST(Shortfalls, LoopbackHasNoBound) {
  DemoReport report = Report({});
  report.fabric_real = false;
  EXPECT_THAT(Shortfalls(report), IsEmpty());
}

}  // namespace
}  // namespace weft::cli

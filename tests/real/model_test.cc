#include "tests/real/model.h"

#include <gtest/gtest.h>

namespace weft::real {
namespace {

/// Two jobs of two hosts at 8 Mbit/s: 1 MB is one second. They compute for 2 s and 2.2 s.
Model TwoJobs() {
  return MakeModel({.hosts_per_leaf = 2},
                   {{.name = "a", .hosts = {"h1", "h3"}, .compute = Seconds(2), .bytes = Bytes(1'000'000)},
                    {.name = "b", .hosts = {"h2", "h4"}, .compute = Seconds(2.2), .bytes = Bytes(1'000'000)}},
                   MegabitsPerSecond(8));
}

TEST(RealModel, AllFlowsGoOverTheSpineThatWasDrawn) {
  const Model model = TwoJobs();
  const planner::JobPaths drawn = AllOver(model, 2);
  for (size_t job = 0; job < 2; ++job) {
    for (size_t flow = 0; flow < 2; ++flow) EXPECT_EQ(SpineOf(model, job, flow, drawn[job][flow]), "spine2");
  }
}

TEST(RealModel, JobsThatCollideAreSlowerAndJobsApartAreNot) {
  const Model model = TwoJobs();
  Decision decision{AllOver(model, 1), {1, 1}, std::nullopt};
  const std::vector<Seconds> together = Predict(model, decision, {Seconds(0), Seconds(0)}, Seconds(60));
  EXPECT_GT(together[0].count(), 3.05);
  decision.paths[1] = AllOver(model, 2)[1];
  const std::vector<Seconds> apart = Predict(model, decision, {Seconds(0), Seconds(0)}, Seconds(60));
  EXPECT_NEAR(apart[0].count(), 3, 1e-6);
  EXPECT_NEAR(apart[1].count(), 3.2, 1e-6);
}

TEST(RealModel, ShiftedJobsMeetNeverAndKeepThePeriod) {
  const Model model = TwoJobs();
  Decision decision{AllOver(model, 1), {1, 1}, std::nullopt};
  decision.shifts = PlanShifts(model, decision.paths);
  EXPECT_EQ(decision.shifts->gated, (std::vector<bool>{true, true}));
  EXPECT_GT(decision.shifts->period.count(), 3.2) << "room to catch up";
  EXPECT_NEAR(decision.shifts->score, 1, 1e-9);
  for (const Seconds iteration : Predict(model, decision, decision.shifts->shift, Seconds(60))) {
    EXPECT_NEAR(iteration.count(), decision.shifts->period.count(), 1e-6);
  }
}

TEST(RealModel, JobsThatDoNotMeetGetNoWindow) {
  const Model model = TwoJobs();
  planner::JobPaths paths = AllOver(model, 1);
  paths[1] = AllOver(model, 2)[1];
  EXPECT_EQ(PlanShifts(model, paths).gated, (std::vector<bool>{false, false}));
}

TEST(RealModel, PhasesAreDrawnAlikeFromOneSeed) {
  const Model model = TwoJobs();
  const planner::JobPaths paths = AllOver(model, 1);
  const Shifts one = DrawPhases(model, paths, 7);
  EXPECT_EQ(one.shift, DrawPhases(model, paths, 7).shift);
  EXPECT_NE(one.shift, DrawPhases(model, paths, 8).shift);
  for (const Seconds shift : one.shift) EXPECT_LE(shift, one.period);
}

TEST(RealModel, TheBetterClassIsFasterForIt) {
  const Model model = TwoJobs();
  const planner::JobPaths paths = AllOver(model, 1);
  const std::vector<int32_t> classes = PlanClasses(model, paths);
  ASSERT_NE(classes[0], classes[1]);
  const size_t first = classes[0] < classes[1] ? 0 : 1;
  const std::vector<Seconds> jobs = Predict(model, {paths, classes, std::nullopt}, {Seconds(0), Seconds(0)}, Seconds(90));
  EXPECT_NEAR(jobs[first].count(), first == 0 ? 3 : 3.2, 0.01);
}

}  // namespace
}  // namespace weft::real

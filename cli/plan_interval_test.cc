#include "cli/plan_interval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/workload/model_presets.h"

namespace weft::cli {
namespace {

planner::JobSpec Job(const char* model) {
  return {.name = "j", .model = planner::FindModelPreset(model).value(), .global_batch = 64, .sequence = 2048,
          .precision = planner::Precision::kBf16, .gpus = 8};
}

planner::Prediction TwoSeconds() {
  planner::Prediction predicted;
  predicted.iteration = Seconds(2);
  predicted.memory.parameters = Bytes(1'000'000'000);
  return predicted;
}

// Nine of ten measured values lie in the wide one, half of them in the narrow one inside it.
TEST(IntervalJson, NarrowsWithItsShare) {
  for (const char* model : {"llama3-8b", "mixtral-8x7b"}) {
    const nlohmann::json wide = IntervalJson(Job(model), TwoSeconds(), 0.9), half = IntervalJson(Job(model), TwoSeconds(), 0.5);
    for (const char* what : {"iteration_s", "memory_bytes"}) {
      EXPECT_LT(wide[what][0].get<double>(), half[what][0].get<double>()) << model << what;
      EXPECT_LT(half[what][0].get<double>(), half[what][1].get<double>()) << model << what;
      EXPECT_LT(half[what][1].get<double>(), wide[what][1].get<double>()) << model << what;
    }
    EXPECT_LT(wide["iteration_s"][0].get<double>(), 2);
    EXPECT_GT(wide["iteration_s"][1].get<double>(), 2);
    EXPECT_TRUE(wide["memory_bytes"][0].is_number_integer());
  }
}

TEST(IntervalJson, OfMixturesIsTheirOwn) {
  EXPECT_NE(IntervalJson(Job("llama3-8b"), TwoSeconds(), 0.9), IntervalJson(Job("mixtral-8x7b"), TwoSeconds(), 0.9));
}

TEST(DurationText, SaysHowFarOffItMayBe) {
  EXPECT_THAT(DurationText(Job("llama3-8b").model, Seconds(2)), testing::MatchesRegex("2 s -[0-9]+ \\+[0-9]+ %"));
}

}  // namespace
}  // namespace weft::cli

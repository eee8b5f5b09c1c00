#include "runtime/program_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft::runtime {
namespace {

using ::testing::HasSubstr;

RankPlanned Planned(double iteration) {
  return {.iteration = Seconds(iteration),
          .parts = planner::StepParts{.compute = Seconds(0.5), .exposed = Seconds(0.125), .bubble = Seconds(iteration - 0.625)},
          .peak = Bytes(1000)};
}

TEST(PredictionLine, TheIterationIsTheSlowestRanks) {
  const auto line = nlohmann::json::parse(PredictionLine({Planned(0.75), Planned(1), Planned(0.75)}, OutputFormat::kJson));
  EXPECT_EQ(line["prediction"]["iteration_s"], 1);
  ASSERT_EQ(line["prediction"]["ranks"].size(), 3);
  EXPECT_EQ(line["prediction"]["ranks"][1], nlohmann::json::parse(R"({"compute_s": 0.5, "exposed_communication_s": 0.125,
      "bubble_s": 0.375, "iteration_s": 1, "peak_bytes": 1000})"));
}

TEST(PredictionLine, WithoutACalibrationThereIsTheMemoryAlone) {
  const std::vector<RankPlanned> ranks = {{.iteration = {}, .parts = {}, .peak = Bytes(7)}};
  EXPECT_EQ(PredictionLine(ranks, OutputFormat::kJson), R"({"prediction":{"ranks":[{"peak_bytes":7}]}})");
  EXPECT_THAT(PredictionLine(ranks, OutputFormat::kTable), HasSubstr("planned            -"));
}

}  // namespace
}  // namespace weft::runtime

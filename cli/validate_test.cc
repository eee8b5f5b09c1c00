#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/validate.h"
#include "cli/validate_summary.h"
#include "common/exit_code.h"

namespace weft::cli {
namespace {

using testing::HasSubstr;

RowPrediction Point(std::string sweep, std::string setting, double measured, double predicted) {
  RowPrediction row;
  row.file = "t.csv";
  row.kind = "time";
  row.sweep = std::move(sweep);
  row.setting = std::move(setting);
  row.measured = measured;
  row.predicted = predicted;
  return row;
}

// Nearest rank: of five the third, and the fifth.
TEST(Summarise, TakesRanks) {
  const ErrorSummary summary = Summarise({0.5, 0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(summary.rows, 5);
  EXPECT_DOUBLE_EQ(summary.median, 0.3);
  EXPECT_DOUBLE_EQ(summary.p90, 0.5);
  EXPECT_DOUBLE_EQ(summary.worst, 0.5);
  EXPECT_DOUBLE_EQ(summary.mean, 0.3);
  EXPECT_EQ(Summarise({}).rows, 0);
}

// Three pairs, one of them the wrong way round: (2 - 1) / 3. The predicted best took 11 where 10 was possible.
TEST(SummariseOrder, CountsPairsAndRegret) {
  const std::vector<RowPrediction> rows = {Point("a", "x", 11, 1), Point("a", "y", 10, 2), Point("a", "z", 12, 3)};
  const OrderSummary order = SummariseOrder(rows);
  EXPECT_EQ(order.sweeps, 1);
  EXPECT_NEAR(order.kendall_tau, 1.0 / 3, 1e-12);
  EXPECT_NEAR(order.regret, 0.1, 1e-12);
}

TEST(SummariseOrder, AveragesRepetitionsAndSweeps) {
  const std::vector<RowPrediction> rows = {Point("a", "x", 10, 1), Point("a", "x", 14, 1), Point("a", "y", 13, 2),
                                           Point("b", "x", 1, 2),  Point("b", "y", 2, 1),  Point("c", "x", 5, 5)};
  const OrderSummary order = SummariseOrder(rows);
  EXPECT_EQ(order.sweeps, 2) << "a sweep of one setting orders nothing";
  EXPECT_NEAR(order.kendall_tau, 0, 1e-12) << "+1 and -1";
  EXPECT_NEAR(order.regret, 0.5, 1e-12) << "0 and 1";
}

// 10 and 10.1 are not told apart; of the two pairs that are, one is ordered alike: 0. All three: (1 - 2) / 3.
TEST(SummariseSweeps, TellsEachSweepsRegretAndItsDistinctOrder) {
  std::vector<RowPrediction> rows = {Point("a", "x", 10, 2), Point("a", "y", 10.1, 1), Point("a", "z", 20, 1.5),
                                     Point("b", "x", 10, 2), Point("b", "y", 10.1, 1)};
  for (size_t i = 0; i < rows.size(); ++i) rows[i].line = static_cast<int64_t>(i) + 2;
  const std::vector<SweepSummary> sweeps = SummariseSweeps(rows);
  ASSERT_EQ(sweeps.size(), 2U);
  EXPECT_EQ(sweeps[0].settings, 3);
  EXPECT_EQ(sweeps[0].distinct_pairs, 2);
  EXPECT_NEAR(sweeps[0].distinct_tau, 0, 1e-12);
  EXPECT_NEAR(sweeps[0].kendall_tau, -1.0 / 3, 1e-12);
  EXPECT_NEAR(sweeps[0].regret, 0.01, 1e-12);
  EXPECT_EQ(sweeps[0].picked_line, 3);
  EXPECT_EQ(sweeps[0].best_line, 2);
  EXPECT_EQ(sweeps[1].distinct_pairs, 0);
  EXPECT_NEAR(sweeps[1].kendall_tau, -1, 1e-12);
  const OrderSummary order = SummariseOrder(rows);
  EXPECT_EQ(order.small_regret, 2);
  EXPECT_EQ(order.distinct_sweeps, 1);
}

class ValidateCommand : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) {
    const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weft_validate_test";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }
};

TEST_F(ValidateCommand, ListsEveryRowOrItsReason) {
  const std::string table = File("t.csv",
      "source,model,params_b,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq,experts,topk,gpu,gpus,gpus_per_node,tp,pp,"
      "dp,ep,cp,vpp,zero_stage,micro_batch,global_batch,recompute,seq_parallel,measured_metric,measured_value,unit,notes\r\n"
      "s,Llama-3-8B,8,32,4096,14336,32,8,128256,8192,,,H100-80GB,8,8,1,1,8,1,1,1,3,1,8,full,,iteration_time,2,s,\r\n"
      "s,Llama-3-8B,8,32,4096,14336,32,8,128256,8192,,,Abacus,8,8,1,1,8,1,1,1,3,1,8,full,,iteration_time,2,s,\r\n");
  testing::internal::CaptureStdout();
  ASSERT_EQ(RunValidate({.tables = {table}, .output = "json"}), kExitDone);
  const auto answer = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  ASSERT_EQ(answer["rows"].size(), 1U);
  for (const char* key : {"file", "source", "model", "metric", "bytes", "measured", "predicted", "error"}) {
    EXPECT_TRUE(answer["rows"][0].contains(key)) << key;
  }
  EXPECT_NEAR(answer["rows"][0]["error"].get<double>(), answer["rows"][0]["predicted"].get<double>() / 2 - 1, 1e-12);
  ASSERT_EQ(answer["skipped"].size(), 1U);
  EXPECT_EQ(answer["skipped"][0]["row"], 3);
  EXPECT_THAT(answer["skipped"][0]["reason"].get<std::string>(), HasSubstr("GPU \"Abacus\" unknown"));
  EXPECT_EQ(answer["by_file"][0]["class"], "time");
  EXPECT_EQ(answer["summary"]["rows"], 1);
}

// A fit asks for many at once: the rows are those of one, and so are the predictions.
TEST_F(ValidateCommand, PredictsForSeveralCalibrationsSideBySide) {
  const std::string table = std::string(WEFT_VALIDATION) + "/llama3_paper.csv";
  const auto answer_of = [&](const std::vector<std::string>& calibrations) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(RunValidate({.tables = {table}, .output = "json", .calibrations = calibrations}), kExitDone);
    return nlohmann::json::parse(testing::internal::GetCapturedStdout());
  };
  std::ifstream in(WEFT_CALIBRATION_YAML);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string compiled = File("compiled.yaml", text);
  const size_t at = text.find("name: gpu.h100.gemm16, value: ") + 30;
  const std::string slower = File("slower.yaml", text.replace(at, text.find(',', at) - at, "0.4"));
  const auto one = answer_of({compiled}), two = answer_of({compiled, slower});
  ASSERT_EQ(two["rows"].size(), one["rows"].size());
  ASSERT_EQ(two["predicted"].size(), 2U);
  for (size_t i = 0; i < one["rows"].size(); ++i) {
    EXPECT_EQ(two["predicted"][0][i], one["rows"][i]["predicted"]);
    EXPECT_GT(two["predicted"][1][i].get<double>(), 1.2 * one["rows"][i]["predicted"].get<double>());
  }
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunValidate({.tables = {table}, .calibrations = {compiled, slower}}), kExitUsage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("expected json"));
}

// Priced from the links up by what the search asks.
TEST_F(ValidateCommand, PublishedCollectivesAreWithinWhatDocsSay) {
  testing::internal::CaptureStdout();
  const std::string folder = WEFT_VALIDATION;
  ASSERT_EQ(RunValidate({.tables = {folder + "/collectives.csv", folder + "/collective_efficiency.csv"}, .output = "json"}), kExitDone);
  const auto answer = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(answer["rows"].size(), 132U);
  EXPECT_EQ(answer["skipped"].size(), 4U + 143U);
  for (const auto& file : answer["by_file"]) {
    if (file["class"] != "collective") continue;
    EXPECT_LE(file["median"].get<double>(), 0.16);
    EXPECT_LE(file["p90"].get<double>(), 0.55);
  }
}

TEST_F(ValidateCommand, OtherTablesAloneAreAnErrorWithTheReason) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunValidate({.tables = {File("c.csv", "source,gpu,busbw\r\nx,y,1\r\n")}, .output = "json"}), kExitUsage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no row to compare, expected a table of measurements such as "
                                                                "tests/validation/*.csv: c.csv: no table of training"));
}

TEST_F(ValidateCommand, AMissingFileIsAnError) {
  testing::internal::CaptureStderr();
  EXPECT_NE(RunValidate({.tables = {"/nowhere/t.csv"}}), kExitDone);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("/nowhere/t.csv"));
}

}  // namespace
}  // namespace weft::cli

#include "cli/calibrate_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "cli/validate_tables.h"
#include "formats/calibration_yaml.h"
#include "formats/read_file.h"

namespace weft::cli {
namespace {

class CalibrateRuns : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ / name; }

  /// Lines of a published table: the header, and every row that `takes` wants, its number from 0.
  template <typename Takes>
  std::string Part(const std::string& table, const std::string& name, Takes takes) {
    std::ifstream in(std::string(WEFT_VALIDATION) + "/" + table);
    std::string line, text;
    for (int number = -1; std::getline(in, line); ++number) {
      if (number < 0 || takes(number, line)) text += line + "\n";
    }
    std::ofstream(Path(name)) << text;
    return Path(name);
  }

  static double MedianError(const std::string& table, const planner::Calibration& calibration) {
    Validation all;
    EXPECT_TRUE(AddTable(table, calibration, false, all));
    std::vector<double> errors;
    for (const RowPrediction& row : all.rows) errors.push_back(std::abs(row.error()));
    EXPECT_FALSE(errors.empty());
    std::sort(errors.begin(), errors.end());
    return errors[(errors.size() - 1) / 2];
  }

  std::filesystem::path folder_;
};

// Three runs of one site make its others better predicted. BLOOM's are all too fast by 10 %.
TEST_F(CalibrateRuns, ThreeRunsSaySomethingOfTheOthers) {
  const auto is_time = [](const std::string& line) { return line.find("iteration_time") != std::string::npos; };
  const auto is_run = [&](int number, const std::string& line) { return number % 35 == 0 && is_time(line); };
  const std::string runs = Part("bloom_a100.csv", "runs.csv", is_run);
  const std::string others =
      Part("bloom_a100.csv", "others.csv", [&](int number, const std::string& line) { return is_time(line) && !is_run(number, line); });
  const Status done = CalibrateFromRuns({.tables = {runs}, .out = Path("learned.yaml")});
  ASSERT_TRUE(done) << done.error().message();
  const auto learned = formats::ReadMeasuredConstants(Path("learned.yaml"));
  ASSERT_TRUE(learned) << learned.error().message();
  EXPECT_FALSE(learned->empty());
  const double before = MedianError(others, planner::Calibration()), now = MedianError(others, planner::Calibration().With(*learned));
  EXPECT_GT(before, 0.06);
  EXPECT_LT(now, 0.05);
}

// What the file to begin with says of things that no run tells about is written again.
TEST_F(CalibrateRuns, KeepsWhatItBeginsWith) {
  std::ofstream(Path("begin.yaml")) << "version: 1\nconstants:\n"
                                       "  - {name: gpu.v100.gemm16, value: 0.5, least: 0.3, most: 0.97, fitted: true, source: \"here\"}\n"
                                       "  - {name: operation.forward, value: 0.001, least: 0, most: 1, fitted: true, source: \"here\"}\n";
  const std::string runs = Part("bloom_a100.csv", "runs.csv", [](int number, const std::string&) { return number < 3; });
  const Status done = CalibrateFromRuns({.tables = {runs}, .calibration = Path("begin.yaml"), .out = Path("learned.yaml")});
  ASSERT_TRUE(done) << done.error().message();
  const auto learned = formats::ReadMeasuredConstants(Path("learned.yaml"));
  ASSERT_TRUE(learned) << learned.error().message();
  const auto value = [&](const std::string& name) {
    const auto found = std::ranges::find(*learned, name, &planner::MeasuredConstant::name);
    return found == learned->end() ? -1 : found->value;
  };
  EXPECT_EQ(value("gpu.v100.gemm16"), 0.5);
  EXPECT_EQ(value("operation.forward"), 0.001);
}

TEST_F(CalibrateRuns, SaysWhatIsWrong) {
  const auto error = [](const CalibrateRunsOptions& options) {
    const Status done = CalibrateFromRuns(options);
    return done ? std::string() : done.error().message();
  };
  EXPECT_THAT(error({.tables = {Path("none.csv")}}), testing::HasSubstr("none.csv"));
  std::ofstream(Path("other.csv")) << "a,b\n1,2\n";
  EXPECT_THAT(error({.tables = {Path("other.csv")}}), testing::HasSubstr("no column measured_metric"));
  const std::string fits = Part("new/oom_reports.csv", "fits.csv", [](int number, const std::string&) { return number == 0; });
  EXPECT_THAT(error({.tables = {fits}}), testing::HasSubstr("whether it fits"));
  const std::string runs = Part("bloom_a100.csv", "runs.csv", [](int number, const std::string&) { return number < 3; });
  EXPECT_THAT(error({.tables = {runs}, .out = "/nowhere/learned.yaml"}), testing::HasSubstr("/nowhere/learned.yaml: cannot be written"));
}

}  // namespace
}  // namespace weft::cli

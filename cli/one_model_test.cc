// One model: what `weft validate` compares with a measurement is what `weft plan` plans by. Every row of tests/validation/ that
// is predicted is planned again, by its stack's own description with every variable fixed, and must come out the same to the
// last bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "cli/validate_predict.h"
#include "formats/calibration_yaml.h"
#include "formats/read_file.h"
#include "formats/validation_case.h"
#include "formats/validation_csv.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

using planner::MemoryUse;

planner::FixedVariables AllFixed(const planner::Strategy& strategy) {
  planner::FixedVariables fixed;
  for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
    fixed.emplace(variable.name, variable.get(strategy));
  }
  return fixed;
}

bool Same(const MemoryUse& a, const MemoryUse& b) {
  return a.parameters == b.parameters && a.gradients == b.gradients && a.optimizer == b.optimizer &&
         a.activations == b.activations && a.transient == b.transient && a.fragmentation == b.fragmentation &&
         a.context == b.context;
}

/// What became of the rows.
struct Tally {
  int64_t same = 0, roomy = 0;
  std::map<std::string, int64_t> listed;  ///< "FILE: reason" of those that cannot be stated to a planner
  std::vector<std::string> different;
};

/// A reason up to what explains it: rows that break the same rule are counted together.
std::string Kind(const std::string& reason) { return reason.substr(0, std::min(reason.find(": "), size_t{100})); }

void Compare(const formats::ValidationRow& row, const std::string& file, Tally& tally) {
  const auto predicted = PredictRow(row, file, planner::Calibration());
  if (!predicted) return;  // `weft validate` skips it
  const formats::ValidationCase question = formats::MakeValidationCase(row).value();
  const planner::PlanOptions options{.fix = AllFixed(predicted->strategy), .framework = question.framework, .risk = std::nullopt};
  planner::ClusterSpec cluster = question.cluster;
  auto answer = planner::Plan(question.job, cluster, options);
  if (!answer) {
    ++tally.listed[fmt::format("{}: {}", file, Kind(answer.error().message()))];
    return;
  }
  const bool small = answer->plans.empty() && !answer->infeasible.empty() && answer->infeasible[0].starts_with("memory: ");
  if (small) {
    // Measured all the same: the price of what is predicted not to fit shows on a device with more memory.
    cluster.device.memory = Bytes(int64_t{1} << 50);
    answer = planner::Plan(question.job, cluster, options);
  }
  if (answer->plans.empty()) {
    const auto why = planner::WhyCannotRun(question.framework, {question.job, cluster, predicted->strategy});
    ++tally.listed[fmt::format("{}: {}", file, why ? Kind(*why) : Kind(answer->infeasible.at(0)))];
    return;
  }
  const planner::JobPlan& plan = answer->plans.front();
  const bool same = plan.strategy == predicted->strategy && plan.predicted.iteration == predicted->estimate.iteration &&
                    Same(plan.predicted.memory, predicted->estimate.memory);
  ++(small ? tally.roomy : tally.same);
  if (!same) {
    tally.different.push_back(fmt::format("{}:{}: {} s and {}, validated {} s and {}", file, row.line,
                                          plan.predicted.iteration.count(), plan.predicted.memory.total().count(),
                                          predicted->estimate.iteration.count(), predicted->estimate.memory.total().count()));
  }
}

TEST(OneModel, PlansWhatItValidates) {
  std::vector<std::filesystem::path> tables;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_VALIDATION)) {
    if (entry.path().extension() == ".csv") tables.push_back(entry.path());
  }
  std::sort(tables.begin(), tables.end());
  ASSERT_GT(tables.size(), 10U);
  Tally tally;
  for (const std::filesystem::path& path : tables) {
    const std::string text = formats::ReadFile(path.string()).value();
    if (!formats::IsTrainingTable(text)) continue;
    const std::vector<formats::ValidationRow> rows = formats::ParseValidationCsv(text, path.string()).value();
    for (const formats::ValidationRow& row : rows) {
      Compare(row, path.filename().string(), tally);
    }
  }
  EXPECT_THAT(tally.different, testing::IsEmpty());
  EXPECT_GE(tally.same + tally.roomy, 300);
  int64_t listed = 0;
  for (const auto& [reason, rows] : tally.listed) {
    fmt::print("cannot be stated: {} row(s) of {}\n", rows, reason);
    listed += rows;
  }
  fmt::print("{} rows planned as validated, {} of them on a device with room for what is predicted not to fit; {} listed\n",
             tally.same + tally.roomy, tally.roomy, listed);
  EXPECT_LE(listed, (tally.same + tally.roomy) / 20) << "the exception, not the rule";
}

}  // namespace
}  // namespace weft::cli

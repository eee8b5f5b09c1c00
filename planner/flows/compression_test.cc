#include "planner/flows/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace weft::planner::inline flows {
namespace {

using testing::ElementsAre;

CompressionProblem Random(uint32_t seed) {
  std::mt19937 random(seed);
  CompressionProblem problem;
  const size_t jobs = 2 + random() % 5;
  problem.classes = static_cast<int32_t>(1 + random() % 4);
  for (size_t i = 0; i < jobs; ++i) problem.weight.push_back(1 + random() % 100);
  for (size_t i = 0; i < jobs; ++i) {
    for (size_t j = i + 1; j < jobs; ++j) {
      if (random() % 3 != 0) problem.contentions.push_back({i, j});
    }
  }
  return problem;
}

bool KeepsContentions(const CompressionProblem& problem, const std::vector<int32_t>& classes) {
  for (const Contention& c : problem.contentions) {
    if (classes[c.first] > classes[c.second]) return false;
  }
  return true;
}

/// Least loss over all assignments that `allowed` lets pass.
template <typename Allowed>
double LeastLoss(const CompressionProblem& problem, Allowed allowed) {
  std::vector<int32_t> classes(problem.weight.size(), 0);
  double least = 1e300;
  for (;;) {
    if (allowed(classes)) least = std::min(least, CompressionLoss(problem, classes));
    size_t i = 0;
    for (; i < classes.size() && classes[i] + 1 == problem.classes; ++i) classes[i] = 0;
    if (i == classes.size()) return least;
    ++classes[i];
  }
}

// Intensities 5, 4, 1, all meet, two classes: {a} {b c} loses 4, {a b} {c} loses 5.
TEST(CompressOrder, CutsWhereTheLeastIsLost) {
  const CompressionProblem problem{{5, 4, 1}, {{0, 1}, {0, 2}, {1, 2}}, 2};
  EXPECT_THAT(CompressOrder(problem), ElementsAre(0, 1, 1));
  EXPECT_EQ(CompressionLoss(problem, CompressOrder(problem)), 4);
}

TEST(CompressOrder, EqualsEnumerationOfAscendingClasses) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const CompressionProblem problem = Random(seed);
    const std::vector<int32_t> classes = CompressOrder(problem);
    EXPECT_TRUE(std::is_sorted(classes.begin(), classes.end())) << seed;
    EXPECT_EQ(CompressionLoss(problem, classes),
              LeastLoss(problem, [](const auto& c) { return std::is_sorted(c.begin(), c.end()); })) << seed;
  }
}

// a-b and c-d meet, nobody else: two classes lose nothing, but no cut of the order a b c d does that.
TEST(CompressPriorities, JobsThatNeverMeetNeedNoOrder) {
  const CompressionProblem problem{{4, 3, 2, 1}, {{0, 1}, {2, 3}}, 2};
  EXPECT_EQ(CompressionLoss(problem, CompressPriorities(problem)), 0);
  EXPECT_EQ(CompressionLoss(problem, CompressOrder(problem)), 2) << "a | b c d";
}

TEST(CompressPriorities, EqualsEnumerationOfAllClassesThatKeepContentions) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const CompressionProblem problem = Random(seed);
    const std::vector<int32_t> classes = CompressPriorities(problem);
    EXPECT_TRUE(KeepsContentions(problem, classes)) << seed;
    EXPECT_LE(*std::max_element(classes.begin(), classes.end()), problem.classes - 1) << seed;
    EXPECT_EQ(CompressionLoss(problem, classes),
              LeastLoss(problem, [&](const auto& c) { return KeepsContentions(problem, c); })) << seed;
  }
}

TEST(CompressPriorities, NoJobsAndOneClassAreAnswered) {
  EXPECT_TRUE(CompressPriorities({{}, {}, 8}).empty());
  EXPECT_THAT(CompressPriorities({{3, 2}, {{0, 1}}, 1}), ElementsAre(0, 0));
  EXPECT_THAT(CompressOrder({{3, 2}, {{0, 1}}, 1}), ElementsAre(0, 0));
}

}  // namespace
}  // namespace weft::planner::flows

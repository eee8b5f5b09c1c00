#include "planner/parallelism/layer_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Enumerate(const ChainProblem& problem, const std::vector<const LayerRun*>& layers, size_t l,
                 const LayerOption* before, int64_t budget) {
  if (budget < 0) return kInfinity;
  if (l == layers.size()) return 0;
  double best = kInfinity;
  for (const LayerOption& option : layers[l]->options) {
    double time = option.time + Enumerate(problem, layers, l + 1, &option, budget - option.memory);
    if (before != nullptr && !problem.relayout.empty()) {
      time += problem.relayout[before->layout * problem.layouts + option.layout];
    }
    best = std::min(best, time);
  }
  return best;
}

double Enumerate(const ChainProblem& problem) {
  std::vector<const LayerRun*> layers;
  for (const LayerRun& run : problem.runs) layers.insert(layers.end(), static_cast<size_t>(run.count), &run);
  return Enumerate(problem, layers, 0, nullptr, problem.budget);
}

// Four layers; fast holds 4 bytes for 1 s, lean 1 byte for 2 s, a change costs 0.5 s. With 10 bytes two layers can be
// fast (4+4+1+1), next to each other: 2·1 + 2·2 + 0.5.
TEST(LayerChain, LayersOfOneStrategyLieTogether) {
  ChainProblem problem{.runs = {{{{1, 4, 0}, {2, 1, 1}}, 4}}, .layouts = 2, .relayout = {0, 0.5, 0.5, 0}, .budget = 10};
  const ChainAnswer answer = SolveLayerChain(problem, {});
  ASSERT_TRUE(answer.feasible);
  EXPECT_DOUBLE_EQ(answer.time, 6.5);
  EXPECT_EQ(answer.memory, 10);
  EXPECT_EQ(answer.option[1] == answer.option[0], answer.option[2] == answer.option[3]);
  // Where the change costs more than it brings, all stay lean.
  problem.relayout = {0, 3, 3, 0};
  EXPECT_DOUBLE_EQ(SolveLayerChain(problem, {}).time, 8);
  problem.budget = 3;
  EXPECT_FALSE(SolveLayerChain(problem, {}).feasible);
  EXPECT_EQ(SolveLayerChain(problem, {}).lower_bound, kInfinity);
}

TEST(LayerChain, EqualsEnumerationOnRandomChains) {
  std::mt19937 random(23);
  int feasible = 0;
  for (int round = 0; round < 1500; ++round) {
    ChainProblem problem;
    problem.layouts = 1 + random() % 3;
    if (round % 5 != 0) {
      for (size_t i = 0; i < problem.layouts * problem.layouts; ++i) {
        problem.relayout.push_back(i % (problem.layouts + 1) == 0 ? 0 : static_cast<double>(random() % 6));
      }
    }
    int64_t most = 0;
    const unsigned range = round % 2 == 0 ? 6 : 300;
    for (size_t r = 0; r < 1 + random() % 2; ++r) {
      LayerRun run{.options = {}, .count = static_cast<int64_t>(1 + random() % 4)};
      for (size_t k = 0; k < 1 + random() % 3; ++k) {
        run.options.push_back({static_cast<double>(random() % range), static_cast<int64_t>(random() % range),
                               random() % problem.layouts});
        most += run.options.back().memory * run.count;
      }
      problem.runs.push_back(run);
    }
    problem.budget = static_cast<int64_t>(random() % static_cast<unsigned>(most + 1));
    const double expected = Enumerate(problem);
    const ChainAnswer answer = SolveLayerChain(problem, {});
    ASSERT_EQ(answer.feasible, expected != kInfinity) << round;
    if (!answer.feasible) continue;
    ++feasible;
    ASSERT_NEAR(answer.time, expected, 1e-9) << round;
    ASSERT_LE(answer.memory, problem.budget);
    ASSERT_LE(answer.lower_bound, answer.time + 1e-9);
  }
  EXPECT_GT(feasible, 700);
}

// Sixteen options, 64 layers of two kinds: proved, and fuller memory is never slower.
TEST(LayerChain, ALongChainIsProved) {
  ChainProblem problem{.layouts = 4};
  problem.relayout.assign(16, 3e-4);
  for (size_t i = 0; i < 4; ++i) problem.relayout[i * 5] = 0;
  std::mt19937 random(9);
  for (int run = 0; run < 2; ++run) {
    LayerRun layers{.options = {}, .count = 32};
    for (size_t k = 0; k < 16; ++k) {
      const auto memory = static_cast<int64_t>(random() % 1000) * 1'000'003;
      layers.options.push_back({4e-3 - 2e-12 * static_cast<double>(memory) + 1e-6 * static_cast<double>(random() % 500),
                                memory, k % 4});
    }
    problem.runs.push_back(layers);
  }
  double last = kInfinity;
  for (int64_t budget = 20'000'000'000; budget <= 60'000'000'000; budget += 10'000'000'000) {
    problem.budget = budget;
    const ChainAnswer answer = SolveLayerChain(problem, {.tolerance = 1e-6});
    ASSERT_TRUE(answer.feasible);
    EXPECT_TRUE(answer.complete) << budget;
    EXPECT_LE(answer.time, last * (1 + 2e-6));
    EXPECT_NEAR(answer.lower_bound / answer.time, 1, 2e-6);
    last = answer.time;
  }
}

}  // namespace
}  // namespace weft::planner::parallelism

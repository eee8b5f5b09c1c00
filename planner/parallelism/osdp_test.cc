#include "planner/parallelism/osdp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "planner/parallelism/choice_knapsack.h"

namespace weft::planner {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// By trying every combination of choices of single items.
struct Enumeration {
  double best = kInfinity;
  void Try(const std::vector<std::vector<Choice>>& items, size_t i, double time, int64_t memory, int64_t peak,
           int64_t budget) {
    if (memory + peak > budget) return;
    if (i == items.size()) {
      best = std::min(best, time);
      return;
    }
    for (const Choice& choice : items[i]) {
      Try(items, i + 1, time + choice.time, memory + choice.memory, std::max(peak, choice.peak), budget);
    }
  }
};

double Enumerate(const std::vector<ChoiceGroup>& groups, int64_t budget) {
  std::vector<std::vector<Choice>> items;
  for (const ChoiceGroup& group : groups) items.insert(items.end(), static_cast<size_t>(group.count), group.choices);
  Enumeration enumeration;
  enumeration.Try(items, 0, 0, 0, 0, budget);
  return enumeration.best;
}

TEST(ChoiceKnapsack, BuysTheSteepestTimeFirst) {
  // 10 bytes to spare: the second group's step saves 5 s for 5 bytes, the first one's 4 s for 8.
  const std::vector<ChoiceGroup> groups = {{{{9, 0, 0}, {5, 8, 0}}}, {{{7, 0, 0}, {2, 5, 0}}}};
  const KnapsackAnswer answer = SolveChoiceKnapsack(groups, 10, {});
  ASSERT_TRUE(answer.feasible);
  EXPECT_DOUBLE_EQ(answer.time, 11);
  EXPECT_EQ(answer.memory, 5);
  EXPECT_EQ(answer.taken[0], (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(answer.taken[1], (std::vector<int64_t>{0, 1}));
  EXPECT_DOUBLE_EQ(RelaxedKnapsack(groups, 10), 16 - 5 - 4 * 5.0 / 8);
}

TEST(ChoiceKnapsack, ThePeakCountsOnceAndOnlyTheLargest) {
  // Two items with 6 bytes of peak each fit 10 bytes with 2 of memory each, but not 9.
  const std::vector<ChoiceGroup> groups = {{{{1, 2, 6}, {5, 0, 0}}, 2}};
  EXPECT_DOUBLE_EQ(SolveChoiceKnapsack(groups, 10, {}).time, 2);
  EXPECT_DOUBLE_EQ(SolveChoiceKnapsack(groups, 9, {}).time, 6);
  EXPECT_DOUBLE_EQ(SolveChoiceKnapsack(groups, 7, {}).time, 10);
  EXPECT_FALSE(SolveChoiceKnapsack(groups, -1, {}).feasible);
  EXPECT_EQ(SolveChoiceKnapsack(groups, -1, {}).lower_bound, kInfinity);
}

TEST(ChoiceKnapsack, ASpentBudgetIsSaidAndTheBoundHolds) {
  std::mt19937 random(3);
  std::vector<ChoiceGroup> groups(30);
  for (ChoiceGroup& group : groups) {
    for (int k = 0; k < 4; ++k) {
      group.choices.push_back({static_cast<double>(random() % 997), static_cast<int64_t>(random() % 991), 0});
    }
  }
  const KnapsackAnswer cut = SolveChoiceKnapsack(groups, 9000, {.states = 500});
  EXPECT_FALSE(cut.complete);
  const KnapsackAnswer whole = SolveChoiceKnapsack(groups, 9000, {});
  EXPECT_TRUE(whole.complete);
  EXPECT_LE(cut.lower_bound, whole.time);
}

// Random items of all shapes: few or many bytes, equal rates of exchange, peaks, counts.
TEST(ChoiceKnapsack, EqualsEnumerationOnThousandsOfRandomCases) {
  std::mt19937 random(11);
  int feasible = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<ChoiceGroup> groups;
    const size_t n = 1 + random() % 4;
    const unsigned range = round % 2 == 0 ? 8 : 1000;
    int64_t most = 0;
    for (size_t g = 0; g < n; ++g) {
      ChoiceGroup group{.choices = {}, .count = static_cast<int64_t>(1 + random() % 3)};
      for (size_t k = 0; k < 1 + random() % 3; ++k) {
        Choice choice{static_cast<double>(random() % range), static_cast<int64_t>(random() % range),
                      random() % 3 == 0 ? static_cast<int64_t>(random() % range) : 0};
        if (round % 3 == 0) choice.time = static_cast<double>(2000 - choice.memory);
        group.choices.push_back(choice);
        most += choice.memory * group.count;
      }
      groups.push_back(group);
    }
    const int64_t budget = static_cast<int64_t>(random() % static_cast<unsigned>(most + 2));
    const double expected = Enumerate(groups, budget);
    const KnapsackAnswer answer = SolveChoiceKnapsack(groups, budget, {});
    ASSERT_EQ(answer.feasible, expected != kInfinity) << round;
    ASSERT_LE(RelaxedKnapsack(groups, budget), expected + 1e-9) << round;
    if (!answer.feasible) continue;
    ++feasible;
    ASSERT_NEAR(answer.time, expected, 1e-9) << round;
    ASSERT_LE(answer.memory, budget) << round;
    ASSERT_TRUE(answer.complete);
  }
  EXPECT_GT(feasible, 1500);
}

OsdpProblem Transformer(int64_t layers, int64_t hidden, Bytes budget) {
  const int64_t h = hidden;
  OsdpProblem problem{.ranks = 8,
                      .latency = Seconds(10e-6),
                      .rate = GigabytesPerSecond(10),
                      .state_bytes = 16,
                      .element_bytes = 2,
                      .gathered_bytes = 4,
                      .budget = budget};
  problem.operators = {{"embedding", 50257 * h, Bytes(0), Seconds(0), 2},
                       {"qkv", 3 * h * h, Bytes(2 * 1024 * h), Seconds(2e-3), layers},
                       {"attention output", h * h, Bytes(2 * 1024 * h), Seconds(1e-3), layers},
                       {"mlp in", 4 * h * h, Bytes(2 * 1024 * h), Seconds(3e-3), layers},
                       {"mlp out", 4 * h * h, Bytes(8 * 1024 * h), Seconds(3e-3), layers},
                       {"norms", 4 * h, Bytes(4 * 1024 * h), Seconds(1e-4), layers}};
  return problem;
}

// Cost of two operators over 4 ranks by hand: replicated 2·3·(α + S/(4r)), sharded 3·3·(α + S/(4r)).
TEST(Osdp, CostsAreThoseOfThePaper) {
  OsdpProblem problem{.operators = {{"a", 1000, Bytes(0), Seconds(1), 1}},
                      .ranks = 4,
                      .latency = Seconds(0.5),
                      .rate = BitsPerSecond(8),
                      .state_bytes = 16,
                      .element_bytes = 2,
                      .gathered_bytes = 2,
                      .budget = Bytes(16000)};
  OsdpPlan plan = PlanOperators(problem, 1).value();
  ASSERT_TRUE(plan.feasible);
  EXPECT_DOUBLE_EQ(plan.communication.count(), 6 * (0.5 + 500));
  EXPECT_DOUBLE_EQ(plan.iteration.count(), 1 + 6 * (0.5 + 500));
  EXPECT_EQ(plan.memory, Bytes(16000));
  problem.budget = Bytes(15999);
  problem.slices = {1};
  plan = PlanOperators(problem, 1).value();
  EXPECT_DOUBLE_EQ(plan.communication.count(), 9 * (0.5 + 500));
  EXPECT_EQ(plan.memory, Bytes(16000 / 4 + 2000));
  // In two slices of 500: one replicated (8000), one sharded (2000) and gathered (1000).
  problem.budget = Bytes(11000);
  problem.slices = {1, 2};
  plan = PlanOperators(problem, 1).value();
  EXPECT_DOUBLE_EQ(plan.communication.count(), (6 + 9) * (0.5 + 250));
  EXPECT_EQ(plan.memory, Bytes(11000));
  ASSERT_EQ(plan.decisions.at(0).size(), 1u);
  EXPECT_EQ(plan.decisions[0][0].slices, 2);
  EXPECT_EQ(plan.decisions[0][0].replicated, 1);
  problem.budget = Bytes(4999);
  EXPECT_FALSE(PlanOperators(problem, 1).value().feasible);
}

TEST(Osdp, ManyIdenticalLayersMeetTheClosedForm) {
  OsdpProblem problem = Transformer(96, 2048, GigabytesPerSecond(1) * Seconds(22));
  problem.operators = {{"layer", 12 * 2048 * 2048, Bytes(1 << 20), Seconds(1e-3), 96}};
  problem.latency = Seconds(0);
  const double share = ReplicatedShare(problem, 1);
  ASSERT_GT(share, 0.1);
  ASSERT_LT(share, 0.9);
  const OsdpPlan plan = PlanOperators(problem, 1).value();
  const double wire = 7.0 / 8 * 96 * 12 * 2048 * 2048 * 2 / 10e9;
  // The closed form fills the budget; whole slices leave at most one of 768 slices open.
  EXPECT_GE(plan.communication.count(), wire * (2 * share + 3 * (1 - share)) * (1 - 1e-9));
  EXPECT_LE(plan.communication.count(), wire * (2 * share + 3 * (1 - share) + 1.0 / 768) * (1 + 1e-9));
}

TEST(Osdp, NinetySixLayersAreProved) {
  for (const int64_t gib : {12, 16, 20, 24, 32}) {
    const OsdpPlan plan = PlanOperators(Transformer(96, 1536, Bytes(gib << 30)), 2).value();
    ASSERT_TRUE(plan.feasible) << gib;
    EXPECT_TRUE(plan.complete) << gib;
    EXPECT_LE(plan.memory, Bytes(gib << 30));
    EXPECT_LE(plan.lower_bound, plan.iteration);
    EXPECT_NEAR(plan.lower_bound / plan.iteration, 1, 2e-6);
    for (size_t i = 0; i < plan.decisions.size(); ++i) {
      int64_t count = 0;
      for (const OsdpDecision& decision : plan.decisions[i]) count += decision.count;
      EXPECT_EQ(count, i == 0 ? 2 : 96);
    }
  }
}

TEST(Osdp, MoreMemoryIsNeverSlowerAndSplittingNeverHurts) {
  double last = kInfinity;
  for (int64_t mib = 6000; mib < 24000; mib += 1500) {
    OsdpProblem problem = Transformer(48, 1536, Bytes(mib << 20));
    const OsdpPlan split = PlanOperators(problem, 1).value();
    problem.slices = {1};
    const OsdpPlan whole = PlanOperators(problem, 1).value();
    if (!split.feasible) continue;
    EXPECT_LE(split.iteration.count(), last * (1 + 2e-6));
    last = split.iteration.count();
    if (!whole.feasible) continue;
    EXPECT_LE(split.iteration.count(), whole.iteration.count() * (1 + 2e-6));
  }
  EXPECT_LT(last, kInfinity);
}

// Against trying every batch and, for small problems, every combination of decisions about whole operators.
TEST(Osdp, ThroughputIsTheBestOverAllBatchesOnRandomProblems) {
  std::mt19937 random(17);
  int feasible = 0;
  for (int round = 0; round < 1000; ++round) {
    OsdpProblem problem{.ranks = int64_t{1} << (1 + random() % 4),
                        .latency = Seconds(1e-6 * static_cast<double>(random() % 50)),
                        .rate = GigabytesPerSecond(1 + static_cast<double>(random() % 20)),
                        .slices = {1}};
    const size_t n = 1 + random() % 12;
    int64_t state = 0;
    for (size_t i = 0; i < n; ++i) {
      OsdpOperator op{.name = "op",
                      .parameters = static_cast<int64_t>(1000 + random() % 100000),
                      .activations = Bytes(random() % 200000),
                      .compute = Seconds(1e-6 * static_cast<double>(random() % 90))};
      state += op.parameters * 16;
      problem.operators.push_back(op);
    }
    problem.budget = Bytes(static_cast<int64_t>(random() % static_cast<unsigned>(state * 2)));
    double best = 0;
    for (int64_t batch = 1; batch <= 4; ++batch) {
      for (unsigned mask = 0; mask < (1u << n); ++mask) {
        double time = 0;
        int64_t memory = 0, peak = 0;
        const auto ranks = problem.ranks;
        for (size_t i = 0; i < n; ++i) {
          const OsdpOperator& op = problem.operators[i];
          const bool replicated = (mask >> i & 1) != 0;
          const double ring =
              static_cast<double>(ranks - 1) *
              (problem.latency.count() +
               static_cast<double>(op.parameters * 2) / static_cast<double>(ranks) / problem.rate.bytes_per_second());
          time += (replicated ? 2 : 3) * ring + op.compute.count() * static_cast<double>(batch);
          memory += replicated ? op.parameters * 16 : (op.parameters * 16 + ranks - 1) / ranks;
          memory += op.activations.count() * batch;
          if (!replicated) peak = std::max(peak, op.parameters * 2);
        }
        if (memory + peak <= problem.budget.count()) best = std::max(best, static_cast<double>(batch * ranks) / time);
      }
    }
    const OsdpPlan plan = MostThroughput(problem, 4, 0).value();
    ASSERT_EQ(plan.feasible, best > 0) << round;
    if (!plan.feasible) continue;
    ++feasible;
    ASSERT_NEAR(plan.samples_per_second(problem.ranks) / best, 1, 1e-9) << round;
  }
  EXPECT_GT(feasible, 500);
}

TEST(Osdp, ShardingInsideAGroupIsTakenWhereTheWideLinksAreSlow) {
  OsdpProblem problem = Transformer(24, 2048, Bytes(int64_t{14} << 30));
  problem.ranks = 32;
  problem.rate = GigabytesPerSecond(2);
  const OsdpPlan flat = PlanOperators(problem, 1).value();
  problem.shard_group = 8;
  problem.group_rate = GigabytesPerSecond(200);
  problem.slices = {1, 2};
  const OsdpPlan grouped = PlanOperators(problem, 1).value();
  ASSERT_TRUE(flat.feasible && grouped.feasible);
  EXPECT_LT(grouped.iteration, flat.iteration * 0.9);
  int64_t in_groups = 0;
  for (const auto& decisions : grouped.decisions) {
    for (const OsdpDecision& decision : decisions) in_groups += decision.group_sharded;
  }
  EXPECT_GT(in_groups, 0);
}

TEST(Osdp, BadProblemsNameTheField) {
  const auto message = [](OsdpProblem problem, int64_t batch) {
    const Result<OsdpPlan> plan = PlanOperators(problem, batch);
    if (plan) return std::string("accepted");
    EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
    return plan.error().message();
  };
  OsdpProblem problem = Transformer(2, 64, Bytes(1 << 30));
  EXPECT_THAT(message(problem, 0), HasSubstr("batch: 0, expected a positive number"));
  problem.ranks = 0;
  EXPECT_THAT(message(problem, 1), HasSubstr("ranks: 0"));
  problem = Transformer(2, 64, Bytes(1 << 30));
  problem.rate = BitsPerSecond(0);
  EXPECT_THAT(message(problem, 1), HasSubstr("rate: 0, expected a positive rate"));
  problem = Transformer(2, 64, Bytes(1 << 30));
  problem.slices = {};
  EXPECT_THAT(message(problem, 1), HasSubstr("slices"));
  problem.slices = {1000};
  EXPECT_THAT(message(problem, 1), HasSubstr("slices: 1000, expected 1 to 64"));
  problem = Transformer(2, 64, Bytes(1 << 30));
  problem.operators[1].count = 0;
  EXPECT_THAT(message(problem, 1), HasSubstr("operator \"qkv\": count: 0"));
  problem.operators[1].count = 1;
  problem.shard_group = 3;
  EXPECT_THAT(message(problem, 1), HasSubstr("shard_group: 3, expected a divisor"));
}

}  // namespace
}  // namespace weft::planner

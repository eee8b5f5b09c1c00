// The strategy space under branch and bound: the bounds of parallelism/space.h never cut the optimum.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "planner/parallelism/space.h"
#include "planner/search/branch_and_bound.h"
#include "planner/search/testing/random_cases.h"

namespace weft::planner::inline search {
namespace {

static_assert(SearchSpace<StrategySpace>);
using Search = BranchAndBound<StrategySpace>;

/// The bounds on the way to a leaf, for a failure's message.
std::string Way(const StrategySpace& space, const Strategy& leaf, CostModel::Scratch& scratch) {
  std::vector<StrategySpace::Node> open;
  space.Roots(open);
  const auto leads = [&](const StrategySpace::Node& node) {
    std::vector<StrategySpace::Node> below = {node};
    while (!below.empty()) {
      const StrategySpace::Node at = below.back();
      below.pop_back();
      if (space.IsLeaf(at)) {
        if (at.strategy == leaf) return true;
      } else {
        space.Children(at, below);
      }
    }
    return false;
  };
  std::string text;
  while (!open.empty()) {
    const auto next = std::find_if(open.begin(), open.end(), leads);
    if (next == open.end()) return text + " no way";
    const StrategySpace::Node node = *next;
    open.clear();
    if (space.IsLeaf(node)) break;
    text += fmt::format(" {}", space.Bound(node, scratch));
    space.Children(node, open);
  }
  return text;
}

TEST(StrategySearch, BranchAndBoundEqualsExhaustiveSearchOnRandomCases) {
  std::mt19937 random(41);
  CostModel::Scratch unused;
  int cases = 0, infeasible = 0, per_operator = 0;
  int64_t pruned = 0, leaves = 0;
  while (cases < 500) {
    const JobSpec job = RandomJob(random);
    const ClusterSpec cluster = RandomCluster(random);
    const auto model = CostModel::Make(job, cluster);
    ASSERT_TRUE(model) << model.error().message();
    const bool changes = random() % 3 == 0;
    const StrategySpace space(*model, {.allow = {.low_precision = changes, .local_steps = changes, .gossip = changes}});
    CostModel::Scratch scratch;
    Search found(space, {.keep = 3}), all(space, {.keep = 3, .exhaustive = true});
    found.Work(scratch);
    all.Work(scratch);
    leaves += all.statistics().evaluated;
    ASSERT_EQ(found.statistics().evaluated + found.statistics().pruned, all.statistics().evaluated);
    ASSERT_EQ(found.Best().size(), all.Best().size());
    for (size_t i = 0; i < found.Best().size(); ++i) {
      ASSERT_EQ(found.Best()[i].value, all.Best()[i].value)
          << DescribeStrategy(found.Best()[i].leaf.strategy) << " against "
          << DescribeStrategy(all.Best()[i].leaf.strategy) << ", bounded by"
          << Way(space, all.Best()[i].leaf.strategy, scratch);
      ASSERT_EQ(found.Best()[i].leaf.strategy, all.Best()[i].leaf.strategy);
    }
    pruned += found.statistics().pruned;
    infeasible += found.Best().empty() ? 1 : 0;
    per_operator += !found.Best().empty() && found.Best()[0].leaf.strategy.sharding == Sharding::kOperator ? 1 : 0;
    ++cases;
  }
  EXPECT_GT(infeasible, 10);
  EXPECT_LT(infeasible, 400);
  EXPECT_GT(per_operator, 20) << "sharding per operator wins where memory is scarce";
  EXPECT_GT(pruned, leaves / 2);
}

TEST(StrategySearch, EveryLeafIsLegalDifferentAndCounted) {
  std::mt19937 random(43);
  for (int round = 0; round < 20; ++round) {
    const auto model = CostModel::Make(RandomJob(random), RandomCluster(random));
    const StrategySpace space(*model, {.allow = {.low_precision = true, .local_steps = true, .gossip = true}});
    std::vector<StrategySpace::Node> roots;
    space.Roots(roots);
    int64_t counted = 0;
    for (const auto& root : roots) counted += space.Leaves(root);
    std::set<Strategy> leaves;
    for (const Strategy& leaf : LeavesOf(space)) {
      ASSERT_EQ(model->WhyIllegal(leaf), std::nullopt) << DescribeStrategy(leaf);
      ASSERT_TRUE(leaves.insert(leaf).second) << DescribeStrategy(leaf);
    }
    ASSERT_EQ(static_cast<int64_t>(leaves.size()), counted);
  }
}

TEST(StrategySearch, FixedVariablesAndFrameworksNarrowTheSpace) {
  JobSpec job{.name = "job",
              .model = {.name = "m",
                        .layers = 4,
                        .hidden = 1024,
                        .heads = 8,
                        .kv_heads = 8,
                        .head_dim = 128,
                        .ffn_hidden = 4096,
                        .vocab = 50304,
                        .max_positions = 2048},
              .global_batch = 16,
              .sequence = 1024};
  const auto model = CostModel::Make(job, FindClusterPreset("dgx-a100", 1).value());
  ASSERT_TRUE(model);
  const auto leaves = [&](const SpaceOptions& options) { return LeavesOf(StrategySpace(*model, options)); };
  const std::vector<Strategy> all = leaves({});
  // "recompute=full" alone means all layers.
  for (const char* text : {"tp=2,recompute=full,recompute_layers=-1", "zero_stage=3", "schedule=interleaved", "pp=2,micro_batch=2,vpp=2",
                           "sequence_parallel=true", "data_sync=hierarchical", "rank_order=tp-cp-pp-dp"}) {
    const FixedVariables fixed = ParseFixed(text).value();
    const std::vector<Strategy> some = leaves({.fixed = fixed});
    const auto expected = std::count_if(all.begin(), all.end(), [&](const Strategy& s) { return Agrees(s, fixed); });
    EXPECT_EQ(static_cast<int64_t>(some.size()), expected) << text;
    EXPECT_GT(expected, 0) << text;
  }
  EXPECT_EQ(leaves({.fixed = ParseFixed("tp=2,recompute=full").value()}),
            leaves({.fixed = ParseFixed("tp=2,recompute=full,recompute_layers=-1").value()}));
  for (const Strategy& s : leaves({.framework = Framework::kMegatron})) EXPECT_LE(s.zero_stage, 1);
  for (const Strategy& s : leaves({.framework = Framework::kWeftTrain})) EXPECT_EQ(s.dp, 8);
  EXPECT_FALSE(leaves({.framework = Framework::kWeftTrain}).empty());
}

TEST(ParseFixed, ReadsNumbersWordsAndAmounts) {
  const FixedVariables fixed =
      ParseFixed("tp=8,recompute=full,schedule=zb-v,bucket_bytes=25MiB,sequence_parallel=true").value();
  EXPECT_EQ(fixed.at("tp"), 8);
  EXPECT_EQ(fixed.at("recompute"), static_cast<int64_t>(Recompute::kFull));
  EXPECT_EQ(fixed.at("schedule"), static_cast<int64_t>(ScheduleKind::kZbV));
  EXPECT_EQ(fixed.at("bucket_bytes"), 25 << 20);
  EXPECT_EQ(fixed.at("sequence_parallel"), 1);
  EXPECT_TRUE(ParseFixed("").value().empty());
  for (const char* bad :
       {"tp", "tp=", "tp=0", "tp=x", "zz=1", "recompute=some", "tp=2,tp=4", "zero_stage=4", ",tp=2"}) {
    const auto result = ParseFixed(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), testing::HasSubstr("fix \""));
  }
  EXPECT_TRUE(CheckFixed(fixed));
  EXPECT_FALSE(CheckFixed({{"recompute", 7}}));
  EXPECT_FALSE(CheckFixed({{"zz", 7}}));
}

}  // namespace
}  // namespace weft::planner::search

// The strategy space under branch and bound: the bounds of parallelism/space.h never cut the optimum.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/calibration.h"
#include "planner/parallelism/memory_risk.h"
#include "planner/parallelism/space.h"
#include "planner/search/branch_and_bound.h"

namespace weft::planner {
namespace {

static_assert(SearchSpace<StrategySpace>);
using Search = BranchAndBound<StrategySpace>;

/// A small model with random shape, dense or an MoE model; sizes small enough that all strategies can be priced.
JobSpec RandomJob(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) { return *(values.begin() + random() % values.size()); };
  JobSpec job;
  ModelSpec& model = job.model;
  model.name = "random";
  model.architecture = random() % 2 == 0 ? Architecture::kGpt2 : Architecture::kLlama;
  model.layers = pick({1, 2, 3, 4, 6});
  model.heads = pick({4, 8, 12});
  model.head_dim = pick({64, 128});
  model.hidden = model.heads * model.head_dim * pick({1, 2});
  model.kv_heads = pick({2, 4});
  model.attention = Attention::kGroupedQuery;
  model.ffn_hidden = 4 * model.hidden;
  model.gated_mlp = random() % 2 == 0;
  model.vocab = pick({8192, 50304});
  model.max_positions = 65536;
  if (random() % 4 == 0) {
    model.architecture = Architecture::kMixtral;
    model.experts = pick({4, 8});
    model.experts_per_token = 2;
    model.expert_ffn_hidden = 2 * model.hidden;
  }
  job.global_batch = pick({1, 2, 4, 6, 8});
  job.sequence = pick({512, 1024, 2048});
  return job;
}

ClusterSpec RandomCluster(std::mt19937& random) {
  ClusterSpec cluster =
      FindClusterPreset(random() % 2 == 0 ? "dgx-a100" : "dgx-h100", 1 + static_cast<int64_t>(random() % 2)).value();
  cluster.gpus_per_node = int64_t{1} << (random() % 3);
  // From far too little to plenty for what the allocator is asked for, and links from slow to fast.
  const double asked = static_cast<double>(int64_t{1} << (26 + random() % 9));
  const double needed = (asked + Calibration().Get("memory", "context")) * MemoryFactor(kDefaultRisk);
  cluster.device.memory = Bytes(static_cast<int64_t>(needed));
  cluster.nic_rate = cluster.nic_rate * (random() % 2 == 0 ? 1 : 0.05);
  return cluster;
}

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
    const StrategySpace space(*model, {});
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
    const StrategySpace space(*model, {});
    std::vector<StrategySpace::Node> open;
    space.Roots(open);
    int64_t counted = 0;
    for (const auto& root : open) counted += space.Leaves(root);
    std::set<Strategy> leaves;
    while (!open.empty()) {
      const StrategySpace::Node node = open.back();
      open.pop_back();
      if (!space.IsLeaf(node)) {
        space.Children(node, open);
        continue;
      }
      ASSERT_EQ(model->WhyIllegal(node.strategy), std::nullopt) << DescribeStrategy(node.strategy);
      ASSERT_TRUE(leaves.insert(node.strategy).second) << DescribeStrategy(node.strategy);
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
  const auto leaves = [&](const SpaceOptions& options) {
    const StrategySpace space(*model, options);
    std::vector<StrategySpace::Node> open;
    std::vector<Strategy> all;
    space.Roots(open);
    while (!open.empty()) {
      const StrategySpace::Node node = open.back();
      open.pop_back();
      if (space.IsLeaf(node)) {
        all.push_back(node.strategy);
      } else {
        space.Children(node, open);
      }
    }
    return all;
  };
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
}  // namespace weft::planner

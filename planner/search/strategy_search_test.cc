// The strategy space under branch and bound: the bounds of parallelism/space.h never cut the optimum.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/program/program_limits.h"
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

/// The cost model of what weft-train runs.
Result<CostModel> TrainModel(const JobSpec& job, const ClusterSpec& cluster) {
  return CostModel::Make(job, cluster, {}, {.framework = Framework::kWeftTrain, .cuts = CutsOf(Framework::kWeftTrain)});
}

TrainingChanges SomeChanges(std::mt19937& random) {
  const bool changes = random() % 3 == 0;
  return {.low_precision = changes, .local_steps = changes, .gossip = changes};
}

TEST(StrategySearch, OfWeftTrainEqualsExhaustiveSearch) {
  std::mt19937 random(45);
  int infeasible = 0, per_operator = 0, pipelines = 0, tensor = 0;
  int64_t pruned = 0, leaves = 0;
  for (int round = 0; round < 160; ++round) {
    const JobSpec job = RandomTrainJob(random);
    const auto model = TrainModel(job, RandomCluster(random));
    ASSERT_TRUE(model) << model.error().message();
    const StrategySpace space(*model, {.allow = SomeChanges(random), .framework = Framework::kWeftTrain});
    CostModel::Scratch scratch;
    Search found(space, {.keep = 3}), all(space, {.keep = 3, .exhaustive = true});
    found.Work(scratch);
    all.Work(scratch);
    leaves += all.statistics().evaluated;
    pruned += found.statistics().pruned;
    ASSERT_EQ(found.statistics().evaluated + found.statistics().pruned, all.statistics().evaluated);
    ASSERT_EQ(found.Best().size(), all.Best().size());
    for (size_t i = 0; i < found.Best().size(); ++i) {
      ASSERT_EQ(found.Best()[i].value, all.Best()[i].value) << DescribeStrategy(all.Best()[i].leaf.strategy);
      ASSERT_EQ(found.Best()[i].leaf.strategy, all.Best()[i].leaf.strategy);
    }
    if (found.Best().empty()) {
      ++infeasible;
      continue;
    }
    const Strategy& best = found.Best()[0].leaf.strategy;
    per_operator += best.sharding == Sharding::kOperator ? 1 : 0;
    pipelines += best.pp > 1 ? 1 : 0;
    tensor += best.tp > 1 ? 1 : 0;
  }
  EXPECT_GT(infeasible, 3);
  EXPECT_LT(infeasible, 150);
  EXPECT_GT(per_operator, 3);
  EXPECT_GT(pipelines, 3);
  EXPECT_GT(tensor, 3);
  EXPECT_GT(pruned, leaves / 4);
}

// The rules by which a search cuts, one decision after the other, leave what the program's own account accepts.
TEST(StrategySearch, WeftTrainsSpaceIsWhatHasAProgram) {
  std::mt19937 random(46);
  int64_t same = 0, refused = 0, expanded = 0, in_slices = 0, longest = 0;
  for (int round = 0; round < 120; ++round) {
    const JobSpec job = RandomTrainJob(random);
    const ClusterSpec cluster = RandomCluster(random);
    const auto model = TrainModel(job, cluster);
    ASSERT_TRUE(model) << model.error().message();
    const bool changes = random() % 3 == 0;
    const TrainingChanges allow{.low_precision = changes, .local_steps = changes};
    CostModel::Scratch scratch;
    // Lowering is asked of some: of the others that decide per operator, decisions without slices stand for theirs.
    const auto why_not = [&](const Strategy& s) {
      const bool chooses = s.sharding == Sharding::kOperator || s.data_sync == DataSync::kHierarchical;
      std::vector<StageOperators> operators(static_cast<size_t>(s.pp));
      if (!chooses || random() % 16 != 0) return WhyNoProgram(model->job(), s, {.operators = operators});
      operators = model->Operators(s, scratch);
      return WhyNoProgram(model->job(), s, ChoicesOf(s, operators, model->Lower(s, scratch), cluster.gpus_per_node));
    };
    std::set<Strategy> ours, accepted;
    for (Strategy s : LeavesOf(StrategySpace(*model, {.allow = allow, .framework = Framework::kWeftTrain}))) {
      ASSERT_EQ(why_not(s), std::nullopt) << DescribeStrategy(s);
      if (random() % (s.sharding == Sharding::kOperator ? 16 : 64) == 0) {
        const std::vector<StageOperators> operators = model->Operators(s, scratch);
        const ProgramChoices choices = ChoicesOf(s, operators, model->Lower(s, scratch), cluster.gpus_per_node);
        const auto program = ExpandProgram(model->job(), s, ElementType::kFloat32, choices);  // it is checked: CheckProgram()
        ASSERT_TRUE(program) << DescribeStrategy(s) << ": " << program.error().message();
        int64_t instructions = 0;
        for (const RankClass& c : program->classes) instructions += static_cast<int64_t>(c.instructions.size());
        const OperatorCount count = CountOperators(operators);
        ASSERT_LE(static_cast<double>(instructions), MostInstructions(model->job(), s, count.split > 0 ? kOperatorSlices : 1))
            << DescribeStrategy(s);
        longest = std::max(longest, instructions);
        in_slices += count.split > 0 ? 1 : 0;
        ++expanded;
      }
      s.bucket_bytes = Bytes(1);
      ours.insert(s);
    }
    for (Strategy s : LeavesOf(StrategySpace(*model, {.allow = allow}))) {
      // A ring under another name is left out: narrow gradients have no levels.
      const bool ring = s.gradient_wire != GradientWire::kWhole && s.data_sync == DataSync::kHierarchical;
      if (ring || why_not(s)) {
        ++refused;
        continue;
      }
      s.bucket_bytes = Bytes(1);
      accepted.insert(s);
    }
    ASSERT_EQ(ours.size(), accepted.size());
    ASSERT_TRUE(ours == accepted);
    same += static_cast<int64_t>(ours.size());
  }
  EXPECT_GT(same, 5000);
  EXPECT_GT(refused, 5000);
  EXPECT_GT(expanded, 200);
  EXPECT_GT(in_slices, 5);
  EXPECT_GT(longest, 300);
}

TEST(StrategySearch, EveryLeafIsLegalDifferentAndCounted) {
  std::mt19937 random(43);
  for (int round = 0; round < 20; ++round) {
    const bool train = round % 2 == 1;
    const auto model = train ? TrainModel(RandomTrainJob(random), RandomCluster(random))
                             : CostModel::Make(RandomJob(random), RandomCluster(random));
    const StrategySpace space(*model, {.allow = {.low_precision = true, .local_steps = true, .gossip = true},
                                       .framework = train ? Framework::kWeftTrain : Framework::kAny});
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
  for (const Strategy& s : leaves({.framework = Framework::kWeftTrainDdp})) EXPECT_EQ(s.dp, 8);
  EXPECT_FALSE(leaves({.framework = Framework::kWeftTrainDdp}).empty());
  EXPECT_TRUE(leaves({.framework = Framework::kWeftTrain}).empty()) << "bf16, and other words than bytes";
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

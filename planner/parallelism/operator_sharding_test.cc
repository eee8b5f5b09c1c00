#include "planner/parallelism/operator_sharding.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/data_time.h"
#include "planner/parallelism/space.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;

constexpr OperatorDecision kReplicated{.slices = 1, .sharded = 0, .kept = false};
constexpr OperatorDecision kKept{.slices = 1, .sharded = 0, .kept = true};
constexpr OperatorDecision kSharded{.slices = 1, .sharded = 1, .kept = false};

/// Four replicas in one node of 1 GB/s without start-up times; 2 + 4 + 12 bytes per parameter; all overlaps.
struct Bench {
  CalibratedHardware hardware;
  StateBytes state{2_B, 4_B, 12_B, 2_B, 4_B, 0_B};
  SoftwareStack stack{.name = "test", .overlaps_gradients = true, .overlaps_parameters = true};
  OperatorProblem problem;

  Bench() {
    hardware.network.gpus_per_node = 8;
    hardware.network.intra_rate = hardware.network.direct_intra_rate = 1e9;
    hardware.memory_rate = GigabytesPerSecond(30);
    problem.hardware = &hardware;
    problem.state = &state;
    problem.stack = &stack;
    problem.strategy.dp = 4;
    problem.strategy.zero_stage = 3;
    problem.strategy.sharding = Sharding::kOperator;
    problem.strategy.bucket_bytes = Bytes(int64_t{1} << 40);
    problem.micro_batches = 2;
    problem.dense = {1, {1e6, 3e6}};
  }
};

// 4 M parameters, nothing to hide behind. Sum: 2·3/4·16 MB = 24 ms once. Gather of 2-byte copies: 3/4·8 MB = 6 ms,
// scatter of fp32 gradients: 3/4·16 MB = 12 ms. The step: 30 bytes at 30 GB/s, 1 ns per parameter held.
TEST(CostOfLayer, IsWhatTheCollectivesTake) {
  Bench b;
  const OperatorCost replicated = CostOfLayer(b.problem, false, kReplicated, kReplicated);
  EXPECT_NEAR(replicated.once.count(), 24e-3, 1e-9);
  EXPECT_NEAR((replicated.forward + replicated.backward).count(), 0, 1e-12);
  EXPECT_NEAR(replicated.memory().count(), 18 * 4e6, 1);
  EXPECT_NEAR(replicated.optimizer.count(), 4e-3, 1e-9);
  EXPECT_EQ(replicated.peak, 0_B);
  const OperatorCost kept = CostOfLayer(b.problem, false, kKept, kKept);
  EXPECT_NEAR(kept.once.count(), 6e-3, 1e-9);
  EXPECT_NEAR(kept.backward.count(), 12e-3, 1e-9);
  EXPECT_NEAR(kept.memory().count(), 18 * 1e6 + 2 * 4e6, 1);
  EXPECT_NEAR(kept.peak.count(), 4 * 4e6, 1) << "a whole gradient of 4 bytes";
  const OperatorCost sharded = CostOfLayer(b.problem, false, kSharded, kSharded);
  EXPECT_NEAR(sharded.forward.count(), 6e-3, 1e-9);
  EXPECT_NEAR(sharded.backward.count(), 18e-3, 1e-9);
  EXPECT_NEAR(sharded.once.count(), 0, 1e-12);
  EXPECT_NEAR(sharded.memory().count(), 18 * 1e6, 1);
  EXPECT_NEAR(sharded.optimizer.count(), 1e-3, 1e-9);
  EXPECT_NEAR(sharded.peak.count(), 8 * 4e6, 1) << "two gathered copies of 2 bytes and a gradient of 4";
  EXPECT_NEAR(sharded.time(2).count(), 2 * 24e-3 + 1e-3, 1e-9);
}

// Half of the MLP in slices: attention and a quarter of the MLP exist at once.
TEST(CostOfLayer, SlicesLowerThePeakAndMixTheState) {
  Bench b;
  const OperatorDecision half{.slices = 4, .sharded = 2, .kept = false};
  const OperatorCost cost = CostOfLayer(b.problem, false, kSharded, half);
  EXPECT_NEAR(cost.peak.count(), 8 * 1e6, 1) << "attention: 1 M, a slice: 0.75 M";
  EXPECT_NEAR(cost.memory().count(), 18 * (1e6 / 4 + 1.5e6 / 4 + 1.5e6), 1);
  EXPECT_NEAR(cost.forward.count(), 3.0 / 4 * 2 * 2.5e6 / 1e9, 1e-9);
}

TEST(CostOfLayer, ComputationHidesAndInterferenceShows) {
  Bench b;
  b.problem.forward = Seconds(4e-3);
  b.problem.backward = Seconds(40e-3);
  b.hardware.interference = 0.25;
  const OperatorCost sharded = CostOfLayer(b.problem, false, kSharded, kSharded);
  EXPECT_NEAR(sharded.forward.count(), 2e-3 + 0.25 * 4e-3, 1e-9);
  EXPECT_NEAR(sharded.backward.count(), 0.25 * 18e-3, 1e-9);
  const OperatorCost replicated = CostOfLayer(b.problem, false, kReplicated, kReplicated);
  EXPECT_NEAR(replicated.once.count(), 0.25 * 24e-3, 1e-9);
}

OperatorProblem Random(Bench& b, std::mt19937& random) {
  const auto real = [&](double least, double most) {
    return least + (most - least) * static_cast<double>(random() % 1000) / 999;
  };
  b.hardware.network.intra_latency = b.hardware.network.nic_latency = real(0, 1e-4);
  b.hardware.interference = real(0, 1);
  b.hardware.network.nic_rate = real(1e8, 1e9);
  b.hardware.network.gpus_per_node = int64_t{1} << (random() % 4);
  b.stack.overlaps_gradients = random() % 2 == 0;
  b.stack.overlaps_parameters = random() % 2 == 0;
  OperatorProblem p = b.problem;
  p.strategy.dp = int64_t{2} << (random() % 3);
  p.strategy.tp = 1 + static_cast<int64_t>(random() % 2);
  if (p.strategy.dp > 2 && random() % 3 == 0) p.strategy.shard_group = p.strategy.dp / 2;
  p.strategy.bucket_bytes = Bytes(1 << (16 + random() % 12));
  p.micro_batches = 1 + static_cast<int64_t>(random() % 6);
  p.forward = Seconds(real(0, 20e-3));
  p.backward = Seconds(real(0, 40e-3));
  const bool may_split = random() % 3 == 0;
  p.splits = kNoSplits;
  // Some operators, or all.
  if (may_split) p.splits = {.attention = random() % 4 != 0, .mlp = random() % 4 != 0, .head = int64_t{1} << (random() % 4)};
  p.dense = {1 + static_cast<int64_t>(random() % (may_split ? 1 : 3)), {real(1e5, 2e6), real(1e5, 4e6)}};
  if (!may_split && random() % 2 == 0) p.moe = {1, {real(1e5, 2e6), real(1e5, 8e6)}};
  p.strategy.ep = p.moe.layers > 0 ? 2 : 1;
  p.head = random() % 2 == 0 ? real(1e5, 8e6) : 0;
  const FractionalBytes all = LeanestOperators(p).memory();
  p.budget = (all * real(0.9, 6)).Truncated();
  return p;
}

/// Least time within the budget, by trying all ways of all layers.
Seconds Enumerate(const OperatorProblem& p) {
  const auto decisions = [](bool may_split) {
    std::vector<OperatorDecision> all = {kReplicated, kKept, kSharded};
    for (int64_t sharded = 1; may_split && sharded <= 4; ++sharded) {
      for (const bool kept : {false, true}) all.push_back({4, sharded, kept});
    }
    return all;
  };
  std::vector<std::vector<OperatorCost>> items;
  for (int64_t i = 0; i < p.dense.layers + p.moe.layers; ++i) {
    items.emplace_back();
    for (const OperatorDecision& attention : decisions(p.splits.attention)) {
      for (const OperatorDecision& mlp : decisions(p.splits.mlp)) {
        items.back().push_back(CostOfLayer(p, i >= p.dense.layers, attention, mlp));
      }
    }
  }
  if (p.head > 0) {
    items.emplace_back();
    for (const int64_t slices : {1, 2, 4, 8}) {
      if (slices <= p.splits.head) items.back().push_back(CostOfHead(p, slices));
    }
  }
  Seconds best(std::numeric_limits<double>::infinity());
  using Visit = std::function<void(size_t, Seconds, FractionalBytes, FractionalBytes)>;
  const Visit visit = [&](size_t i, Seconds time, FractionalBytes memory, FractionalBytes peak) {
    if (memory + peak > p.budget) return;
    if (i == items.size()) {
      best = std::min(best, time);
      return;
    }
    for (const OperatorCost& cost : items[i]) {
      visit(i + 1, time + cost.time(p.micro_batches), memory + cost.memory(), std::max(peak, cost.peak));
    }
  };
  visit(0, Seconds(0), {}, {});
  return best;
}

TEST(OperatorSolver, EqualsEnumerationAndBoundsHoldOnRandomStages) {
  std::mt19937 random(53);
  int feasible = 0, mixed = 0;
  for (int round = 0; round < 1500; ++round) {
    Bench b;
    OperatorSolver solver(0);
    const OperatorProblem p = Random(b, random);
    const double best = Enumerate(p).count();
    const OperatorStage stage = solver.Solve(p);
    const double relaxed = solver.Relaxed(p).count(), quick = QuickOperatorBound(p).count();
    ASSERT_LE(quick, relaxed * (1 + 1e-9)) << round;
    if (!stage.feasible) {
      // Whole bytes per layer: at the edge a few bytes decide.
      ASSERT_TRUE(best == std::numeric_limits<double>::infinity() ||
                  LeanestOperators(p).memory() + LeanestOperators(p).peak > p.budget - 64_B) << round;
      continue;
    }
    ++feasible;
    ASSERT_LE(stage.cost.memory() + stage.cost.peak, p.budget) << round;
    ASSERT_NEAR(stage.cost.time(p.micro_batches).count(), best, 1e-9 * best + 1e-15) << round;
    ASSERT_LE(relaxed, best * (1 + 1e-9)) << round;
    const OperatorCount count = CountOperators(std::span(&stage.operators, 1));
    ASSERT_EQ(count.total(), 2 * (p.dense.layers + p.moe.layers) + (p.head > 0 ? 1 : 0));
    mixed += count.replicated > 0 && count.sharded + count.kept + count.split > 0 ? 1 : 0;
  }
  EXPECT_GT(feasible, 1000);
  EXPECT_GT(mixed, 100);
}

// The cost model's bounds of a whole strategy, for pipelines of all schedules.
TEST(CostModel, OperatorBoundsAreBelowThePrice) {
  ClusterSpec cluster = FindClusterPreset("dgx-a100", 4).value();
  cluster.nic_rate = cluster.nic_rate * 0.2;
  for (const char* name : {"llama3-8b", "mixtral-8x7b"}) {
    const JobSpec job{.name = name, .model = FindModelPreset(name).value(), .global_batch = 64, .sequence = 4096};
    const CostModel model = CostModel::Make(job, cluster).value();
    const StrategySpace space(model, {.fixed = ParseFixed("sharding=osdp,micro_batch=1,cp=1,data_sync=ring").value()});
    std::vector<StrategySpace::Node> roots;
    space.Roots(roots);
    std::mt19937 random(5);
    CostModel::Scratch scratch;
    int fitting = 0;
    for (int round = 0; round < 60; ++round) {
      const auto pick = [&](const std::vector<StrategySpace::Node>& nodes) { return nodes[random() % nodes.size()]; };
      StrategySpace::Node node = pick(roots);
      while (node.level < 4) {
        std::vector<StrategySpace::Node> children;
        space.Children(node, children);
        node = pick(children);
      }
      const Estimate e = model.Evaluate(node.strategy, scratch);
      if (!e.fits) continue;
      ++fitting;
      const Seconds quick = model.OperatorBound(node.strategy, false, scratch);
      const Seconds relaxed = model.OperatorBound(node.strategy, true, scratch);
      ASSERT_LE(quick, relaxed * (1 + 1e-9)) << DescribeStrategy(node.strategy);
      ASSERT_LE(relaxed, e.iteration * (1 + 1e-9)) << DescribeStrategy(node.strategy);
      const OperatorCount count = CountOperators(model.Operators(node.strategy, scratch));
      ASSERT_EQ(count.total(), 2 * job.model.layers + 2);
    }
    EXPECT_GT(fitting, 8) << name;
  }
}

}  // namespace
}  // namespace weft::planner::parallelism

// How fast strategies are priced, and how long whole searches take.
//   BM_Evaluate/*      one strategy: time in closed form and memory of every stage; items are strategies
//   BM_Decide/*        the same as a search asks: a decision per operator is bounded first, and priced only where it may beat the
//                      best uniform strategy; uniform ones are priced; counter: share of the others that was priced
//   BM_Plan/*          a whole search to the proved optimum; counters: strategies of the space, priced ones
//   BM_Layers          an exact inner problem
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "planner/parallelism/layer_strategy.h"
#include "planner/planner.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

struct Question {
  const char* model;
  const char* cluster;
  int64_t nodes, batch, sequence;
};
constexpr Question kGpt3{"gpt3-175b", "dgx-a100", 512, 1536, 2048};
constexpr Question kLlama{"llama3-405b", "dgx-h100", 2048, 2048, 8192};
constexpr Question kDeepSeek{"deepseek-v3", "dgx-h100", 256, 15360, 4096};

JobSpec JobOf(const Question& q) {
  return {.name = q.model, .model = FindModelPreset(q.model).value(), .global_batch = q.batch, .sequence = q.sequence};
}
ClusterSpec ClusterOf(const Question& q) { return FindClusterPreset(q.cluster, q.nodes).value(); }

/// Leaves of the space, spread over all roots.
std::vector<Strategy> SomeStrategies(const CostModel& model, size_t wanted) {
  const StrategySpace space(model, {});
  std::vector<StrategySpace::Node> roots, open;
  space.Roots(roots);
  std::vector<Strategy> strategies;
  for (size_t i = 0; strategies.size() < wanted; i = (i + 7919) % roots.size()) {
    open = {roots[i]};
    for (int taken = 0; !open.empty() && taken < 24;) {
      const StrategySpace::Node node = open.back();
      open.pop_back();
      if (space.IsLeaf(node)) {
        strategies.push_back(node.strategy);
        ++taken;
      } else {
        space.Children(node, open);
      }
    }
  }
  return strategies;
}

void BM_Evaluate(benchmark::State& state, const Question& question) {
  const CostModel model = CostModel::Make(JobOf(question), ClusterOf(question)).value();
  const std::vector<Strategy> strategies = SomeStrategies(model, 20000);
  CostModel::Scratch scratch;
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.Evaluate(strategies[i], scratch));
    i = i + 1 == strategies.size() ? 0 : i + 1;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(BM_Evaluate, gpt3_175b, kGpt3);
BENCHMARK_CAPTURE(BM_Evaluate, llama3_405b, kLlama);
BENCHMARK_CAPTURE(BM_Evaluate, deepseek_v3, kDeepSeek);

/// Whether a leaf is feasible and better than `best`: by its bounds, if they say so.
bool Better(const StrategySpace& space, StrategySpace::Node leaf, double best, CostModel::Scratch& scratch, int64_t& priced) {
  const bool decides = leaf.strategy.sharding == Sharding::kOperator;
  for (leaf.level = 4; decides && leaf.level < 6; ++leaf.level) {
    if (space.Bound(leaf, scratch) > best) return false;
  }
  priced += decides ? 1 : 0;
  const StrategySpace::Value value = space.Evaluate(leaf, scratch);
  return value.feasible && value.value < best;
}

void BM_Decide(benchmark::State& state, const Question& question) {
  const CostModel model = CostModel::Make(JobOf(question), ClusterOf(question)).value();
  const StrategySpace space(model, {});
  const std::vector<Strategy> strategies = SomeStrategies(model, 20000);
  CostModel::Scratch scratch;
  double best = std::numeric_limits<double>::infinity();
  for (const Strategy& s : strategies) {
    if (s.sharding != Sharding::kUniform) continue;
    const Estimate estimate = model.Evaluate(s, scratch);
    if (estimate.fits) best = std::min(best, estimate.iteration.count());
  }
  size_t i = 0;
  int64_t priced = 0, of = 0;
  for (auto _ : state) {
    of += strategies[i].sharding == Sharding::kOperator ? 1 : 0;
    benchmark::DoNotOptimize(Better(space, {.strategy = strategies[i]}, best, scratch, priced));
    i = i + 1 == strategies.size() ? 0 : i + 1;
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["priced"] = of > 0 ? static_cast<double>(priced) / static_cast<double>(of) : 0;
}
BENCHMARK_CAPTURE(BM_Decide, gpt3_175b, kGpt3);
BENCHMARK_CAPTURE(BM_Decide, llama3_405b, kLlama);
BENCHMARK_CAPTURE(BM_Decide, deepseek_v3, kDeepSeek);

void BM_Plan(benchmark::State& state, const Question& question) {
  const JobSpec job = JobOf(question);
  const ClusterSpec cluster = ClusterOf(question);
  PlanAnswer answer;
  for (auto _ : state) {
    PlanSearch search = PlanSearch::Make(job, cluster, {.node_budget = int64_t{1} << 40}).value();
    {
      std::vector<std::jthread> threads;
      for (int64_t i = 0; i < state.range(0); ++i) threads.emplace_back([&search] { search.Work(); });
    }
    answer = search.Finish();
    if (!answer.complete || answer.plans.empty()) state.SkipWithError("not proved");
  }
  state.counters["strategies"] = static_cast<double>(answer.strategies);
  state.counters["priced"] = static_cast<double>(answer.evaluated);
}
BENCHMARK_CAPTURE(BM_Plan, gpt3_175b, kGpt3)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Plan, llama3_405b, kLlama)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Plan, deepseek_v3, kDeepSeek)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

/// Until the first plan that fits is known.
void BM_FirstPlan(benchmark::State& state, const Question& question) {
  const JobSpec job = JobOf(question);
  const ClusterSpec cluster = ClusterOf(question);
  for (auto _ : state) {
    PlanSearch search = PlanSearch::Make(job, cluster, {.node_budget = int64_t{1} << 40}).value();
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&search](const std::stop_token& stop) { search.Work(stop); });
    }
    while (!search.Progress().best) std::this_thread::yield();
    for (std::jthread& thread : threads) thread.request_stop();
  }
}
BENCHMARK_CAPTURE(BM_FirstPlan, gpt3_175b, kGpt3)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_Layers(benchmark::State& state) {
  JobSpec job{.name = "llama2-7b", .model = FindModelPreset("llama3-8b").value(), .global_batch = state.range(0),
              .sequence = 4096};
  job.model.kv_heads = job.model.heads;
  job.model.ffn_hidden = 11008;
  job.model.vocab = 32000;
  ClusterSpec cluster = FindClusterPreset("dgx-a100", 1).value();
  cluster.device.memory = cluster.device.reserved + Bytes(int64_t{36} << 30);
  for (auto _ : state) benchmark::DoNotOptimize(PlanLayers(job, cluster));
}
BENCHMARK(BM_Layers)->ArgName("batch")->Arg(16)->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft::planner

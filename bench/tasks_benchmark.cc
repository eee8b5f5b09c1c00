// How fast pipeline schedules are simulated. Items are strategies: one item is a whole iteration of one pipeline.
// Arguments: schedule, stages p, micro-batches m, chunks v, and whether stages differ (then no steady state is skipped
// before it has set in) and links delay.
#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "planner/tasks/pipeline.h"
#include "planner/tasks/pipeline_bound.h"

namespace weft::planner {
namespace {

enum Shape : int64_t { kEqual, kHops, kUnequal };

std::vector<StageTime> Stages(int64_t cells, Shape shape, std::mt19937& random) {
  std::uniform_real_distribution<double> vary(0.9, 1.1);
  std::vector<StageTime> stages(static_cast<size_t>(cells), {Seconds(10e-3), Seconds(11e-3), Seconds(9e-3)});
  if (shape != kUnequal) return stages;
  for (StageTime& stage : stages) {
    stage = {stage.forward * vary(random), stage.data_gradient * vary(random), stage.weight_gradient * vary(random)};
  }
  return stages;
}

void BM_SimulatePipeline(benchmark::State& state) {
  const auto kind = static_cast<ScheduleKind>(state.range(0));
  const int64_t p = state.range(1), m = state.range(2), v = state.range(3);
  const auto shape = static_cast<Shape>(state.range(4));
  std::mt19937 random(42);
  std::vector<std::vector<StageTime>> stages;
  for (int k = 0; k < 16; ++k) stages.push_back(Stages(p * v, shape, random));
  const std::vector<Seconds> hops(shape == kEqual ? 0 : 1, Seconds(0.3e-3));
  PipelineScratch scratch;
  int64_t operations = 0, simulated = 0;
  size_t next = 0;
  for (auto _ : state) {
    const Result<PipelineTime> time = SimulatePipeline(
        {.schedule = kind, .stages = stages[next++ % stages.size()], .micro_batches = m, .chunks = v, .hops = hops},
        scratch);
    benchmark::DoNotOptimize(time->makespan);
    operations += time->operations;
    simulated += time->simulated;
  }
  state.SetItemsProcessed(state.iterations());
  state.SetLabel(std::string(ScheduleName(kind)) + (shape == kEqual ? " equal" : shape == kHops ? " hops" : " unequal+hops"));
  state.counters["passes/s"] = benchmark::Counter(static_cast<double>(operations), benchmark::Counter::kIsRate);
  state.counters["simulated"] = static_cast<double>(simulated) / static_cast<double>(state.iterations());
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"schedule", "p", "m", "v", "shape"});
  for (const ScheduleKind kind : kAllSchedules) {
    const int64_t v = kind == ScheduleKind::kInterleaved ? 4 : kind == ScheduleKind::kZbV ? 2 : 1;
    for (const auto& [p, m] : {std::pair<int64_t, int64_t>{8, 32}, {8, 64}, {16, 96}, {16, 192}}) {
      for (const Shape shape : {kEqual, kHops, kUnequal}) {
        benchmark->Args({static_cast<int64_t>(kind), p, m, v, shape});
      }
    }
  }
}
BENCHMARK(BM_SimulatePipeline)->Apply(Shapes);

/// A walk through many (p, m), as a search makes it: nothing that one size keeps helps the next.
void BM_SimulatePipeline_ChangingShapes(benchmark::State& state) {
  const auto kind = static_cast<ScheduleKind>(state.range(0));
  const int64_t v = kind == ScheduleKind::kInterleaved ? 4 : kind == ScheduleKind::kZbV ? 2 : 1;
  std::mt19937 random(42);
  const std::vector<StageTime> stages = Stages(16 * v, kUnequal, random);
  const std::vector<Seconds> hops(1, Seconds(0.3e-3));
  PipelineScratch scratch;
  int64_t count = 0;
  for (auto _ : state) {
    const int64_t p = int64_t{2} << (count % 4), m = p * (2 + count / 4 % 11);
    ++count;
    const Result<PipelineTime> time =
        SimulatePipeline({.schedule = kind, .stages = std::span(stages).first(static_cast<size_t>(p * v)),
                          .micro_batches = m, .chunks = v, .hops = hops},
                         scratch);
    benchmark::DoNotOptimize(time->makespan);
  }
  state.SetItemsProcessed(state.iterations());
  state.SetLabel(std::string(ScheduleName(kind)));
}
BENCHMARK(BM_SimulatePipeline_ChangingShapes)->DenseRange(0, 6);

void BM_PipelineBound(benchmark::State& state) {
  std::mt19937 random(42);
  const std::vector<StageTime> stages = Stages(16, kUnequal, random);
  for (auto _ : state) {
    PipelineBound bound({.stages = 16, .micro_batches = 128});
    for (const StageTime& stage : stages) {
      bound.Add(stage.forward, stage.data_gradient + stage.weight_gradient, stage.weight_gradient);
    }
    benchmark::DoNotOptimize(bound.Makespan());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_PipelineBound);

}  // namespace
}  // namespace weft::planner

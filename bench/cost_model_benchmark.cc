// Strategies costed per second on one core: closed forms with the memory of every stage, and with the schedule simulated.
// GPT-3 175B on 4,096 A100, the strategies mixed over tp, pp, chunks, micro-batch, ZeRO, recomputation.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "planner/parallelism/cost_model.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

CostModel Gpt3() {
  const JobSpec job{.name = "gpt3", .model = FindModelPreset("gpt3-175b").value(), .global_batch = 1536, .sequence = 2048,
                    .precision = Precision::kBf16, .gpus = 4096};
  auto model = CostModel::Make(job, FindClusterPreset("dgx-a100", 512).value());
  if (!model) std::abort();
  return *std::move(model);
}

std::vector<Strategy> Mixed(const CostModel& model) {
  std::vector<Strategy> strategies;
  Strategy s;
  for (const int64_t tp : {1, 2, 4, 8, 16}) {
    for (const int64_t pp : {1, 2, 4, 8, 16, 32}) {
      for (const int64_t vpp : {1, 2, 3, 4, 6}) {
        for (const int64_t micro_batch : {1, 2, 4, 8}) {
          for (int64_t choice = 0; choice < 18; ++choice) {
            s.tp = tp;
            s.pp = pp;
            s.dp = 4096 / (tp * pp);
            s.vpp = vpp;
            s.micro_batch = micro_batch;
            s.schedule = vpp > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1F1B;
            s.recompute = static_cast<Recompute>(choice % 3);
            s.zero_stage = choice / 3 % 3;
            s.sequence_parallel = choice >= 9;
            if (model.IsLegal(s)) strategies.push_back(s);
          }
        }
      }
    }
  }
  return strategies;
}

template <auto kEvaluate>
void BM_CostModel(benchmark::State& state) {
  const CostModel model = Gpt3();
  const std::vector<Strategy> strategies = Mixed(model);
  CostModel::Scratch scratch;
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize((model.*kEvaluate)(strategies[next], scratch));
    next = (next + 1) % strategies.size();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_CostModel<&CostModel::Evaluate>)->Name("BM_CostModel_Evaluate");
BENCHMARK(BM_CostModel<&CostModel::EvaluateSimulated>)->Name("BM_CostModel_EvaluateSimulated");

/// One iteration of 16,384 GPUs: written as operations, and predicted.
void BM_LowerAndSimulate(benchmark::State& state) {
  const JobSpec job{.name = "job", .model = FindModelPreset("llama3-405b").value(), .global_batch = 2048, .sequence = 8192, .gpus = 16384};
  const CostModel model = CostModel::Make(job, FindClusterPreset("dgx-h100", 2048).value()).value();
  const Strategy s{.dp = 128, .tp = 8, .pp = 16, .zero_stage = 1, .sequence_parallel = true};
  CostModel::Scratch scratch;
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.Lower(s, scratch).classes.size());
    benchmark::DoNotOptimize(model.EvaluateSimulated(s, scratch).iteration);
  }
}
BENCHMARK(BM_LowerAndSimulate);

}  // namespace
}  // namespace weft::planner

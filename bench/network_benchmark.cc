// Max-min solutions and the engine, measured: the table of docs/network.md.
#include <benchmark/benchmark.h>

#include <map>
#include <random>

#include "bench/network_instances.h"
#include "planner/network/fluid.h"

namespace weft::planner::bench {
namespace {

void BM_MaxMin_Solve(benchmark::State& state) {
  const RandomTraffic traffic = MakeRandomTraffic(static_cast<int>(state.range(0)));
  const std::vector<MaxMinFlow> flows = traffic.Flows();
  for (auto _ : state) benchmark::DoNotOptimize(MaxMinRates(traffic.capacity, flows));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_MaxMin_Solve)->ArgName("flows")->Arg(1'000)->Arg(10'000)->Arg(50'000)->Unit(benchmark::kMillisecond);

/// 20 iterations of jobs of four random hosts each, in lock step, three classes. Arg: bursts per iteration.
void BM_Fluid_Jobs(benchmark::State& state) {
  const auto jobs = static_cast<size_t>(state.range(0)), bursts = static_cast<size_t>(state.range(1));
  const RandomTraffic traffic = MakeRandomTraffic(static_cast<int>(4 * jobs));
  std::mt19937 random(3);
  int64_t events = 0;
  for (auto _ : state) {
    FluidSimulation fluid(traffic.capacity);
    std::vector<FluidSetting> settings;
    for (size_t j = 0; j < jobs; ++j) {
      FluidJob job{.compute = Seconds(0.1 + 0.001 * static_cast<double>(random() % 50)), .bursts = {}};
      FluidSetting setting{.loads = {}, .priority = static_cast<int32_t>(j % 3)};
      for (size_t b = 1; b <= bursts; ++b) {
        const Seconds place = job.compute * (static_cast<double>(b) / static_cast<double>(bursts));
        job.bursts.push_back({place, place});
        std::map<LinkId, LinkLoad> loads;
        for (size_t f = 4 * j; f < 4 * j + 4; ++f) {
          for (const LinkId link : traffic.paths[f]) {
            LinkLoad& load = loads.try_emplace(link, LinkLoad{link, Bytes(0), 0}).first->second;
            load.bytes += Bytes(500'000'000 / static_cast<int64_t>(bursts));
            load.flows += 1;
          }
        }
        setting.loads.emplace_back();
        for (const auto& [link, load] : loads) setting.loads.back().push_back(load);
      }
      fluid.Add(job);
      settings.push_back(std::move(setting));
    }
    fluid.Apply(std::move(settings));
    fluid.Run(Seconds(4));
    events += fluid.events();
  }
  state.SetItemsProcessed(events);
}
BENCHMARK(BM_Fluid_Jobs)->ArgNames({"jobs", "bursts"})->Args({4, 1})->Args({4, 8})->Args({64, 1})->Args({64, 8})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft::planner::bench

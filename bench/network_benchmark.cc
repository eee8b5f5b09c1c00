// What docs/network.md promises of max-min and of the simulation, measured.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/network_instances.h"
#include "planner/network/fair_shares.h"
#include "planner/network/simulation.h"

namespace weft::planner::bench {
namespace {

void BM_MaxMin_Solve(benchmark::State& state) {
  const RandomTraffic traffic = MakeRandomTraffic(static_cast<int>(state.range(0)));
  const std::vector<MaxMinFlow> flows = traffic.Flows();
  for (auto _ : state) benchmark::DoNotOptimize(MaxMinRates(traffic.capacity, flows));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_MaxMin_Solve)->ArgName("flows")->Arg(1'000)->Arg(10'000)->Arg(50'000)->Unit(benchmark::kMillisecond);

/// One flow comes, the rates follow; then it goes, untimed. Arg: tolerance as a power of ten; 0 is exact.
void BM_FairShares_Arrival(benchmark::State& state) {
  const RandomTraffic traffic = MakeRandomTraffic(static_cast<int>(state.range(0)));
  const RandomTraffic arrivals = MakeRandomTraffic(1'000, 2);
  FairShareOptions options;
  if (state.range(1) != 0) options.tolerance = std::pow(10, static_cast<double>(state.range(1)));
  FairShares shares(traffic.capacity, options);
  for (const MaxMinFlow& flow : traffic.Flows()) shares.Add(flow);
  shares.Update();
  const int64_t solutions = shares.complete_solutions(), settled = shares.links_settled();
  size_t next = 0;
  int64_t changed = 0, settled_here = 0;
  for (auto _ : state) {
    const int64_t before = shares.links_settled();
    const FairShares::ClassId id = shares.Add({.links = arrivals.paths[next++ % arrivals.paths.size()]});
    shares.Update();
    state.PauseTiming();
    changed += static_cast<int64_t>(shares.changed().size());
    settled_here += shares.links_settled() - before;
    shares.Remove(id);
    shares.Update();
    state.ResumeTiming();
  }
  state.counters["links_settled"] = static_cast<double>(settled_here) / static_cast<double>(state.iterations());
  state.counters["rates_changed"] = static_cast<double>(changed) / static_cast<double>(state.iterations());
  state.counters["complete_solutions"] = static_cast<double>(shares.complete_solutions() - solutions);
  benchmark::DoNotOptimize(settled);
}
BENCHMARK(BM_FairShares_Arrival)
    ->ArgNames({"flows", "tolerance"})
    ->Args({50'000, 0})->Args({50'000, -6})->Args({50'000, -4})->Args({50'000, -3})
    ->Unit(benchmark::kMicrosecond);

/// 10,000 flows of equal size between random pairs, all started at once, to their last byte.
void BM_Simulation_EqualFlows(benchmark::State& state) {
  const RandomTraffic traffic = MakeRandomTraffic(static_cast<int>(state.range(0)));
  std::vector<SimulatedFlow> flows;
  for (const std::vector<LinkId>& path : traffic.paths) flows.push_back({.links = path, .bytes = Bytes(100'000'000)});
  std::set<int64_t> times;
  for (auto _ : state) {
    const SimulationResult result = SimulateFlows(traffic.capacity, flows);
    state.PauseTiming();
    times.clear();
    for (const Seconds finish : result.finish) times.insert(std::llround(finish.count() * 1e9));
    state.ResumeTiming();
  }
  state.counters["distinct_times"] = static_cast<double>(times.size());
}
BENCHMARK(BM_Simulation_EqualFlows)->ArgName("flows")->Arg(1'000)->Arg(10'000)->Unit(benchmark::kMillisecond);

/// All-reduce of 100 MB over a ring of 1,024 hosts in order of leaf, 2(n - 1) steps as dependent transfers. slow: one NIC
/// at 90 %. events: 1 runs every step as an event. error: against the formula 2(n - 1)(latency + bytes / n / slowest rate).
void BM_Simulation_RingAllReduce(benchmark::State& state) {
  constexpr int kRanks = 1024, kPerLeaf = 16, kSpines = 16;
  Topology fabric = LeafSpine(kRanks / kPerLeaf, kSpines, kPerLeaf, GigabitsPerSecond(100));
  const bool slow = state.range(0) != 0;
  std::vector<TransferLane> lanes(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto host = [&](int r) { return NodeId(kRanks / kPerLeaf + kSpines + r % kRanks); };
    lanes[static_cast<size_t>(rank)] = {.links = fabric.ShortestPaths(host(rank), host(rank + 1), 1)[0],
                                        .bytes = Bytes(100'000'000 / kRanks),
                                        .steps = 2 * (kRanks - 1),
                                        .latency = Seconds(5e-6),
                                        .needs = {{.lane = (rank + kRanks - 1) % kRanks, .lag = 1}}};
  }
  if (slow) fabric.SetCapacity(lanes[100].links[0], GigabitsPerSecond(90));
  std::vector<BitsPerSecond> capacity;
  for (const Link& link : fabric.links()) capacity.push_back(link.capacity);
  double last = 0;
  for (auto _ : state) {
    const SimulationResult result = SimulateLanes(capacity, lanes, {.recurrence = state.range(1) == 0});
    last = 0;
    for (const Seconds finish : result.finish) last = std::max(last, finish.count());
    state.counters["transfers"] = static_cast<double>(result.events / 2);
  }
  const double step = 5e-6 + 100'000'000 / kRanks / GigabitsPerSecond(slow ? 90 : 100).bytes_per_second();
  state.counters["error"] = last / (2 * (kRanks - 1) * step) - 1;
}
BENCHMARK(BM_Simulation_RingAllReduce)
    ->ArgNames({"slow", "events"})
    ->Args({0, 0})->Args({1, 0})->Args({0, 1})->Args({1, 1})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft::planner::bench

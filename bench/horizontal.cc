// Runs every policy on the scenarios of horizontal_scenarios.h and prints one markdown table: mean and
// 99th-percentile slow-down and GPU use, each the mean over seeds.
//
//   horizontal [SEEDS [EVALUATIONS [PART OF A SCENARIO'S NAME]]]      progress goes to stderr
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "bench/horizontal_scenarios.h"

namespace weft::bench {
namespace {

using planner::SimulationPolicy;

struct Contender {
  const char* name;
  SimulationPolicy policy;
  planner::SimulationObjective objective = planner::SimulationObjective::kBalanced;
};

constexpr Contender kContenders[] = {{"ecmp", SimulationPolicy::kEcmp},
                                     {"cassini", SimulationPolicy::kCassini},
                                     {"crux", SimulationPolicy::kCrux},
                                     {"sincronia", SimulationPolicy::kSincronia},
                                     {"weft, GPU use only", SimulationPolicy::kWeft,
                                      planner::SimulationObjective::kGpuUse},
                                     {"weft", SimulationPolicy::kWeft}};

struct Row {
  double mean = 0, p99 = 0, use = 0, seconds = 0;
};

struct Kind {
  const char* name;
  std::function<planner::Scenario(uint64_t)> make;
};

double Now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }  // CPU: the machine may be shared

int Compare(const Kind& kind, int seeds, int64_t evaluations) {
  Row bound;
  std::vector<Row> rows;
  int64_t jobs = 0;
  for (const Contender& contender : kContenders) {
    Row row;
    for (int seed = 1; seed <= seeds; ++seed) {
      const planner::Scenario scenario = kind.make(static_cast<uint64_t>(seed));
      const double start = Now();
      const auto report = planner::Simulate(scenario, contender.policy,
                                           {.evaluations = evaluations, .objective = contender.objective});
      if (!report) {
        fmt::print(stderr, "horizontal: {}\n", report.error().message());
        return 1;
      }
      row.seconds += Now() - start;
      row.mean += report->mean_slowdown / seeds;
      row.p99 += report->p99_slowdown / seeds;
      row.use += report->gpu_utilisation / seeds;
      fmt::print(stderr, "{} {}: {:.4f} {:.4f} {:.4f}, {} events, {:.2f} s\n", scenario.name, contender.name,
                 report->mean_slowdown, report->p99_slowdown, report->gpu_utilisation, report->events, Now() - start);
      if (&contender != std::end(kContenders) - 1) continue;
      bound.mean += report->bound_mean_slowdown / seeds;
      bound.use += report->bound_gpu_utilisation / seeds;
      jobs += static_cast<int64_t>(scenario.jobs.size());
    }
    rows.push_back(row);
  }
  for (size_t p = 0; p < rows.size(); ++p) {
    fmt::print("| {} | {} | {:.3f} | {:.3f} | {:.2f} % | {:.2f} s |\n", p == 0 ? kind.name : "", kContenders[p].name,
               rows[p].mean, rows[p].p99, 100 * rows[p].use, rows[p].seconds / seeds);
  }
  fmt::print("| ({:.1f} jobs) | bound | {:.3f} | ≥ 1 | {:.2f} % | |\n", static_cast<double>(jobs) / seeds, bound.mean,
             100 * bound.use);
  return 0;
}

int Main(int argc, char** argv) {
  const int seeds = argc > 1 ? std::atoi(argv[1]) : 5;
  const int64_t evaluations = argc > 2 ? std::atoll(argv[2]) : planner::kDefaultEvaluations;
  if (seeds < 1 || evaluations < 1) {
    fmt::print(stderr, "usage: horizontal [SEEDS [EVALUATIONS [PART OF A SCENARIO'S NAME]]]\n");
    return 2;
  }
  const std::string only = argc > 3 ? argv[3] : "";
  const Kind kinds[] = {{"CASSINI-like, 24 hosts, 2:1", CassiniLike},
                        {"Crux-like, two tiers, 2:1", [](uint64_t seed) { return CruxLike(seed, 2, 2); }},
                        {"Crux-like, two tiers, 6:1", [](uint64_t seed) { return CruxLike(seed, 2, 6); }},
                        {"Crux-like, three tiers, 2:1", [](uint64_t seed) { return CruxLike(seed, 3, 2); }}};
  fmt::print("| scenario, {} seeds | policy | mean slow-down | p99 slow-down | GPU use | CPU per run |\n", seeds);
  fmt::print("| --- | --- | --- | --- | --- | --- |\n");
  for (const Kind& kind : kinds) {
    if (std::string(kind.name).find(only) == std::string::npos) continue;
    if (const int failed = Compare(kind, seeds, evaluations); failed != 0) return failed;
  }
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }

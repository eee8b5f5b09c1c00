// How close the searches come to the optimum, on random small clusters (at most 20 hosts, 5 jobs, 3 classes) with every
// enumeration inside the planner switched off, in the measure of periodic.h: GPU use. Prints the figures of docs/flows.md.
// WEFT_QUALITY_EFFORT=10 gives the cases with many jobs ten times the search.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "planner/fabric/fabric_cuts.h"
#include "planner/fabric/fabrics.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/flows/fractional.h"
#include "planner/flows/job_paths.h"
#include "planner/flows/priority.h"
#include "planner/jobs/decide/situation.h"
#include "planner/jobs/master.h"

namespace weft::planner::inline flows {
namespace {

constexpr uint32_t kCases = 1500;
constexpr PeriodicOptions kShort{.warmup = 2, .measured = 10};
/// What is right where jobs start when their users please: the mean over several sets of first starts.
constexpr PeriodicOptions kPhases{.warmup = 2, .measured = 10, .phases = 4};

struct Case {
  Topology topology;
  std::vector<RoutableJob> jobs;
};

std::vector<CandidatePath> Paths(const Topology& topology, size_t from, size_t to) {
  std::vector<CandidatePath> paths;
  const auto host = [&](size_t h) { return *topology.FindNode(fmt::format("h{}", h + 1)); };
  for (auto& path : topology.ShortestPaths(host(from), host(to))) paths.push_back({std::move(path)});
  return paths;
}

Topology ThreeTier(int pods, int leaves_per_pod, int hosts_per_leaf, int cores_per_aggregation) {
  const BitsPerSecond rate = GigabytesPerSecond(1);
  return ThreeTierClos({.pods = pods, .leaves_per_pod = leaves_per_pod, .aggregations_per_pod = 2,
                        .cores_per_aggregation = cores_per_aggregation, .hosts_per_leaf = hosts_per_leaf,
                        .host_rate = rate, .fabric_rate = rate, .core_rate = rate}).topology;
}

/// 2 to 4 leaves of 2 to 5 hosts, or (every third case) two pods of two leaves of 2 to 4 hosts; jobs are rings over hosts
/// of their own, spread at random.
Case Random(uint32_t seed, size_t most_choices) {
  std::mt19937 random(seed);
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1)); };
  int leaves = between(2, 4), hosts = between(2, 5);
  Case made{.topology = LeafSpine(leaves, between(2, 3), hosts, GigabytesPerSecond(1))};
  if (seed % 3 == 2) {
    leaves = 4;
    hosts = between(2, 4);
    made.topology = ThreeTier(2, 2, hosts, between(1, 2));
  }
  std::vector<size_t> free;
  for (int h = 0; h < leaves * hosts; ++h) free.push_back(static_cast<size_t>(h));
  std::shuffle(free.begin(), free.end(), random);
  size_t choices = 1;
  for (int j = between(2, 5); j > 0 && free.size() >= 2; --j) {
    const size_t size = std::min<size_t>(free.size(), static_cast<size_t>(between(2, 4)));
    RoutableJob job{.gpus = 8.0 * static_cast<double>(size), .compute = Seconds(0.1 * between(2, 20))};
    job.release = job.compute * (between(0, 3) / 3.0);
    const Bytes bytes(50'000'000 * int64_t{between(4, 30)});
    for (size_t i = 0; i < size; ++i) {
      job.flows.push_back({bytes, Paths(made.topology, free[free.size() - 1 - i], free[free.size() - 1 - (i + 1) % size])});
      choices *= job.flows.back().paths.size();
    }
    if (choices > most_choices) break;
    free.resize(free.size() - size);
    made.jobs.push_back(std::move(job));
  }
  return made;
}

std::vector<BitsPerSecond> Capacities(const Topology& topology) {
  std::vector<BitsPerSecond> capacity;
  for (const Link& link : topology.links()) capacity.push_back(link.capacity);
  return capacity;
}

double BestPaths(const Case& c, const PeriodicOptions& simulation) {
  JobPaths paths;
  for (const RoutableJob& job : c.jobs) paths.emplace_back(job.flows.size(), 0);
  double best = 0;
  for (;;) {
    best = std::max(best, GpuUse(c.topology, c.jobs, paths, simulation));
    bool carry = true;
    for (size_t j = 0; j < c.jobs.size() && carry; ++j) {
      for (size_t f = 0; f < paths[j].size() && carry; ++f) {
        carry = paths[j][f] + 1 == c.jobs[j].flows[f].paths.size();
        paths[j][f] = carry ? 0 : paths[j][f] + 1;
      }
    }
    if (carry) return best;
  }
}

struct Score {
  double sum = 0, worst = 1, plain = 0;
  int cases = 0;
  void Add(double found, double plain_found, double best) {
    sum += found / best;
    plain += plain_found / best;
    worst = std::min(worst, found / best);
    ++cases;
  }
  double Print(const char* what, const char* plain_name) const {
    std::printf("%s: %d cases, mean %.5f, worst %.5f of the optimum (%s: %.5f)\n", what, cases, sum / cases, worst,
                plain_name, plain / cases);
    return sum / cases;
  }
};

/// The optimum of the master problem over one configuration per job, of `gpus` in all; 1 where it cannot be solved, which
/// fails the test.
double SolvedShare(MasterProblem problem, std::vector<std::vector<Configuration>> pools, double gpus) {
  problem.source = FromPools(std::move(pools));
  const auto answer = SolveMaster(problem);
  EXPECT_TRUE(answer) << answer.error().message();
  return answer ? answer->bound / gpus : 1;
}

/// GPU use that no controller beats: the master problem over what must cross each cut, whatever the paths.
double Bound(const Case& c) {
  const FabricCuts cuts(c.topology);
  MasterProblem problem{.cuts = cuts.Capacities()};
  std::vector<std::vector<Configuration>> pools;
  double gpus = 0;
  for (const RoutableJob& job : c.jobs) {
    std::vector<CutTransfer> transfers;
    for (const RoutableFlow& flow : job.flows) {
      const std::vector<LinkId>& path = flow.paths.front().links;
      transfers.push_back({c.topology.link(path.front()).from, c.topology.link(path.back()).to,
                           static_cast<double>(flow.bytes.count())});
    }
    Configuration only{.name = "only", .gpus = static_cast<int64_t>(job.gpus), .compute = job.compute,
                       .iteration = job.compute, .loads = cuts.Loads(transfers)};
    double send = 0;
    for (const CutLoad& load : only.loads) {
      send = std::max(send, load.bytes / problem.cuts[load.cut].bytes_per_second());
    }
    only.iteration = std::max(only.iteration, job.release + Seconds(send));
    pools.push_back({std::move(only)});
    problem.jobs.push_back({.name = "j"});
    gpus += job.gpus;
  }
  return SolvedShare(std::move(problem), std::move(pools), gpus);
}

double PathsAgainstEnumeration(const PeriodicOptions& simulation, const char* name) {
  Score score;
  double of_bound = 0;
  for (uint32_t seed = 0; score.cases < static_cast<int>(kCases); ++seed) {
    const Case c = Random(seed, 128);
    if (c.jobs.size() < 2) continue;
    const JobPathPlan plan = PlanJobPaths(c.topology, c.jobs, {.simulation = simulation});
    const double best = BestPaths(c, simulation);
    score.Add(plan.gpu_use, plan.gpu_use_balanced, best);
    of_bound += best / Bound(c);
  }
  std::printf("%s: the optimum is %.4f of the linear programme's bound\n", name, of_bound / score.cases);
  return score.Print(name, "balanced by load only");
}

TEST(Quality, PathsReachTheEnumeratedOptimum) {
  EXPECT_GE(PathsAgainstEnumeration(kShort, "paths, all jobs start at once"), 0.99);
}

TEST(Quality, PathsReachTheEnumeratedOptimumOverSeveralStarts) {
  EXPECT_GE(PathsAgainstEnumeration(kPhases, "paths, mean of 4 sets of starts"), 0.99);
}

/// 12 to 20 jobs of rings of 2 to 4 hosts on 12 leaves of 6 hosts with 3 ways up.
Case Crowd(uint32_t seed) {
  std::mt19937 random(seed);
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1)); };
  const int leaves = 12, hosts = 6;
  Case made{.topology = seed % 2 == 0 ? LeafSpine(leaves, 3, hosts, GigabytesPerSecond(1)) : ThreeTier(4, 3, hosts, 2)};
  std::vector<size_t> free(static_cast<size_t>(leaves * hosts));
  for (size_t h = 0; h < free.size(); ++h) free[h] = h;
  std::shuffle(free.begin(), free.end(), random);
  for (int j = between(12, 20); j > 0 && free.size() >= 4; --j) {
    const auto size = static_cast<size_t>(between(2, 4));
    RoutableJob job{.gpus = 8.0 * static_cast<double>(size), .compute = Seconds(0.1 * between(5, 20))};
    job.release = job.compute * (between(0, 3) / 3.0);
    const Bytes bytes(50'000'000 * int64_t{between(4, 30)});
    for (size_t i = 0; i < size; ++i) {
      job.flows.push_back({bytes, Paths(made.topology, free[free.size() - 1 - i], free[free.size() - 1 - (i + 1) % size])});
    }
    free.resize(free.size() - size);
    made.jobs.push_back(std::move(job));
  }
  return made;
}

/// GPU use that nobody beats on these very paths: every link is a cut.
double BoundOnPaths(const std::vector<BitsPerSecond>& capacity, const std::vector<PeriodicJob>& jobs) {
  MasterProblem problem{.cuts = capacity};
  std::vector<std::vector<Configuration>> pools;
  double gpus = 0;
  for (const PeriodicJob& job : jobs) {
    Configuration only{.name = "only", .gpus = static_cast<int64_t>(job.gpus), .compute = job.compute,
                       .iteration = IterationAlone(capacity, job)};
    for (const LinkLoad& load : job.loads) {
      only.loads.push_back({load.link.index(), static_cast<double>(load.bytes.count())});
    }
    pools.push_back({std::move(only)});
    problem.jobs.push_back({.name = "j"});
    gpus += job.gpus;
  }
  return SolvedShare(std::move(problem), std::move(pools), gpus);
}

struct Planned {
  double use = 0;        ///< mean over several starts
  double on_paths = 0;   ///< bound on the chosen paths
};

/// Paths and classes as DecideJobs() has them for running jobs without time windows, with `effort` times the simulations; `divided`:
/// flows may be divided between several ways.
Planned Plan(const Case& c, int64_t effort, bool divided) {
  Situation situation{.topology = c.topology, .capacity = Capacities(c.topology), .jobs = c.jobs, .classes = 8, .horizon = Seconds(1e6)};
  situation.measured = MeasuredRules{.steady = std::vector<bool>(c.jobs.size(), false), .hash_seeds = 1};
  const auto state = std::make_shared<FluidSimulation>(situation.capacity);
  for (size_t j = 0; j < c.jobs.size(); ++j) {
    if (divided) std::ranges::for_each(situation.jobs[j].flows, [&](RoutableFlow& flow) { AddSplits(&flow, situation.capacity); });
    situation.names.push_back(fmt::format("job{}", j));
    situation.keys.push_back(KeyOf(situation.names.back()));
    Seconds alone(1e300);
    for (const bool last : {false, true}) {
      std::vector<size_t> paths;
      for (const RoutableFlow& flow : situation.jobs[j].flows) paths.push_back(last ? flow.paths.size() - 1 : 0);
      alone = std::min(alone, IterationAlone(situation.capacity, OnPaths(situation.jobs[j], paths)));
    }
    situation.alone.push_back(alone);
    situation.ways.emplace_back();
    situation.way.push_back(0);
    situation.present.emplace_back();
    situation.slots.push_back(state->Add(FluidOf(c.jobs[j])));
  }
  situation.state = state;
  const Decision decision = DecideJobs(situation, {.evaluations = 120 * effort});
  const std::vector<PeriodicJob> jobs = OnPaths(situation, decision.paths);
  return {PeriodicSimulator(situation.capacity, jobs, kPhases).Run(decision.classes).gpu_use, BoundOnPaths(situation.capacity, jobs)};
}

/// Means over the cases.
struct Crowds {
  double use = 0, worst = 1, on_paths = 0, use_of_paths = 0, few = 0;
};

Crowds PlanCrowds(uint32_t count, uint32_t few, int64_t effort, bool divided) {
  Crowds crowds;
  for (uint32_t seed = 0; seed < count; ++seed) {
    const Case c = Crowd(seed);
    const double bound = Bound(c);
    const Planned plan = Plan(c, effort, divided);
    EXPECT_LE(plan.on_paths, bound * (1 + 1e-6)) << seed;
    EXPECT_LE(plan.use, plan.on_paths * 1.05) << seed << ": simulated means may be half an iteration off";
    crowds.use += plan.use / bound / count;
    crowds.on_paths += plan.on_paths / bound / count;
    crowds.use_of_paths += plan.use / plan.on_paths / count;
    crowds.worst = std::min(crowds.worst, plan.use / bound);
    if (seed < few) crowds.few += plan.use / bound / few;
  }
  return crowds;
}

// What is missing to the bound is due to whole flows on single paths, to the search, or to the bound itself: the bound on
// the chosen paths, flows that may be divided and ten times the search tell how much is due to the first two.
TEST(Quality, ManyJobsComeNearTheBound) {
  constexpr uint32_t kCrowds = 100, kLonger = 6;
  const char* wanted = std::getenv("WEFT_QUALITY_EFFORT");
  const int64_t effort = wanted ? std::max(1, std::atoi(wanted)) : 1;
  for (const bool divided : {false, true}) {
    const Crowds crowds = PlanCrowds(kCrowds, kLonger, effort, divided);
    std::printf("12 to 20 jobs, %s: %u cases, mean %.4f, worst %.4f of the bound; bound on the chosen paths %.4f of it, use %.4f of "
                "that; the first %u cases: %.4f, with ten times the search %.4f\n", divided ? "flows may be divided" : "whole flows",
                kCrowds, crowds.use, crowds.worst, crowds.on_paths, crowds.use_of_paths, kLonger, crowds.few,
                PlanCrowds(kLonger, kLonger, 10 * effort, divided).use);
    EXPECT_GE(crowds.use, divided ? 0.88 : 0.78);
  }
}

TEST(Quality, LinkUseIsWithinFivePercentOfTheMultiCommodityBound) {
  double sum = 0, worst = 1;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const int leaves = 3 + static_cast<int>(random() % 3), spines = 2 + static_cast<int>(random() % 3), hosts = 4;
    FlowProblem problem{.topology = LeafSpine(leaves, spines, hosts, GigabytesPerSecond(1))};
    if (seed % 3 == 2) problem.topology = ThreeTier(leaves, 1, hosts, 1 + static_cast<int>(seed % 2));
    const size_t all = static_cast<size_t>(leaves * hosts);
    for (size_t f = 0; f < 2 * all; ++f) {
      const size_t from = random() % all;
      const size_t to = (from + 1 + random() % (all - 1)) % all;
      problem.flows.push_back({.key = f, .job = "j", .demand = MegabitsPerSecond(static_cast<double>(100 + random() % 900)),
                               .paths = Paths(problem.topology, from, to)});
    }
    const FlowPlan plan = ChoosePaths(problem);
    ASSERT_GT(plan.bottleneck_bound, 0) << seed;
    const double ratio = plan.bottleneck_after / plan.bottleneck_bound;
    EXPECT_LE(ratio, 1.05) << seed;
    sum += ratio;
    worst = std::max(worst, ratio);
  }
  std::printf("link use: 100 Clos instances, mean %.4f, worst %.4f of the fractional bound\n", sum / 100, worst);
}

}  // namespace
}  // namespace weft::planner::flows

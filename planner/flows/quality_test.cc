// How close the searches come to the optimum, on random small clusters (at most 20 hosts, 5 jobs, 3 classes) with every
// enumeration inside the planner switched off, in the measure of periodic.h: GPU use. Prints the figures of docs/flows.md.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>

#include "planner/flows/fractional.h"
#include "planner/flows/job_paths.h"
#include "planner/flows/priority.h"

namespace weft::planner {
namespace {

constexpr uint32_t kCases = 1500;
constexpr PeriodicOptions kShort{.warmup = 2, .measured = 10};

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

/// 2 to 4 leaves of 2 to 5 hosts; jobs are rings over hosts of their own, spread at random.
Case Random(uint32_t seed, size_t most_choices) {
  std::mt19937 random(seed);
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1)); };
  const int leaves = between(2, 4), hosts = between(2, 5);
  Case made{.topology = LeafSpine(leaves, between(2, 3), hosts, GigabytesPerSecond(1))};
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

double BestPaths(const Case& c) {
  JobPaths paths;
  for (const RoutableJob& job : c.jobs) paths.emplace_back(job.flows.size(), 0);
  double best = 0;
  for (;;) {
    best = std::max(best, GpuUse(c.topology, c.jobs, paths, kShort));
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
    std::printf("%s: %d cases, mean %.4f, worst %.4f of the optimum (%s: %.4f)\n", what, cases, sum / cases, worst,
                plain_name, plain / cases);
    return sum / cases;
  }
};

TEST(Quality, PathsReachTheEnumeratedOptimum) {
  Score score;
  for (uint32_t seed = 0; score.cases < static_cast<int>(kCases); ++seed) {
    const Case c = Random(seed, 128);
    if (c.jobs.size() < 2) continue;
    const JobPathPlan plan = PlanJobPaths(c.topology, c.jobs, {.simulation = kShort});
    score.Add(plan.gpu_use, plan.gpu_use_balanced, BestPaths(c));
  }
  EXPECT_GE(score.Print("paths", "balanced by load only"), 0.99);
}

TEST(Quality, PrioritiesAndCompressionReachTheEnumeratedOptimum) {
  Score orders, classes;
  for (uint32_t seed = 0; orders.cases < static_cast<int>(kCases); ++seed) {
    const Case c = Random(seed, SIZE_MAX);
    if (c.jobs.size() < 2) continue;
    // Paths as a hash would have them, so that jobs meet.
    std::mt19937 random(seed + 7);
    std::vector<PeriodicJob> jobs;
    for (const RoutableJob& job : c.jobs) {
      std::vector<size_t> paths;
      for (const RoutableFlow& flow : job.flows) paths.push_back(random() % flow.paths.size());
      jobs.push_back(OnPaths(job, paths));
    }
    const std::vector<BitsPerSecond> capacity = Capacities(c.topology);
    const PeriodicSimulator simulator(capacity, jobs, kShort);
    PriorityOptions options{.classes = 3, .enumerate_up_to = 0, .simulation = kShort};
    const PriorityPlan plan = PlanPriorities(capacity, jobs, options);
    options.evaluations = 0;
    const PriorityPlan plain = PlanPriorities(capacity, jobs, options);
    const auto use = [&](const PriorityPlan& p) {
      std::vector<int32_t> place(jobs.size());
      for (size_t i = 0; i < p.order.size(); ++i) place[p.order[i]] = static_cast<int32_t>(i);
      return simulator.Run(place).gpu_use;
    };
    orders.Add(use(plan), use(plain), EnumerateOrders(simulator).gpu_use);
    classes.Add(simulator.Run(plan.classes).gpu_use, simulator.Run(plain.classes).gpu_use,
                EnumerateClasses(simulator, 3).gpu_use);
  }
  EXPECT_GE(orders.Print("priorities", "corrected intensity only"), 0.99);
  EXPECT_GE(classes.Print("compression", "intensity and least cut only"), 0.99);
}

TEST(Quality, LinkUseIsWithinFivePercentOfTheMultiCommodityBound) {
  double sum = 0, worst = 1;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const int leaves = 3 + static_cast<int>(random() % 3), spines = 2 + static_cast<int>(random() % 3), hosts = 4;
    FlowProblem problem{.topology = LeafSpine(leaves, spines, hosts, GigabytesPerSecond(1))};
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
}  // namespace weft::planner

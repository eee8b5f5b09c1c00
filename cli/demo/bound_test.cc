#include "cli/demo/bound.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace weft::cli {
namespace {

const BoundFabric kFabric{.spines = 2, .hosts_per_leaf = 5, .goodput = MegabitsPerSecond(80)};
const std::vector<CableFactor> kSlowCable{{.leaf = 1, .spine = 1, .factor = 0.5}};

// Four ranks, two under each leaf: one flow in each direction across the spines. 2 MB in eight buckets that are ready evenly over
// backward, from 0.1 to 0.29 s.
BoundJob Job(const std::string& name, std::vector<std::string> hosts) {
  BoundJob job{.name = name, .hosts = std::move(hosts), .program = nullptr, .computations = {}, .iteration = {}};
  job.iteration.compute = Seconds(0.3);
  job.iteration.after_backward = Seconds(0.01);
  for (int i = 1; i <= 8; ++i) job.iteration.buckets.push_back({Bytes(250'000), Seconds(0.1 + 0.19 * i / 8)});
  return job;
}

std::vector<BoundJob> TwoJobs() {
  return {Job("a", {"h1", "h2", "h6", "h7"}), Job("b", {"h3", "h4", "h8", "h9"})};
}

/// Of such buckets at `rate`, where each takes longer than the next one needs to be ready.
double IterationAt(double bytes_per_second) { return 0.1 + 0.19 / 8 + 8 * 1.5 * 250'000 / bytes_per_second + 0.01; }

TEST(Bound, TwoJobsOnTwoSpinesDoNotDisturbEachOther) {
  const Bound bound = ComputeBound(kFabric, TwoJobs(), {}, {});
  for (size_t j = 0; j < 2; ++j) {
    EXPECT_NEAR(bound.alone[j].count(), IterationAt(1e7), 1e-9);
    EXPECT_NEAR(bound.iterations[j].count(), IterationAt(1e7), 1e-9);
  }
}

TEST(Bound, ASlowCableAndABackgroundFlowLeaveWhatTheCutLetsThrough) {
  // leaf1 -> leaf2: half of one spine less 24 Mbit/s, all of the other: 16 + 80 = 96 Mbit/s for two flows.
  const Bound bound = ComputeBound(kFabric, TwoJobs(), kSlowCable,
                                   {{.from = "h5", .to = "h10", .spine = 1, .rate = MegabitsPerSecond(24)}});
  // No schedule beats the cut: each iteration of both jobs puts 2 x 3 MB over it. None is worse than lock step, in which
  // both always share.
  for (size_t j = 0; j < 2; ++j) {
    EXPECT_NEAR(bound.alone[j].count(), IterationAt(1e7), 1e-9);
    EXPECT_GE(bound.iterations[j].count(), 2 * 3e6 / 12e6 - 1e-6);
    EXPECT_LE(bound.iterations[j].count(), IterationAt(6e6) + 1e-6);
  }
}

// Jobs whose compute differs a little run through all phases to each other if nothing holds them; simulated so, the "best" was
// up to 15 % above that of equal jobs, and every bound that followed from another sample of compute another number.
TEST(Bound, ALittleMoreComputeMakesTheBoundALittleLonger) {
  BoundFabric fabric = kFabric;
  fabric.goodput = MegabitsPerSecond(14.34);
  const std::vector<std::pair<int64_t, double>> buckets{{67'328, 0.45}, {83'456, 0.7},  {116'480, 0.78}, {83'456, 0.98},
                                                        {49'664, 0.99}, {262'144, 0.99}, {65'536, 0.99}};
  const auto bound_of = [&](double a, double b, const Bound* near) {
    std::vector<BoundJob> jobs = TwoJobs();
    for (size_t j = 0; j < jobs.size(); ++j) {
      auto& iteration = jobs[j].iteration;
      iteration.compute = Seconds(j == 0 ? a : b);
      iteration.buckets.clear();
      for (const auto& [bytes, share] : buckets) iteration.buckets.push_back({Bytes(bytes), iteration.compute * share});
    }
    return ComputeBound(fabric, jobs, kSlowCable, {{.from = "h5", .to = "h10", .spine = 2, .rate = MegabitsPerSecond(4.3)}}, near);
  };
  const Bound equal = bound_of(0.6, 0.6, nullptr);
  for (const double more : {1.02, 1.05, 1.1}) {
    const Bound bound = bound_of(0.6, 0.6 * more, nullptr), near = bound_of(0.6, 0.6 * more, &equal);
    double sum = 0, of_near = 0;
    for (size_t j = 0; j < 2; ++j) {
      EXPECT_GE(bound.iterations[j].count(), equal.iterations[j].count() * 0.98) << j << " with " << more;
      EXPECT_LE(bound.iterations[j].count(), equal.iterations[j].count() * more) << j << " with " << more;
      sum += bound.iterations[j].count();
      of_near += near.iterations[j].count();
    }
    EXPECT_GE(of_near, sum - 1e-9) << "all of the grid are tried";
    EXPECT_LE(of_near, sum * 1.02) << "and the best is near the known one";
  }
}

planner::ModelSpec SmallModel() {
  return {.name = "small", .layers = 4, .hidden = 32, .heads = 4, .kv_heads = 4, .head_dim = 8, .ffn_hidden = 128, .vocab = 256,
          .max_positions = 64};
}

/// A program of four ranks whose computations take 1 to 3 ms each.
BoundJob ProgramJob(const planner::Strategy& strategy, uint32_t seed) {
  planner::JobSpec job{.name = "p", .model = SmallModel(), .global_batch = 16, .sequence = 32,
                       .precision = planner::Precision::kFp32, .gpus = 4};
  auto program = planner::ExpandProgram(job, strategy, planner::ElementType::kFloat32);
  EXPECT_TRUE(program) << program.error().message();
  BoundJob made{.name = "p", .hosts = {"h1", "h2", "h6", "h7"},
                .program = std::make_shared<const planner::StepProgram>(std::move(*program)), .computations = {}, .iteration = {}};
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(0.001, 0.003);
  for (const planner::RankPlace& rank : made.program->ranks) {
    std::vector<Seconds>& times = made.computations.emplace_back();
    for (const planner::Instruction& i : made.program->classes[static_cast<size_t>(rank.rank_class)].instructions) {
      times.emplace_back(planner::Communicates(i.action) ? 0 : draw(random));
    }
  }
  return made;
}

double Computed(const BoundJob& job) {
  double sum = 0;
  for (const auto& rank : job.computations) {
    for (const Seconds time : rank) sum += time.count();
  }
  return sum;
}

const planner::Strategy kPrograms[] = {{.dp = 2, .pp = 2, .micro_batch = 2}, {.dp = 4, .micro_batch = 2}, {.dp = 2, .tp = 2}};

// While messages take no time some rank can always compute: the core is never idle, whatever waits for what.
TEST(Bound, AProgramWhoseTrafficTakesNoTimeIsItsCoresWork) {
  BoundFabric fabric = kFabric;
  fabric.goodput = MegabitsPerSecond(1e9);
  for (const planner::Strategy& strategy : kPrograms) {
    const BoundJob job = ProgramJob(strategy, 1);
    EXPECT_NEAR(ComputeBound(fabric, {job}, {}, {}).iterations[0].count(), Computed(job), 1e-4 * Computed(job));
  }
}

// Neither core nor busiest link does more than it can, and at the worst one waits for the other all the time.
TEST(Bound, AProgramIsNoFasterThanItsCoreAndItsLinks) {
  BoundFabric fabric = kFabric;
  fabric.goodput = MegabitsPerSecond(15);
  for (const planner::Strategy& strategy : kPrograms) {
    const BoundJob job = ProgramJob(strategy, 2);
    const double iteration = ComputeBound(fabric, {job}, {}, {}).iterations[0].count();
    EXPECT_GE(iteration, Computed(job) - 1e-9);
    EXPECT_GE(iteration, CommunicationOf(fabric, job).count() - 1e-9);
    EXPECT_LT(iteration, Computed(job) + 4 * CommunicationOf(fabric, job).count());
  }
}

TEST(Bound, ProgramsThatMeetAreNoFasterThanAlone) {
  BoundFabric fabric = kFabric;
  fabric.goodput = MegabitsPerSecond(15);
  BoundJob a = ProgramJob(kPrograms[0], 3), b = ProgramJob(kPrograms[1], 4);
  b.name = "b";
  b.hosts = {"h3", "h4", "h8", "h9"};
  const Bound bound = ComputeBound(fabric, {a, b}, kSlowCable, {});
  for (size_t j = 0; j < 2; ++j) EXPECT_GE(bound.iterations[j], bound.alone[j] * 0.999);
}

}  // namespace
}  // namespace weft::cli

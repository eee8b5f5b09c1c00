#include "cli/demo/bound.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

// Four ranks, two under each leaf: one flow in each direction across the spines.
BoundJob Job(const std::string& name, std::vector<std::string> hosts) {
  BoundJob job{.name = name, .hosts = std::move(hosts), .iteration = {}};
  job.iteration.compute = Seconds(0.3);
  job.iteration.after_backward = Seconds(0.01);
  job.iteration.ranks = 4;
  job.iteration.buckets = MakeBuckets(Bytes(2'000'000), Bytes(250'000), Seconds(0.1), Seconds(0.19));
  return job;
}

const BoundFabric kFabric{.leaves = 2, .spines = 2, .hosts_per_leaf = 5, .goodput = MegabitsPerSecond(80)};

std::vector<BoundJob> TwoJobs() {
  return {Job("a", {"h1", "h2", "h6", "h7"}), Job("b", {"h3", "h4", "h8", "h9"})};
}

TEST(Bound, TwoJobsOnTwoSpinesDoNotDisturbEachOther) {
  const auto jobs = TwoJobs();
  const Bound bound = ComputeBound(kFabric, jobs, {}, {});
  EXPECT_NEAR(bound.utilisation, 1, 1e-3);
  const Seconds alone = PredictIteration(jobs[0].iteration, kFabric.goodput).iteration;
  EXPECT_NEAR(bound.iterations[0].count(), alone.count(), 1e-9);
  EXPECT_NEAR(bound.iterations[1].count(), alone.count(), 1e-9);
}

TEST(Bound, ASlowCableAndABackgroundFlowLeaveWhatTheCutLetsThrough) {
  // leaf1 -> leaf2: half of one spine less 24 Mbit/s, all of the other: 16 + 80 = 96 Mbit/s for two flows: 48 each.
  const auto jobs = TwoJobs();
  const Bound bound = ComputeBound(kFabric, jobs, {{.leaf = 1, .spine = 1, .factor = 0.5}},
                                   {{.from = "h5", .to = "h10", .spine = 1, .rate = MegabitsPerSecond(24)}});
  EXPECT_NEAR(bound.shared_rate.value(), 48e6, 0.5e6);
  EXPECT_NEAR(bound.alone_rates[0].value(), 80e6, 1e3);
  // No schedule beats the cut: each iteration of both jobs puts 2 x 3 MB over it. None is worse than lock step, in which
  // both always share.
  const double cut = 2 * 3e6 * 8 / 96e6;
  const double lock_step = PredictIteration(jobs[0].iteration, bound.shared_rate).iteration.count();
  for (const Seconds iteration : bound.iterations) {
    EXPECT_GE(iteration.count(), cut - 1e-6);
    EXPECT_LE(iteration.count(), lock_step + 1e-6);
  }
}

// Jobs whose compute differs a little run through all phases to each other if nothing holds them; simulated so, the "best" was
// up to 15 % above that of equal jobs, and every bound that followed from another sample of compute another number.
TEST(Bound, ALittleMoreComputeMakesTheBoundALittleLonger) {
  BoundFabric fabric = kFabric;
  fabric.goodput = MegabitsPerSecond(14.34);
  // The demo's buckets, and when they were there as shares of compute.
  const std::vector<std::pair<int64_t, double>> buckets{{67'328, 0.45}, {83'456, 0.7},  {116'480, 0.78}, {83'456, 0.98},
                                                        {49'664, 0.99}, {262'144, 0.99}, {65'536, 0.99}};
  const auto bound_of = [&](double a, double b) {
    std::vector<BoundJob> jobs = TwoJobs();
    for (size_t j = 0; j < jobs.size(); ++j) {
      auto& iteration = jobs[j].iteration;
      iteration.compute = Seconds(j == 0 ? a : b);
      iteration.buckets.clear();
      for (const auto& [bytes, share] : buckets) iteration.buckets.push_back({Bytes(bytes), iteration.compute * share});
    }
    return ComputeBound(fabric, jobs, {{.leaf = 1, .spine = 1, .factor = 0.5}},
                        {{.from = "h5", .to = "h10", .spine = 2, .rate = MegabitsPerSecond(4.3)}});
  };
  const Bound equal = bound_of(0.6, 0.6);
  for (const double more : {1.02, 1.05, 1.1}) {
    const Bound bound = bound_of(0.6, 0.6 * more);
    for (size_t j = 0; j < 2; ++j) {
      EXPECT_GE(bound.iterations[j].count(), equal.iterations[j].count() * 0.98) << j << " with " << more;
      EXPECT_LE(bound.iterations[j].count(), equal.iterations[j].count() * more) << j << " with " << more;
    }
  }
}

}  // namespace
}  // namespace weft::cli

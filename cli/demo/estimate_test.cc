#include "cli/demo/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace weft::cli {
namespace {

using ::testing::DoubleNear;
using ::testing::SizeIs;

const BoundFabric kFabric{.spines = 2, .hosts_per_leaf = 5, .goodput = MegabitsPerSecond(15)};

/// As the demo's: 0.4 s of compute, 750 KB of gradients in six buckets, ready from 60 % of it on.
BoundJob Job(const std::string& name, std::vector<std::string> hosts) {
  BoundJob job{.name = name, .hosts = std::move(hosts), .program = nullptr, .computations = {}, .iteration = {}};
  job.iteration.buckets.resize(6, {Bytes(125'000), Seconds(0)});
  return job;
}

/// What the compute of a step is made of when the machine takes `factor` times as long as usual.
Block Compute(double factor) {
  Block block{.forward = Seconds(0.13 * factor), .backward = Seconds(0.26 * factor), .update = Seconds(0.01 * factor)};
  for (int i = 0; i < 6; ++i) block.ready.emplace_back((0.24 + 0.03 * i) * factor);
  return block;
}

struct Machine {
  std::function<double(double)> slowness = [](double) { return 1.0; };  ///< at a time in seconds
  double excess = 1.0;  ///< of an iteration over the bound
  double noise = 0;     ///< standard deviation of a step's times, relative
  unsigned seed = 1;
};

/// Steps of a phase of `length` seconds. An ordinary one takes the bound's time on the machine as it is then, and more.
std::vector<TrainingStep> Train(const BoundJob& job, double length, const Machine& machine) {
  std::mt19937 random(machine.seed);
  std::normal_distribution<double> normal(0, machine.noise);
  std::vector<TrainingStep> steps;
  double now = 100;
  for (int64_t i = 0; now < 100 + length; ++i) {
    TrainingStep step{.step = i};
    const double factor = machine.slowness(now - 100) * std::exp(normal(random));
    const Block compute = Compute(factor);
    const BoundJob timed = WithCompute(job, compute);
    step.iteration = ComputeBound(kFabric, {timed}, {}, {}).iterations[0] * machine.excess;
    step.update = compute.update;
    if (i % kBlockSteps == kBlockSteps - 1) {
      step.iteration += compute.compute();
      step.apart = ApartCompute{.forward = compute.forward, .backward = compute.backward, .ready = compute.ready};
    } else {
      step.iteration = step.iteration * std::exp(normal(random));
    }
    now += step.iteration.count();
    step.time = Seconds(now);
    steps.push_back(std::move(step));
  }
  return steps;
}

Ratio RatioOf(const Machine& machine, double length = 40) {
  const BoundJob job = Job("a", {"h1", "h2", "h6", "h7"});
  return EstimatePhase(kFabric, {PhaseJob{job, Train(job, length, machine)}}, Seconds(100), Seconds(1e9), {}, {})[0].ratio;
}

// The median lies between the k-th smallest and the k-th largest of n values unless fewer than k lie below it, or above:
// 2 * sum over i < k of C(n, i) / 2^n. n = 9, k = 2: 20 / 512; k = 3 would be 92 / 512. n = 6, k = 1: 2 / 64. n = 5: 2 / 32.
TEST(MedianOf, TheIntervalHoldsTheMedianWith95PerCent) {
  const Ratio nine = MedianOf({9, 1, 8, 2, 7, 3, 6, 4, 5});
  EXPECT_EQ(nine.value, 5);
  EXPECT_EQ(nine.low, 2);
  EXPECT_EQ(nine.high, 8);
  const Ratio six = MedianOf({6, 5, 4, 3, 2, 1});
  EXPECT_EQ(six.value, 3.5);
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
}

TEST(MedianOf, FewerThanSixValuesHaveNoInterval) {
  const Ratio five = MedianOf({1, 2, 3, 4, 5});
  EXPECT_EQ(five.value, 3);
  EXPECT_EQ(five.low, 0);
  EXPECT_EQ(five.blocks, 5);
  EXPECT_EQ(MedianOf({}).value, 0);
}

TEST(MedianOf, TheIntervalMissesAsSeldomAsItSays) {
  // Nine draws around 1: missed with 20 / 512 = 3.9 %; of 2000 sets 78 +- 8.7.
  std::mt19937 random(5);
  std::lognormal_distribution<double> draw(0, 0.1);
  int missed = 0;
  for (int set = 0; set < 2000; ++set) {
    std::vector<double> values(9);
    for (double& value : values) value = draw(random);
    const Ratio ratio = MedianOf(std::move(values));
    missed += ratio.low > 1 || ratio.high < 1;
  }
  EXPECT_NEAR(missed, 78, 4 * 8.7);
}

TEST(Judge, TellsOnlyWhereTheWholeIntervalIsOnOneSide) {
  EXPECT_EQ(Judge({.value = 1.05, .low = 1.01, .high = 1.1, .blocks = 9}), Verdict::kWithin);
  EXPECT_EQ(Judge({.value = 1.05, .low = 1.01, .high = 1.11, .blocks = 9}), Verdict::kCannotTell);
  EXPECT_EQ(Judge({.value = 1.15, .low = 1.09, .high = 1.2, .blocks = 9}), Verdict::kCannotTell);
  EXPECT_EQ(Judge({.value = 1.15, .low = 1.11, .high = 1.2, .blocks = 9}), Verdict::kFellShort);
  EXPECT_EQ(Judge({.value = 1.5, .blocks = 3}), Verdict::kCannotTell);
  EXPECT_EQ(Judge({}), Verdict::kNotMeasured);
}

/// Steps of 1 s, of which the `i`-th takes 1 ms more each, every fourth timed.
std::vector<TrainingStep> Steps(int count) {
  std::vector<TrainingStep> steps;
  for (int i = 0; i < count; ++i) {
    TrainingStep step{.step = i, .iteration = Seconds(1 + i * 0.001), .time = Seconds(2 * i + 2)};
    if (i % kBlockSteps == kBlockSteps - 1) step.apart.emplace();
    steps.push_back(std::move(step));
  }
  return steps;
}

TEST(CutBlocks, EachStepBelongsToTheNearestTimedOneOnce) {
  // 3: 1, 2 and 4; 5 is as far from 3 as from 7 and goes to the later one. 7: 5, 6 and 8. 11: 9 and 10, none after it.
  const auto blocks = CutBlocks(Steps(12), Seconds(0), Seconds(100));
  ASSERT_THAT(blocks, SizeIs(2));
  EXPECT_NEAR(blocks[0].iteration.count(), 1 + 0.001 * (1 + 2 + 4) / 3, 1e-12);
  EXPECT_NEAR(blocks[1].iteration.count(), 1 + 0.001 * (5 + 6 + 8) / 3, 1e-12);
  EXPECT_NEAR(blocks[1].middle.count(), 16 - 1.007, 1e-12);
}

TEST(CutBlocks, StepsThatDoNotLieInThePhaseDoNotCount) {
  // Step 2 began at 4.998 and step 8 ended at 18.
  EXPECT_THAT(CutBlocks(Steps(12), Seconds(4.999), Seconds(18)), SizeIs(0));
  EXPECT_THAT(CutBlocks(Steps(12), Seconds(4.997), Seconds(18)), SizeIs(1));
  EXPECT_THAT(CutBlocks(Steps(12), Seconds(4.997), Seconds(18.001)), SizeIs(2));
}

TEST(CutBlocks, StepsThatSayWhatTheyComputeMakeBlocksInARow) {
  std::vector<TrainingStep> steps;
  for (int i = 0; i < 11; ++i) {
    steps.push_back({.step = i, .iteration = Seconds(1), .time = Seconds(i + 1), .computations = {{Seconds(0.1 * i), Seconds(0)}, {Seconds(1)}}});
  }
  const auto blocks = CutBlocks(steps, Seconds(1), Seconds(100));  // from the second one on: ten
  ASSERT_THAT(blocks, SizeIs(2));
  EXPECT_NEAR(blocks[0].iteration.count(), 1, 1e-12);
  EXPECT_NEAR(blocks[0].computations[0][0].count(), 0.1 * (1 + 2 + 3 + 4) / 4, 1e-12);
  EXPECT_NEAR(blocks[1].compute().count(), 0.1 * (5 + 6 + 7 + 8) / 4 + 1, 1e-12) << "of all ranks, which share a core";
  EXPECT_NEAR(MedianBlock(blocks).computations[0][0].count(), (0.25 + 0.65) / 2, 1e-12);
}

TEST(EstimatePhase, AMachineThatDriftsMovesBothSides) {
  // From its usual speed to little more than half of it.
  const Ratio ratio = RatioOf({.slowness = [](double t) { return 1 + t / 50; }, .excess = 1.05, .noise = 0.02});
  EXPECT_THAT(ratio.value, DoubleNear(1.05, 0.015));
  EXPECT_EQ(Judge(ratio), Verdict::kWithin) << ratio.low << " to " << ratio.high;
}

TEST(EstimatePhase, AProcessThatTakesHalfTheCoreNowAndThenChangesLittle) {
  const auto disturbed = [](double t) { return std::fmod(t, 12) < 5 ? 2.0 : 1.0; };
  const Machine quiet{.excess = 1.05, .noise = 0.02};
  Machine beside = quiet;
  beside.slowness = disturbed;
  EXPECT_THAT(RatioOf(beside, 60).value, DoubleNear(RatioOf(quiet, 60).value, 0.03));
}

TEST(EstimatePhase, ARunThatIsSlowIsCalled) {
  const Ratio ratio = RatioOf({.slowness = [](double t) { return 1 + t / 80; }, .excess = 1.2, .noise = 0.03});
  EXPECT_EQ(Judge(ratio), Verdict::kFellShort) << ratio.low << " to " << ratio.high;
}

TEST(EstimatePhase, NoiseIsNotCalledSlow) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    const Ratio ratio = RatioOf({.excess = 1.03, .noise = 0.15, .seed = seed});
    EXPECT_NE(Judge(ratio), Verdict::kFellShort) << "seed " << seed << ": " << ratio.low << " to " << ratio.high;
  }
}

TEST(EstimatePhase, TheBoundTakesTheComputeOfBothJobsAtThatTime) {
  const std::vector<BoundJob> jobs{Job("a", {"h1", "h2", "h6", "h7"}), Job("b", {"h3", "h4", "h8", "h9"})};
  std::vector<PhaseJob> phase;
  for (const BoundJob& job : jobs) phase.push_back({job, Train(job, 30, {.excess = 1.04})});
  const auto estimates = EstimatePhase(kFabric, phase, Seconds(100), Seconds(1e9), {}, {});
  const Bound bound = ComputeBound(kFabric, {WithCompute(jobs[0], Compute(1)), WithCompute(jobs[1], Compute(1))}, {}, {});
  for (size_t j = 0; j < jobs.size(); ++j) {
    EXPECT_NEAR(estimates[j].compute.count(), 0.4, 1e-9);
    EXPECT_NEAR(estimates[j].bound.count(), bound.iterations[j].count(), 1e-9);
    EXPECT_NEAR(estimates[j].ratio.value, 1.04, 1e-6);
    EXPECT_THAT(estimates[j].formula, ::testing::HasSubstr("of this phase"));
  }
}

TEST(EstimatePhase, WithoutATimedStepOfEachJobThereIsNoRatio) {
  const BoundJob job = Job("a", {"h1", "h2", "h6", "h7"});
  const auto estimate = EstimatePhase(kFabric, {PhaseJob{job, Train(job, 2, {})}}, Seconds(100), Seconds(1e9), {}, {})[0];
  EXPECT_GT(estimate.iteration.count(), 0);
  EXPECT_EQ(Judge(estimate.ratio), Verdict::kNotMeasured);
  EXPECT_EQ(estimate.bound.count(), 0);
}

}  // namespace
}  // namespace weft::cli

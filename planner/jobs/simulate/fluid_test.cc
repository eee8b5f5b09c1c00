#include "planner/jobs/simulate/fluid.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace weft::planner {
namespace {

const std::vector<BitsPerSecond> kOneLink{GigabytesPerSecond(1)};

FluidSetting Sends(int64_t megabytes, int32_t priority = 0, Gate gate = {}) {
  return {{{LinkId(0), Bytes(megabytes * 1'000'000)}}, priority, gate};
}

TEST(Fluid, AJobAloneTakesComputeAndCommunication) {
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(0.2), .release = Seconds(0.2)});
  fluid.Apply({Sends(100)});
  EXPECT_FALSE(fluid.Run(Seconds(3.1)));
  EXPECT_EQ(fluid.progress(0).durations.size(), 10u);  // of 0.3 s
  EXPECT_NEAR(fluid.progress(0).end, 3.0, 1e-9);
  EXPECT_NEAR(fluid.LinkBits()[0], 10 * 8e8, 1);
}

TEST(Fluid, StrictPriorityHoldsTheOtherBack) {
  // Both send at 0.2 s: the first until 0.3 s, the second then until 0.4 s.
  FluidSimulation fluid(kOneLink);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.2), .release = Seconds(0.2)});
  fluid.Apply({Sends(100, 1), Sends(100, 0)});
  fluid.Run(Seconds(0.41));
  EXPECT_NEAR(fluid.progress(1).durations.at(0), 0.3, 1e-9);
  EXPECT_NEAR(fluid.progress(0).durations.at(0), 0.4, 1e-9);
}

TEST(Fluid, WhatItForgetsOfTheRatesItSolvesAgain) {
  // 14 periods that fit nowhere pass through more sets of sending jobs than are remembered; Apply() forgets all.
  FluidSimulation once(kOneLink);
  std::vector<FluidSetting> settings;
  for (int j = 0; j < 14; ++j) {
    once.Add({.compute = Seconds(0.1 + 0.00731 * j), .release = Seconds(0.1 + 0.00731 * j)});
    settings.push_back(Sends(7, j % 3));
  }
  FluidSimulation often = once;
  once.Apply(settings);
  once.Run(Seconds(400));
  for (int i = 1; i <= 40; ++i) {
    often.Apply(settings);
    often.Run(Seconds(10.0 * i));
  }
  for (size_t j = 0; j < 14; ++j) {
    EXPECT_NEAR(static_cast<double>(once.progress(j).durations.size()),
                static_cast<double>(often.progress(j).durations.size()), 1);
  }
  EXPECT_NEAR(once.LinkBits()[0] / often.LinkBits()[0], 1, 1e-3);
}

TEST(Fluid, AFaultStretchesTheIterationUnderWay) {
  // 100 MB from 0.2 s on; at 0.25 s half is left and the link gives a tenth: 0.5 s more.
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(0.2), .release = Seconds(0.2)});
  fluid.Apply({Sends(100)});
  fluid.Run(Seconds(0.25));
  fluid.SetCapacity(LinkId(0), GigabytesPerSecond(0.1));
  fluid.Apply({Sends(100)});
  fluid.Run(Seconds(0.8));
  EXPECT_NEAR(fluid.progress(0).durations.at(0), 0.75, 1e-9);
}

TEST(Fluid, ADeadLinkHoldsForEver) {
  FluidSimulation fluid({{BitsPerSecond(0)}});
  fluid.Add({.compute = Seconds(0.2), .release = Seconds(0.1)});
  fluid.Apply({Sends(100)});
  EXPECT_FALSE(fluid.Run(Seconds(100)));
  EXPECT_TRUE(fluid.progress(0).durations.empty());
}

TEST(Fluid, AJobLeavesAfterItsIterations) {
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(0.2), .release = Seconds(0.2), .iterations = 3});
  fluid.Apply({Sends(100)});
  EXPECT_TRUE(fluid.Run(Seconds(10)));
  EXPECT_NEAR(fluid.now().count(), 0.9, 1e-9);
  EXPECT_FALSE(fluid.present(0));
  EXPECT_NEAR(fluid.progress(0).left, 0.9, 1e-9);
}

TEST(Fluid, GatesInterleaveBursts) {
  // Two jobs that compute 0.5 s and send 0.5 s: half a period apart they never meet.
  FluidSimulation fluid(kOneLink);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.5), .release = Seconds(0.5)});
  fluid.Apply({Sends(500, 0, {Seconds(1), Seconds(0)}), Sends(500, 0, {Seconds(1), Seconds(0.5)})});
  fluid.Run(Seconds(10.6));
  for (const double duration : fluid.progress(0).durations) EXPECT_NEAR(duration, 1, 1e-9);
  EXPECT_NEAR(fluid.progress(1).durations.at(0), 1.5, 1e-9);  // it waits for its first opening
  EXPECT_NEAR(fluid.progress(1).durations.at(1), 1, 1e-9);
}

TEST(Fluid, AGateThatAJobKeepsMissingLapses) {
  // The job takes 1.3 s, its gate opens every 1 s: it would run at 2 s for ever.
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(0.8), .release = Seconds(0.8)});
  fluid.Apply({Sends(500, 0, {Seconds(1), Seconds(0)})});
  fluid.Run(Seconds(40));
  EXPECT_NEAR(fluid.progress(0).durations.at(1), 2, 1e-9);
  EXPECT_NEAR(fluid.progress(0).durations.back(), 1.3, 1e-9);
}

TEST(Fluid, AForkGoesOnAsTheOriginalWould) {
  FluidSimulation fluid(kOneLink);
  for (int j = 0; j < 3; ++j) fluid.Add({.compute = Seconds(0.1 + 0.07 * j), .release = Seconds(0.1)});
  const std::vector<FluidSetting> settings{Sends(100), Sends(80), Sends(130, 1)};
  fluid.Apply(settings);
  fluid.Run(Seconds(1.234));
  FluidSimulation fork = fluid.Fork();
  const size_t before = fluid.progress(2).durations.size();
  fork.Apply(settings);
  fork.Run(Seconds(5));
  fluid.Run(Seconds(5));
  EXPECT_EQ(fork.progress(2).durations.size(), fluid.progress(2).durations.size() - before);
  EXPECT_NEAR(fork.progress(2).end, fluid.progress(2).end, 1e-9);
}

TEST(Fluid, TheTraceAccountsForEverySecondAndEveryByte) {
  FluidSimulation fluid(kOneLink);
  FluidTrace trace;
  fluid.set_trace(&trace);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.3), .release = Seconds(j == 0 ? 0.1 : 0.3)});
  fluid.Apply({Sends(100), Sends(150, 0, {Seconds(0.6), Seconds(0.05)})});
  fluid.Run(Seconds(6));
  double busy = 0, sent = 0;
  for (const JobPhase& phase : trace.phases) {
    if (phase.job == 1) busy += (phase.end - phase.begin).count();
  }
  EXPECT_NEAR(busy, 6, 0.61);  // the last phase has not ended
  for (size_t s = 0; s < trace.samples.size(); ++s) {
    const double until = s + 1 < trace.samples.size() ? trace.samples[s + 1].at.count() : 6;
    sent += trace.samples[s].rate.value() * (until - trace.samples[s].at.count());
    EXPECT_LE(trace.samples[s].rate.value(), 8e9 * (1 + 1e-9));
  }
  EXPECT_NEAR(sent, fluid.LinkBits()[0], 1e-6 * sent);
}

// Four jobs begin to send at one instant and change each other's rates: each link keeps the last word of it.
TEST(Fluid, TheTraceHasOneSamplePerLinkAndInstant) {
  const std::vector<BitsPerSecond> capacity(3, GigabytesPerSecond(1));
  FluidSimulation fluid(capacity);
  FluidTrace trace;
  fluid.set_trace(&trace);
  std::vector<FluidSetting> settings;
  for (int j = 0; j < 4; ++j) {
    fluid.Add({.compute = Seconds(0.2), .release = Seconds(0.2)});
    settings.push_back({{{LinkId(0), Bytes(100'000'000)}, {LinkId(1), Bytes(50'000'000)}}, 0, {}});
    if (j == 3) settings.back().loads.push_back({LinkId(2), Bytes(10'000'000)});
  }
  fluid.Apply(settings);
  fluid.Run(Seconds(0.5));
  fluid.Apply(settings);  // all rates to 0 and back, while they send
  fluid.Run(Seconds(6));
  std::set<std::pair<int32_t, double>> seen;
  double sent[3] = {}, since[3] = {}, rate[3] = {}, before = 0;
  for (const LinkSample& sample : trace.samples) {
    const size_t l = sample.link.index();
    const double at = sample.at.count();
    EXPECT_TRUE(seen.emplace(sample.link.value(), at).second) << "link " << l << " twice at " << at << " s";
    EXPECT_GE(at, before);
    before = at;
    sent[l] += rate[l] * (at - since[l]);
    since[l] = at;
    rate[l] = sample.rate.value();
  }
  for (size_t l = 0; l < 3; ++l) {
    sent[l] += rate[l] * (6 - since[l]);
    EXPECT_GT(sent[l], 0);
    EXPECT_NEAR(sent[l], fluid.LinkBits()[l], 1e-6 * sent[l]);
  }
}

/// Against PeriodicSimulator, which was written apart from it and knows no groups.
TEST(Fluid, AgreesWithThePeriodicSimulator) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
    };
    const std::vector<BitsPerSecond> capacity{GigabytesPerSecond(1), GigabytesPerSecond(2), GigabytesPerSecond(0.5)};
    std::vector<PeriodicJob> jobs;
    std::vector<int32_t> classes;
    FluidSimulation fluid(capacity);
    std::vector<FluidSetting> settings;
    for (int j = between(2, 6); j > 0; --j) {
      PeriodicJob job{.gpus = 8, .compute = Seconds(0.01 * between(5, 60))};
      job.release = job.compute * (between(0, 2) / 2.0);
      for (int32_t l = 0; l < 3; ++l) {
        if (between(0, 1) == 0) continue;
        const Bytes bytes(1'000'000 * int64_t{between(10, 300)});
        job.loads.push_back({LinkId(l), bytes, 1.0 * between(1, 3)});
      }
      classes.push_back(between(0, 2));
      fluid.Add({job.gpus, job.compute, job.release});
      settings.push_back({job.loads, classes.back()});
      jobs.push_back(std::move(job));
    }
    const SteadyState steady = PeriodicSimulator(capacity, jobs).Run(classes);
    fluid.Apply(settings);
    fluid.Run(steady.horizon * (1 - 1e-9));
    for (size_t j = 0; j < jobs.size(); ++j) {
      EXPECT_NEAR(static_cast<double>(fluid.progress(j).durations.size()), static_cast<double>(steady.whole[j]), 1)
          << "seed " << seed << ", job " << j;
    }
  }
}

}  // namespace
}  // namespace weft::planner

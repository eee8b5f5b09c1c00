#include "planner/network/fluid.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace weft::planner::inline network {
namespace {

const std::vector<BitsPerSecond> kOneLink{GigabytesPerSecond(1)};

FluidSetting Sends(int64_t megabytes, int32_t priority = 0, Gate gate = {}) {
  return {{{{LinkId(0), Bytes(megabytes * 1'000'000)}}}, priority, gate};
}

TEST(Fluid, AJobAloneTakesComputeAndCommunication) {
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.2), Seconds(0.2)}}});
  fluid.Apply({Sends(100)});
  EXPECT_FALSE(fluid.Run(Seconds(3.1)));
  EXPECT_EQ(fluid.progress(0).durations.size(), 10u);  // of 0.3 s
  EXPECT_NEAR(fluid.progress(0).end, 3.0, 1e-9);
  EXPECT_NEAR(fluid.LinkBits()[0], 10 * 8e8, 1);
}

TEST(Fluid, StrictPriorityHoldsTheOtherBack) {
  // Both send at 0.2 s: the first until 0.3 s, the second then until 0.4 s.
  FluidSimulation fluid(kOneLink);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.2), Seconds(0.2)}}});
  fluid.Apply({Sends(100, 1), Sends(100, 0)});
  fluid.Run(Seconds(0.41));
  EXPECT_NEAR(fluid.progress(1).durations.at(0), 0.3, 1e-9);
  EXPECT_NEAR(fluid.progress(0).durations.at(0), 0.4, 1e-9);
}

// At 0.25 s both have sent half of a second's share since 0.2 s: 50 MB together. The first begins anew as another job, of two bursts and half
// the compute; the second has 75 MB left and the link to itself until 0.3 s.
TEST(Fluid, ARestartGivesUpWhatIsUnderWayAndKeepsWhatWasCarried) {
  FluidSimulation fluid(kOneLink);
  FluidTrace trace;
  fluid.set_trace(&trace);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.2), Seconds(0.2)}}});
  fluid.Apply({Sends(100), Sends(100)});
  fluid.Run(Seconds(0.25));
  EXPECT_NEAR(fluid.LinkBits()[0], 4e8, 1);
  fluid.Restart(0, {.compute = Seconds(0.1), .bursts = {{Seconds(0.05), Seconds(0.1)}, {Seconds(0.1), Seconds(0.1)}}});
  EXPECT_NEAR(fluid.LinkBits()[0], 4e8, 1);
  FluidSetting two = Sends(10);
  two.loads.push_back(two.loads.front());
  fluid.Apply({two, Sends(100)});
  fluid.Run(Seconds(0.4));
  EXPECT_EQ(fluid.progress(0).begin, 0.25);
  ASSERT_GE(fluid.progress(0).durations.size(), 1u);
  // Released at 0.3 s, beside the other: 20 MB of both at half the rate; then 10 MB at 0.35 s.
  EXPECT_NEAR(fluid.progress(1).durations.at(0), 0.335, 1e-9);
  EXPECT_NEAR(fluid.progress(0).durations.at(0), 0.11, 1e-9);
  double bits = 0, since = 0, rate = 0;
  for (const LinkSample& sample : trace.samples) bits += rate * (sample.at.count() - since), since = sample.at.count(), rate = sample.rate.value();
  bits += rate * (0.4 - since);
  EXPECT_NEAR(bits / fluid.LinkBits()[0], 1, 1e-9);
}

TEST(Fluid, AJobThatIsRemovedLeavesTheLinkToTheOthers) {
  FluidSimulation fluid(kOneLink);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.2), Seconds(0.2)}}});
  fluid.Apply({Sends(100), Sends(100)});
  fluid.Run(Seconds(0.25));
  fluid.Remove(0);
  EXPECT_FALSE(fluid.present(0));
  EXPECT_EQ(fluid.progress(0).left, 0.25);
  EXPECT_NEAR(fluid.LinkBits()[0], 4e8, 1);
  fluid.Apply({FluidSetting(), Sends(100)});
  fluid.Run(Seconds(0.33));
  EXPECT_NEAR(fluid.progress(1).durations.at(0), 0.325, 1e-9);
  EXPECT_TRUE(fluid.progress(0).durations.empty());
  EXPECT_NEAR(fluid.LinkBits()[0], 4e8 + 6e8, 1);
}

TEST(Fluid, WhatItForgetsOfTheRatesItSolvesAgain) {
  // 14 periods that fit nowhere pass through more sets of sending jobs than are remembered; Apply() forgets all.
  FluidSimulation once(kOneLink);
  std::vector<FluidSetting> settings;
  for (int j = 0; j < 14; ++j) {
    once.Add({.compute = Seconds(0.1 + 0.00731 * j), .bursts = {{Seconds(0.1 + 0.00731 * j), Seconds(0.1 + 0.00731 * j)}}});
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
  fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.2), Seconds(0.2)}}});
  fluid.Apply({Sends(100)});
  fluid.Run(Seconds(0.25));
  fluid.SetCapacity(LinkId(0), GigabytesPerSecond(0.1));
  fluid.Apply({Sends(100)});
  fluid.Run(Seconds(0.8));
  EXPECT_NEAR(fluid.progress(0).durations.at(0), 0.75, 1e-9);
}

TEST(Fluid, ADeadLinkHoldsForEver) {
  FluidSimulation fluid({{BitsPerSecond(0)}});
  fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.1), Seconds(0.2)}}});
  fluid.Apply({Sends(100)});
  EXPECT_FALSE(fluid.Run(Seconds(100)));
  EXPECT_TRUE(fluid.progress(0).durations.empty());
}

TEST(Fluid, AJobLeavesAfterItsIterations) {
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.2), Seconds(0.2)}}, .iterations = 3});
  fluid.Apply({Sends(100)});
  EXPECT_TRUE(fluid.Run(Seconds(10)));
  EXPECT_NEAR(fluid.now().count(), 0.9, 1e-9);
  EXPECT_FALSE(fluid.present(0));
  EXPECT_NEAR(fluid.progress(0).left, 0.9, 1e-9);
}

TEST(Fluid, GatesInterleaveBursts) {
  // Two jobs that compute 0.5 s and send 0.5 s: half a period apart they never meet.
  FluidSimulation fluid(kOneLink);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.5), .bursts = {{Seconds(0.5), Seconds(0.5)}}});
  fluid.Apply({Sends(500, 0, {Seconds(1), Seconds(0)}), Sends(500, 0, {Seconds(1), Seconds(0.5)})});
  fluid.Run(Seconds(10.6));
  for (const double duration : fluid.progress(0).durations) EXPECT_NEAR(duration, 1, 1e-9);
  EXPECT_NEAR(fluid.progress(1).durations.at(0), 1.5, 1e-9);  // it waits for its first opening
  EXPECT_NEAR(fluid.progress(1).durations.at(1), 1, 1e-9);
}

TEST(Fluid, AGateThatAJobKeepsMissingLapses) {
  // The job takes 1.3 s, its gate opens every 1 s: it would run at 2 s for ever.
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(0.8), .bursts = {{Seconds(0.8), Seconds(0.8)}}});
  fluid.Apply({Sends(500, 0, {Seconds(1), Seconds(0)})});
  fluid.Run(Seconds(40));
  EXPECT_NEAR(fluid.progress(0).durations.at(1), 2, 1e-9);
  EXPECT_NEAR(fluid.progress(0).durations.back(), 1.3, 1e-9);
}

TEST(Fluid, AForkGoesOnAsTheOriginalWould) {
  FluidSimulation fluid(kOneLink);
  for (int j = 0; j < 3; ++j) fluid.Add({.compute = Seconds(0.1 + 0.07 * j), .bursts = {{Seconds(0.1), Seconds(0.1 + 0.07 * j)}}});
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

// 0.3 s from 0.2 s on, needed at 0.4 s; at 0.45 s the link loses half: the rest takes 0.1 s, the computation goes on at 0.55 s and ends
// at 1.15 s, and the 0.2 s of the second burst take 0.4 s.
TEST(Fluid, AFaultStretchesTheBurstThatIsWaitedFor) {
  FluidSimulation fluid(kOneLink);
  const FluidSetting sends{.loads = {{{LinkId(0), Bytes(300'000'000)}}, {{LinkId(0), Bytes(200'000'000)}}}};
  fluid.Add({.compute = Seconds(1), .bursts = {{Seconds(0.2), Seconds(0.4)}, {Seconds(1), Seconds(1)}}});
  fluid.Apply({sends});
  fluid.Run(Seconds(0.45));
  fluid.SetCapacity(LinkId(0), GigabytesPerSecond(0.5));
  fluid.Apply({sends});
  fluid.Run(Seconds(1.6));
  EXPECT_NEAR(fluid.progress(0).durations.at(0), 1.55, 1e-9);
}

// Wherever two jobs of several bursts stand, the same plan once more changes nothing, nor does a fork go another way.
TEST(Fluid, SeveralBurstsSurviveForksAndPlansAtAnyMoment) {
  const auto start = [](FluidSimulation* fluid) {
    fluid->Add({.compute = Seconds(0.5), .bursts = {{Seconds(0.1), Seconds(0.2)}, {Seconds(0.2), Seconds(0.2)}, {Seconds(0.4), Seconds(0.5)}}});
    fluid->Add({.compute = Seconds(0.37), .bursts = {{Seconds(0), Seconds(0.3)}, {Seconds(0.37), Seconds(0.37)}}});
  };
  const auto bursts = [](std::vector<int64_t> megabytes, int32_t priority) {
    FluidSetting setting{.loads = {}, .priority = priority};
    for (const int64_t mb : megabytes) setting.loads.push_back({{LinkId(0), Bytes(mb * 1'000'000)}});
    return setting;
  };
  const std::vector<FluidSetting> settings{bursts({60, 30, 120}, 1), bursts({90, 40}, 0)};
  FluidSimulation undisturbed(kOneLink);
  start(&undisturbed);
  undisturbed.Apply(settings);
  undisturbed.Run(Seconds(9));
  for (double at = 0; at < 2.5; at += 0.0137) {
    FluidSimulation fluid(kOneLink);
    start(&fluid);
    fluid.Apply(settings);
    fluid.Run(Seconds(at));
    FluidSimulation fork = fluid.Fork();
    fork.Apply(settings);
    fluid.Apply(settings);
    fork.Run(Seconds(9));
    fluid.Run(Seconds(9));
    for (size_t j = 0; j < 2; ++j) {
      ASSERT_EQ(fluid.progress(j).durations.size(), undisturbed.progress(j).durations.size()) << at;
      ASSERT_NEAR(fluid.progress(j).end, undisturbed.progress(j).end, 1e-9) << at;
      ASSERT_NEAR(fork.progress(j).end, undisturbed.progress(j).end, 1e-9) << at;
    }
    ASSERT_NEAR(fluid.LinkBits()[0], undisturbed.LinkBits()[0], 1) << at;
  }
}

TEST(Fluid, TheTraceAccountsForEverySecondAndEveryByte) {
  FluidSimulation fluid(kOneLink);
  FluidTrace trace;
  fluid.set_trace(&trace);
  for (int j = 0; j < 2; ++j) fluid.Add({.compute = Seconds(0.3), .bursts = {{Seconds(j == 0 ? 0.1 : 0.3), Seconds(0.3)}}});
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
    fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.2), Seconds(0.2)}}});
    settings.push_back({{{{LinkId(0), Bytes(100'000'000)}, {LinkId(1), Bytes(50'000'000)}}}, 0, {}});
    if (j == 3) settings.back().loads[0].push_back({LinkId(2), Bytes(10'000'000)});
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

// One second of computation: a burst of 0.3 s may be sent from 0.2 s on and is needed at 0.4 s, where 0.1 s are waited; one of
// 0.2 s is released and needed at 0.8 s. Together 1.3 s.
TEST(Fluid, TheComputationWaitsForTheBurstsThatItNeeds) {
  const std::vector<BurstTimes> bursts = {{Seconds(0.2), Seconds(0.4)}, {Seconds(0.8), Seconds(0.8)}};
  const std::vector<double> sending = {0.3, 0.2};
  std::vector<double> ends;
  EXPECT_NEAR(IterationOf(Seconds(1), bursts, sending, &ends).count(), 1.3, 1e-12);
  EXPECT_NEAR(ends[0], 0.5, 1e-12);
  EXPECT_NEAR(ends[1], 1.1, 1e-12);
  FluidSimulation fluid(kOneLink);
  fluid.Add({.compute = Seconds(1), .bursts = bursts});
  fluid.Apply({{.loads = {{{LinkId(0), Bytes(300'000'000)}}, {{LinkId(0), Bytes(200'000'000)}}}}});
  fluid.Run(Seconds(13.1));
  ASSERT_EQ(fluid.progress(0).durations.size(), 10u);
  EXPECT_NEAR(fluid.progress(0).end, 13, 1e-9);
  EXPECT_NEAR(fluid.LinkBits()[0], 10 * 4e9, 1e3);
}

// A burst behind one that is late is late as well; what hides behind the computation costs nothing.
TEST(Fluid, BurstsGoOneAfterAnother) {
  const std::vector<BurstTimes> bursts = {{Seconds(0), Seconds(1)}, {Seconds(0.1), Seconds(1)}, {Seconds(0.2), Seconds(1)}};
  EXPECT_NEAR(IterationOf(Seconds(1), bursts, std::vector<double>{0.3, 0.3, 0.3}).count(), 1, 1e-12);
  EXPECT_NEAR(IterationOf(Seconds(1), bursts, std::vector<double>{0.3, 0.3, 0.6}).count(), 1.2, 1e-12);
  EXPECT_NEAR(IterationOf(Seconds(1), bursts, std::vector<double>{0, 0, 0.9}).count(), 1.1, 1e-12);
}

// Two bursts of one job cross different links, of which only the second is another job's too.
TEST(Fluid, OnlyTheBurstThatSharesALinkIsHeld) {
  const std::vector<BitsPerSecond> links{GigabytesPerSecond(1), GigabytesPerSecond(1)};
  FluidSimulation fluid(links);
  fluid.Add({.compute = Seconds(0.2), .bursts = {{Seconds(0.1), Seconds(0.1)}, {Seconds(0.2), Seconds(0.2)}}});
  fluid.Add({.compute = Seconds(0.3), .bursts = {{Seconds(0.3), Seconds(0.3)}}});
  // The first: 0.1 computed, 0.1 sent alone, 0.1 computed, then 0.1 alone beside nobody until 0.3, then both share.
  fluid.Apply({{.loads = {{{LinkId(0), Bytes(100'000'000)}}, {{LinkId(1), Bytes(200'000'000)}}}},
               {.loads = {{{LinkId(1), Bytes(100'000'000)}}}}});
  fluid.Run(Seconds(0.61));
  EXPECT_NEAR(fluid.progress(0).durations.at(0), 0.6, 1e-9);
  EXPECT_NEAR(fluid.progress(1).durations.at(0), 0.5, 1e-9);
}

}  // namespace
}  // namespace weft::planner::network

#include "planner/flows/path_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/fabric/testing/leaf_spine.h"
#include "planner/flows/fractional.h"
#include "planner/flows/instance.h"
#include "planner/network/max_min.h"

namespace weft::planner::inline flows {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kRate = 1e9;  // C of every cable

FlowDemand Demand(const Topology& topology, const char* from, const char* to, uint64_t key, const char* job = "a") {
  FlowDemand flow{.key = key, .job = job, .demand = BitsPerSecond(kRate)};
  for (auto& path : topology.ShortestPaths(*topology.FindNode(from), *topology.FindNode(to))) {
    flow.paths.push_back({std::move(path)});
  }
  return flow;
}

void Slow(Topology* topology, const char* from, const char* to, double share) {
  topology->SetCapacity(*topology->FindLink(*topology->FindNode(from), *topology->FindNode(to)),
                        BitsPerSecond(kRate * share));
}

/// Two leaves, two spines; flows h1 -> h3 (job a) and h2 -> h4 (job b), both on spine1.
FlowProblem Collision() {
  FlowProblem problem{.topology = LeafSpine(2, 2, 2, BitsPerSecond(kRate))};
  problem.flows = {Demand(problem.topology, "h1", "h3", 1), Demand(problem.topology, "h2", "h4", 2, "b")};
  for (FlowDemand& flow : problem.flows) flow.present_shares = {1, 0};
  return problem;
}

std::string Text(const FlowPlan& plan) {
  std::string text = fmt::format("{} {} {} {} {}\n", plan.bottleneck_before, plan.bottleneck_after,
                                 plan.bottleneck_bound, plan.changed, plan.complete);
  for (const FlowShare& flow : plan.flows) {
    text += fmt::format("{} {}", flow.key, flow.predicted_rate.value());
    for (const double share : flow.shares) text += fmt::format(" {}", share);
    for (const int32_t weight : flow.weights) text += fmt::format(" {}", weight);
    text += "\n";
  }
  for (const std::string& line : plan.why) text += line + "\n";
  return text;
}

TEST(ChoosePaths, TwoFlowsOnOneSpineAreSpreadOverTwo) {
  const FlowPlan plan = ChoosePaths(Collision());
  EXPECT_NE(plan.flows[0].shares, plan.flows[1].shares);
  for (const FlowShare& flow : plan.flows) {
    EXPECT_NEAR(flow.predicted_rate.value(), kRate, 1);
    EXPECT_EQ(*std::max_element(flow.shares.begin(), flow.shares.end()), 1) << "whole flows where that costs nothing";
  }
  EXPECT_NEAR(plan.bottleneck_before, 2, 1e-9);
  EXPECT_NEAR(plan.bottleneck_after, 1, 1e-9);
  EXPECT_NEAR(plan.bottleneck_bound, 1, 1e-3);
  EXPECT_TRUE(plan.changed && plan.complete);
  ASSERT_EQ(plan.why.size(), 1u) << "one flow moves, the other need not";
  EXPECT_THAT(plan.why[0], HasSubstr("moved from leaf1->spine1 to leaf1->spine2: 1 Gbit/s, was 500 Mbit/s"));
}

// Spine 1 gives 0.2 C, spine 2 gives C: both flows together have 1.2 C, so each can have 0.6 C. One split flow would suffice, 1:2,
// but had 0.6 C also while the other pauses; split alike, 1:5, either then has all of C.
TEST(ChoosePaths, UnequalSpinesAreSharedBySplittingUnequally) {
  FlowProblem problem = Collision();
  Slow(&problem.topology, "leaf1", "spine1", 0.2);
  const FlowPlan plan = ChoosePaths(problem);
  EXPECT_NEAR(plan.bottleneck_bound, 2 / 1.2, 2e-3);
  for (const FlowShare& flow : plan.flows) EXPECT_NEAR(flow.predicted_rate.value(), 0.6 * kRate, 0.012 * kRate);
  for (const FlowShare& flow : plan.flows) EXPECT_THAT(flow.weights, ElementsAre(1, 5));
  EXPECT_THAT(plan.why, Contains(HasSubstr("to 1:5 over leaf1->spine1 and leaf1->spine2: 600 Mbit/s")));
}

// A slowed cable and unmanaged traffic, as in the demo. One flow whole and the other split 13:3 serve one of them 2.5 % more while
// both send, and hold it to 0.6 C while it sends alone; split alike, both have all of C then.
TEST(ChoosePaths, AlikeIsWorthAFewPercentWhereItGivesFarMoreAlone) {
  constexpr std::pair<double, double> kCases[] = {{0.490, 0.699}, {0.458, 0.699}, {0.47, 0.68}, {0.5, 0.713}};
  for (const auto& [spine1, spine2] : kCases) {
    FlowProblem problem = Collision();
    Slow(&problem.topology, "leaf1", "spine1", spine1);
    Slow(&problem.topology, "leaf1", "spine2", spine2);
    problem.flows[0].present_shares = {0.1875, 0.8125};
    problem.flows[1].present_shares = {1, 0};
    const FlowPlan plan = ChoosePaths(problem);
    for (const FlowShare& flow : plan.flows) {
      const double alone = std::min(spine1 / flow.shares[0], spine2 / flow.shares[1]);
      EXPECT_GE(alone, 0.99) << spine1 << " and " << spine2 << ": " << Text(plan);
    }
    EXPECT_LE(plan.bottleneck_after, plan.bottleneck_bound * 1.09) << spine1 << " and " << spine2;
  }
}

// As a library's channels: each has half of a job's bytes, and none is held alone where the two together are.
TEST(ChoosePaths, AJobsFlowsCountTogether) {
  FlowProblem problem{.topology = LeafSpine(2, 2, 2, BitsPerSecond(kRate))};
  Slow(&problem.topology, "leaf1", "spine1", 0.45);
  Slow(&problem.topology, "leaf1", "spine2", 0.7);
  for (const auto& [from, to, job] : {std::tuple("h1", "h3", "a"), std::tuple("h2", "h4", "b")}) {
    for (int channel = 0; channel < 2; ++channel) {
      FlowDemand flow = Demand(problem.topology, from, to, problem.flows.size() + 1, job);
      flow.demand = BitsPerSecond(kRate / 2);
      flow.present_shares = {0, 1};
      problem.flows.push_back(flow);
    }
  }
  const FlowPlan plan = ChoosePaths(problem);
  for (size_t job = 0; job < 2; ++job) {
    const double on_spine1 = (plan.flows[2 * job].shares[0] + plan.flows[2 * job + 1].shares[0]) / 2;
    EXPECT_GE(std::min(0.45 / on_spine1, 0.7 / (1 - on_spine1)), 0.95) << "all of its demand while the other job pauses";
  }
  EXPECT_LE(plan.bottleneck_after, plan.bottleneck_bound * 1.03);
}

// As a library that opens many connections and sends over few.
TEST(ChoosePaths, IdleFlowsKeepNobodyFromBeingSplitAlike) {
  FlowProblem problem = Collision();
  Slow(&problem.topology, "leaf1", "spine1", 0.2);
  for (uint64_t key = 10; key < 20; ++key) {
    FlowDemand idle = Demand(problem.topology, "h1", "h3", key);
    idle.demand = BitsPerSecond(kRate / 10000);
    idle.present_shares = {0, 1};
    problem.flows.push_back(idle);
  }
  const FlowPlan plan = ChoosePaths(problem);
  for (size_t f = 0; f < 2; ++f) EXPECT_NEAR(plan.flows[f].shares[0], 1.0 / 6, 0.03) << f;
  for (size_t f = 2; f < plan.flows.size(); ++f) {
    EXPECT_EQ(*std::max_element(plan.flows[f].shares.begin(), plan.flows[f].shares.end()), 1) << f;
  }
}

// Of a crowd some are always busy: few lanes are worth more than what each would have alone.
TEST(ChoosePaths, ManyFlowsAreNotAllSplitAroundASlowLink) {
  FlowProblem problem{.topology = LeafSpine(2, 2, 16, BitsPerSecond(kRate))};
  Slow(&problem.topology, "leaf1", "spine1", 0.2);
  for (int i = 1; i <= 12; ++i) {
    problem.flows.push_back(Demand(problem.topology, fmt::format("h{}", i).c_str(), fmt::format("h{}", 16 + i).c_str(),
                                   static_cast<uint64_t>(i)));
  }
  const FlowPlan plan = ChoosePaths(problem);
  const auto split = [](const FlowShare& flow) { return *std::max_element(flow.shares.begin(), flow.shares.end()) < 1; };
  EXPECT_LE(std::count_if(plan.flows.begin(), plan.flows.end(), split), 6);
}

// The same in both directions at once, as two all-reducing jobs load it.
// Links that give somewhat less than the rest are split around as well: with f of C left on spine 1 two flows share
// (1 + f) C, and each can have (1 + f) / 2 C; whole paths leave one of them with f C.
TEST(ChoosePaths, MildlySlowLinksAreSplitAroundToo) {
  for (const double left : {0.5, 0.55, 0.6, 0.65, 0.7, 0.75}) {
    FlowProblem problem = Collision();
    problem.flows[1].present_shares = {0, 1};
    Slow(&problem.topology, "leaf1", "spine1", left);
    Slow(&problem.topology, "spine1", "leaf2", left);
    const FlowPlan plan = ChoosePaths(problem);
    double worst = 1e300;
    for (const FlowShare& flow : plan.flows) worst = std::min(worst, flow.predicted_rate.value());
    EXPECT_TRUE(plan.changed) << left;
    EXPECT_NEAR(worst, (1 + left) / 2 * kRate, 0.04 * kRate) << left;
  }
}

TEST(ChoosePaths, BothDirectionsOfTwoJobsGetTheirFairShare) {
  FlowProblem problem{.topology = LeafSpine(2, 2, 2, BitsPerSecond(kRate))};
  Slow(&problem.topology, "leaf1", "spine1", 0.2);
  Slow(&problem.topology, "spine1", "leaf1", 0.2);
  const Topology& t = problem.topology;
  problem.flows = {Demand(t, "h1", "h3", 1, "a"), Demand(t, "h3", "h1", 2, "a"), Demand(t, "h2", "h4", 3, "b"),
                   Demand(t, "h4", "h2", 4, "b")};
  const FlowPlan plan = ChoosePaths(problem);
  for (const FlowShare& flow : plan.flows) EXPECT_GE(flow.predicted_rate.value(), 0.588 * kRate);
}

TEST(ChoosePaths, ASmallGainMovesNothing) {
  FlowProblem problem = Collision();
  problem.flows.pop_back();
  Slow(&problem.topology, "leaf1", "spine1", 0.97);  // the other spine would give 3.1 % more
  const FlowPlan plan = ChoosePaths(problem);
  EXPECT_FALSE(plan.changed);
  EXPECT_THAT(plan.flows[0].shares, ElementsAre(1, 0));
  EXPECT_THAT(plan.why, ElementsAre(HasSubstr("moving gains 3.1 %, less than 5.0 %")));
  problem.switching_gain = 0.02;
  EXPECT_THAT(ChoosePaths(problem).flows[0].shares, ElementsAre(0, 1));
}

TEST(ChoosePaths, FlowsThatGainNothingStay) {
  // Four flows: the two below leaf 1 and the pair that collides are independent.
  FlowProblem problem = Collision();
  FlowDemand local = Demand(problem.topology, "h3", "h1", 9, "c");
  local.present_shares = {0, 1};
  problem.flows.push_back(local);
  const FlowPlan plan = ChoosePaths(problem);
  EXPECT_THAT(plan.flows[2].shares, ElementsAre(0, 1));
  EXPECT_NEAR(plan.flows[2].predicted_rate.value(), kRate, 1);
}

TEST(ChoosePaths, AFlowPinnedToASlowLinkDoesNotKeepOthersFromMoving) {
  FlowProblem problem = Collision();
  FlowDemand pinned = Demand(problem.topology, "h3", "h4", 7, "slow");
  pinned.present_shares = {1};
  Slow(&problem.topology, "h3", "leaf2", 0.1);
  problem.flows.push_back(pinned);
  const FlowPlan plan = ChoosePaths(problem);
  EXPECT_NEAR(plan.flows[2].predicted_rate.value(), 0.1 * kRate, 1);
  EXPECT_NEAR(plan.flows[0].predicted_rate.value(), kRate, 1);
  EXPECT_THAT(plan.why, Contains(HasSubstr("flow 7: stays on its only path")));
}

TEST(ChoosePaths, ANewFlowTakesTheFreeSpineAndMovesNobody) {
  FlowProblem problem = Collision();
  problem.flows[1].present_shares.clear();
  const FlowPlan plan = ChoosePaths(problem);
  EXPECT_THAT(plan.flows[0].shares, ElementsAre(1, 0));
  EXPECT_THAT(plan.flows[1].shares, ElementsAre(0, 1));
  EXPECT_THAT(plan.why, ElementsAre(HasSubstr("job b, flow 2: placed on leaf1->spine2")));
}

TEST(ChoosePaths, ADeadLinkIsLeftAtOnce) {
  FlowProblem problem = Collision();
  problem.flows.pop_back();
  Slow(&problem.topology, "spine1", "leaf2", 0);
  const FlowPlan plan = ChoosePaths(problem);
  EXPECT_THAT(plan.flows[0].shares, ElementsAre(0, 1));
  EXPECT_TRUE(std::isinf(plan.bottleneck_before));
  EXPECT_NEAR(plan.bottleneck_after, 1, 1e-9);
  Slow(&problem.topology, "spine2", "leaf2", 0);
  const FlowPlan stuck = ChoosePaths(problem);
  EXPECT_FALSE(stuck.changed);
  EXPECT_EQ(stuck.flows[0].predicted_rate.value(), 0);
  EXPECT_THAT(stuck.why, ElementsAre(HasSubstr("every path has a dead link")));
}

TEST(ChoosePaths, AnEmptyProblemHasAnEmptyAnswer) {
  const FlowPlan plan = ChoosePaths({.topology = LeafSpine(2, 2, 2, BitsPerSecond(kRate))});
  EXPECT_TRUE(plan.flows.empty());
  EXPECT_TRUE(plan.complete && !plan.changed);
}

FlowProblem Random(uint32_t seed, int flows) {
  std::mt19937 random(seed);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  FlowProblem problem{.topology = LeafSpine(3, 3, 3, BitsPerSecond(kRate))};
  for (size_t l = 0; l < problem.topology.links().size(); ++l) {
    problem.topology.SetCapacity(LinkId(static_cast<int>(l)), BitsPerSecond(kRate * draw(2, 10) / 10));
  }
  for (int f = 0; f < flows; ++f) {
    const int from = draw(1, 9), to = (from + draw(2, 6)) % 9 + 1;
    FlowDemand flow = Demand(problem.topology, fmt::format("h{}", from).c_str(), fmt::format("h{}", to).c_str(),
                             static_cast<uint64_t>(f) + 100, "r");
    if (flow.paths.empty()) continue;
    flow.intensity = draw(1, 5);
    if (draw(0, 1) == 1) {
      flow.present_shares.assign(flow.paths.size(), 0);
      flow.present_shares[static_cast<size_t>(draw(0, static_cast<int>(flow.paths.size()) - 1))] = 1;
    }
    problem.flows.push_back(std::move(flow));
  }
  return problem;
}

TEST(ChoosePaths, TheSameProblemHasTheSameAnswerByteForByte) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const FlowProblem problem = Random(seed, 14);
    EXPECT_EQ(Text(ChoosePaths(problem)), Text(ChoosePaths(problem)));
  }
}

TEST(ChoosePaths, EveryAnswerIsLegalAndNeverBelowTheBound) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const FlowProblem problem = Random(seed, 12);
    const FlowPlan plan = ChoosePaths(problem);
    ASSERT_TRUE(plan.complete) << seed;
    ASSERT_LE(plan.bottleneck_bound, plan.bottleneck_after * (1 + 1e-9));
    // Never worse than leaving everything as it is, and close to the fractional optimum of the worst link.
    for (const FlowShare& flow : plan.flows) {
      double sum = 0;
      for (const double share : flow.shares) sum += share;
      ASSERT_NEAR(sum, 1, 1e-9);
      ASSERT_GT(flow.predicted_rate.value(), 0);
    }
  }
}

TEST(ChoosePaths, AnotherRunFromItsOwnAnswerChangesNothing) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    FlowProblem problem = Random(seed, 10);
    const FlowPlan plan = ChoosePaths(problem);
    for (size_t f = 0; f < problem.flows.size(); ++f) problem.flows[f].present_shares = plan.flows[f].shares;
    const FlowPlan again = ChoosePaths(problem);
    EXPECT_FALSE(again.changed) << "seed " << seed << "\n" << Text(plan) << Text(again);
  }
}

TEST(ChoosePaths, ASpentBudgetIsSaid) {
  FlowProblem problem = Random(1, 14);
  problem.node_budget = 3;
  EXPECT_FALSE(ChoosePaths(problem).complete);
}

// Brute force over shares in tenths for two flows on three spines: the fractional bound may not lie above any of them.
TEST(FractionalOptimum, NoSplitIsBelowTheBoundAndTheSolutionIsNear) {
  FlowProblem problem{.topology = LeafSpine(2, 3, 2, BitsPerSecond(kRate))};
  Slow(&problem.topology, "leaf1", "spine1", 0.3);
  Slow(&problem.topology, "spine2", "leaf2", 0.5);
  Slow(&problem.topology, "leaf1", "spine3", 0.4);
  problem.flows = {Demand(problem.topology, "h1", "h3", 1), Demand(problem.topology, "h2", "h4", 2)};
  const Instance instance = MakeInstance(problem);
  const FractionalResult result = FractionalOptimum(instance, {{1, 0, 0}, {1, 0, 0}}, 1'000'000);
  EXPECT_NEAR(result.bottleneck, 2 / 1.2, 1e-3) << "0.3 + 0.5 + 0.4 of C for twice C";
  EXPECT_NEAR(result.bound, 2 / 1.2, 1e-3);
  double best = 1e9;
  for (int a = 0; a <= 10; ++a) {
    for (int b = 0; a + b <= 10; ++b) {
      for (int c = 0; c <= 10; ++c) {
        for (int d = 0; c + d <= 10; ++d) {
          best = std::min(best, Bottleneck(instance, {{a / 10., b / 10., (10 - a - b) / 10.},
                                                      {c / 10., d / 10., (10 - c - d) / 10.}}));
        }
      }
    }
  }
  EXPECT_GE(best, result.bound * (1 - 1e-9));
}

TEST(FractionalOptimum, CertifiesItselfOnRandomProblems) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const FlowProblem problem = Random(seed, 12);
    const Instance instance = MakeInstance(problem);
    Shares even;
    for (const InstanceFlow& flow : instance.flows) {
      even.emplace_back(flow.paths.size(), 1.0 / static_cast<double>(flow.paths.size()));
    }
    const FractionalResult result = FractionalOptimum(instance, even, 1'000'000);
    EXPECT_LE(result.bottleneck, result.bound * 1.005) << seed;
    EXPECT_NEAR(Bottleneck(instance, result.shares), result.bottleneck, 1e-9);
  }
}

TEST(StripedRates, EqualMaxMinForUnsplitFlows) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const FlowProblem problem = Random(seed, 12);
    const Instance instance = MakeInstance(problem);
    Shares first;
    std::vector<MaxMinFlow> flows;
    for (const FlowDemand& flow : problem.flows) {
      first.emplace_back(flow.paths.size(), 0);
      first.back()[0] = 1;
      flows.push_back({.links = flow.paths[0].links, .cap = flow.demand});
    }
    std::vector<BitsPerSecond> capacity;
    for (const Link& link : problem.topology.links()) capacity.push_back(link.capacity);
    const std::vector<BitsPerSecond> expected = MaxMinRates(capacity, flows);
    const std::vector<double> rates = StripedRates(instance, first);
    for (size_t f = 0; f < rates.size(); ++f) EXPECT_NEAR(rates[f], expected[f].value(), 1);
  }
}

// One flow alone with shares 1/2, 1/2 over lanes of 0.2 C and C is held by the slow lane: 0.4 C.
TEST(StripedRates, TheSlowestLaneOverItsShareHoldsAFlow) {
  FlowProblem problem = Collision();
  problem.flows.pop_back();
  Slow(&problem.topology, "leaf1", "spine1", 0.2);
  EXPECT_NEAR(StripedRates(MakeInstance(problem), {{0.5, 0.5}})[0], 0.4 * kRate, 1);
}

}  // namespace
}  // namespace weft::planner::flows

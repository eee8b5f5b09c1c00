#include "planner/jobs/multi_job_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stop_token>

#include "planner/fabric/testing/leaf_spine.h"
#include "planner/jobs/multi_job_bound.h"

namespace weft::planner::inline jobs {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// 100 Mbit/s cables: 12.5 MB take a second.
constexpr int64_t kSecondOfBytes = 12'500'000;

NodeId Host(const Topology& topology, int host) { return *topology.FindNode(fmt::format("h{}", host)); }

/// One flow each way between two hosts, all of it on shortest path number `path`.
MultiJobJob Pair(const Topology& topology, const std::string& name, int a, int b, double compute_s, double send_s,
              size_t path = 0) {
  MultiJobJob job{.name = name, .compute = Seconds(compute_s), .release = Seconds(compute_s), .placed = true, .flows = {}};
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    MultiJobFlow flow{.from = Host(topology, from), .to = Host(topology, to),
                   .bytes = Bytes(static_cast<int64_t>(send_s * kSecondOfBytes)), .paths = {}, .shares = {}};
    for (auto& links : topology.ShortestPaths(flow.from, flow.to)) flow.paths.push_back({std::move(links)});
    flow.shares.assign(flow.paths.size(), 0);
    flow.shares[path % flow.paths.size()] = 1;
    job.flows.push_back(std::move(flow));
  }
  return job;
}

/// Jobs "big" (8 GPUs, little to send) and "small" between the same two leaves over one spine.
MultiJobProblem BigAndSmall() {
  MultiJobProblem problem{.topology = LeafSpine(2, 1, 2, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 2}};
  problem.jobs.push_back(Pair(problem.topology, "small", 1, 3, 1, 1));
  problem.jobs.push_back(Pair(problem.topology, "big", 2, 4, 1, 0.4));
  problem.jobs[1].gpus = 8;
  return problem;
}

std::string Joined(const std::vector<std::string>& lines) { return fmt::format("{}", fmt::join(lines, "\n")); }

TEST(MultiJobPlan, JobWithTheHigherIntensityGetsTheBetterClass) {
  const MultiJobPlan plan = PlanMultiJob(BigAndSmall());
  EXPECT_EQ(plan.jobs[1].traffic_class, 0);
  EXPECT_EQ(plan.jobs[0].traffic_class, 1);
  EXPECT_GT(plan.jobs[1].intensity, plan.jobs[0].intensity);
  EXPECT_NEAR(plan.jobs[1].predicted.count(), 1.4, 1e-6) << "going first it is as fast as alone";
  EXPECT_GT(plan.gpu_use, plan.gpu_use_present);
  EXPECT_EQ(plan.modelled, 2);
  EXPECT_TRUE(plan.complete);
}

TEST(MultiJobPlan, ReasonsNameIntensityContendersLinksAndBound) {
  const MultiJobPlan plan = PlanMultiJob(BigAndSmall());
  const std::string why = Joined(plan.jobs[1].why);
  EXPECT_THAT(why, HasSubstr("class 0 of 2: before the jobs that it meets"));
  EXPECT_THAT(why, HasSubstr("GPU seconds of compute per second of communication"));
  EXPECT_THAT(why, HasSubstr("meets small (intensity"));
  EXPECT_THAT(why, HasSubstr("leaf1->spine1"));
  EXPECT_THAT(why, HasSubstr("bound 1.4 s (its bytes over the links with the least capacity that they must cross, from when communication may start): gap 0.0 %"));
  EXPECT_THAT(Joined(plan.jobs[0].why), HasSubstr("class 1 of 2 (the default): after jobs to which going first is worth more"));
  EXPECT_THAT(Joined(plan.jobs[0].rejected), HasSubstr("time shifts: 0 of 2 jobs have a measured, stable period"));
}

TEST(MultiJobPlan, JobsThatMeetNobodyKeepTheDefaultClass) {
  MultiJobProblem problem = BigAndSmall();
  problem.topology = LeafSpine(2, 2, 2, MegabitsPerSecond(100));
  problem.jobs = {Pair(problem.topology, "small", 1, 3, 1, 1, 0), Pair(problem.topology, "big", 2, 4, 1, 0.4, 1)};
  problem.jobs[1].present_class = 0;
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_EQ(plan.jobs[0].traffic_class, 1);
  EXPECT_EQ(plan.jobs[1].traffic_class, 1);
  EXPECT_THAT(Joined(plan.jobs[1].why), HasSubstr("on its paths it meets no job"));
}

TEST(MultiJobPlan, PresentClassesStayUnlessOthersAreWorthTheChange) {
  MultiJobProblem problem = BigAndSmall();
  problem.options.class_gain = 10;
  const MultiJobPlan kept = PlanMultiJob(problem);
  EXPECT_EQ(kept.jobs[1].traffic_class, 1);
  EXPECT_EQ(kept.gpu_use, kept.gpu_use_present);
  EXPECT_THAT(Joined(kept.jobs[0].rejected), HasSubstr("expected 1000 % more to be worth the change"));
  problem.jobs[1].present_class = 0;  // as is best: nothing is gained by going back either
  EXPECT_EQ(PlanMultiJob(problem).jobs[1].traffic_class, 0);
}

// Two spines of half a cable each. Together the flows would fill both with one on either; in turn each needs both.
TEST(MultiJobPlan, FlowsThatSendInTurnsAreDividedEach) {
  MultiJobProblem problem{.topology = LeafSpine(2, 2, 2, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 1}};
  for (size_t l = 0; l < problem.topology.links().size(); ++l) {
    const LinkId link(static_cast<int32_t>(l));
    if (problem.topology.LinkName(link).find("spine") != std::string::npos) problem.topology.SetCapacity(link, MegabitsPerSecond(50));
  }
  MultiJobJob job = Pair(problem.topology, "turns", 1, 3, 1, 1);
  job.flows[1] = job.flows[0];
  job.flows[1].burst = 1;
  job.bursts = {{Seconds(0.5), Seconds(0.5)}, {Seconds(1), Seconds(1)}};
  problem.jobs = {job};
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_NEAR(plan.jobs[0].predicted.count(), 3, 0.01);
  EXPECT_LE(plan.jobs[0].bound.count(), 3.01) << "whether they really send in turn is a guess";
  for (const std::vector<double>& shares : plan.jobs[0].shares) EXPECT_THAT(shares, ::testing::Each(::testing::DoubleNear(0.5, 0.01)));
  const uint64_t digest = DigestOf(problem);
  problem.jobs[0].flows[1].burst = 0;
  EXPECT_NE(DigestOf(problem), digest);
}

TEST(MultiJobPlan, PresentClassesThatPlainEcmpWouldBeatAreTakenBack) {
  MultiJobProblem problem = BigAndSmall();
  problem.options.class_gain = 10;
  problem.jobs[0].present_class = 0;  // the wrong way round
  problem.jobs[1].present_class = 1;
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_EQ(plan.jobs[0].traffic_class, 1);
  EXPECT_THAT(Joined(plan.jobs[0].rejected), HasSubstr("classes: with profiles 20 % wrong"));
  EXPECT_GE(plan.worst_margin, -1e-3);
}

TEST(MultiJobPlan, ShiftsNeedStablePeriodsAndInterleaveEqualJobs) {
  MultiJobProblem problem{.topology = LeafSpine(2, 1, 2, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 1}};
  problem.jobs = {Pair(problem.topology, "a", 1, 3, 1.2, 0.8), Pair(problem.topology, "b", 2, 4, 1.2, 0.8)};
  EXPECT_FALSE(PlanMultiJob(problem).jobs[1].shifted);
  for (MultiJobJob& job : problem.jobs) job.stable = true;
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_TRUE(plan.jobs[0].shifted && plan.jobs[1].shifted);
  const double apart = std::abs(plan.jobs[1].shift.count() - plan.jobs[0].shift.count());
  EXPECT_GE(apart, 0.8 - 1e-6);
  EXPECT_LE(apart, 1.2 + 1e-6);
  EXPECT_NEAR(plan.jobs[0].predicted.count(), 1.015 * 2.0, 1e-3) << "alone, and the slack of the windows";
  EXPECT_EQ(plan.jobs[0].period, plan.jobs[1].period);
  // 0.2 s are left on either side of a burst: of 20, 12, 8 and 4 % of a period pauses of 8 % are the longest that fit.
  EXPECT_NEAR(plan.jobs[0].window / plan.jobs[0].period, 0.08 + 0.02, 1e-9);
  EXPECT_THAT(Joined(plan.jobs[0].why), HasSubstr("the score of the bursts' places rises from"));
}

TEST(MultiJobPlan, PathsThatPlainEcmpWouldBeatAreNamed) {
  MultiJobProblem problem{.topology = LeafSpine(2, 2, 2, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 1}};
  problem.jobs = {Pair(problem.topology, "a", 1, 3, 0.5, 1, 0), Pair(problem.topology, "b", 2, 4, 0.5, 1, 0)};
  problem.options.paths = false;
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_LT(plan.worst_margin, 0);
  EXPECT_THAT(plan.jobs[0].rejected, Contains(HasSubstr("paths: with profiles 20 % wrong")));
  EXPECT_TRUE(plan.jobs[0].shares.empty()) << "as they are";
}

/// Both jobs on the first of two spines, and there is room for both.
MultiJobProblem Crowded() {
  MultiJobProblem problem{.topology = LeafSpine(2, 2, 2, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 1}};
  problem.jobs = {Pair(problem.topology, "a", 1, 3, 0.5, 1, 0), Pair(problem.topology, "b", 2, 4, 0.5, 1, 0)};
  return problem;
}

TEST(MultiJobPlan, FlowsTakeOtherPathsWhereThatGainsEnough) {
  MultiJobProblem problem = Crowded();
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_NEAR(plan.jobs[0].predicted.count(), 1.5, 1e-6) << "as fast as alone";
  EXPECT_NEAR(plan.jobs[1].predicted.count(), 1.5, 1e-6);
  EXPECT_GT(plan.gpu_use, 1.2 * plan.gpu_use_present);
  EXPECT_GE(plan.worst_margin, -1e-3);
  EXPECT_THAT(Joined(plan.jobs[0].why) + Joined(plan.jobs[1].why), HasSubstr("go other ways than now"));
  for (size_t j = 0; j < 2; ++j) {
    for (size_t f = 0; f < 2; ++f) problem.jobs[j].flows[f].shares = plan.jobs[j].shares[f];
  }
  const MultiJobPlan again = PlanMultiJob(problem);
  for (size_t j = 0; j < 2; ++j) EXPECT_EQ(again.jobs[j].shares, plan.jobs[j].shares) << "what is in force stays";
  problem = Crowded();
  problem.options.class_gain = 10;
  const MultiJobPlan kept = PlanMultiJob(problem);
  EXPECT_EQ(kept.jobs[0].shares, (std::vector<std::vector<double>>{{1, 0}, {1, 0}}));
  EXPECT_THAT(Joined(kept.jobs[0].rejected), HasSubstr("other paths"));
}

// Two hosts send 1 s each over two spines, one of which has half its rate: divided 1 : 2 they take 4/3 s, any other way longer.
TEST(MultiJobPlan, DividedFlowsFollowWhatTheirWaysCarry) {
  MultiJobProblem problem{.topology = LeafSpine(2, 2, 2, MegabitsPerSecond(100)), .jobs = {}, .options = {}};
  MultiJobJob& job = problem.jobs.emplace_back(Pair(problem.topology, "a", 1, 3, 1, 1));
  const MultiJobJob other = Pair(problem.topology, "a", 2, 4, 1, 1);
  job.flows.insert(job.flows.end(), other.flows.begin(), other.flows.end());
  const NodeId slow = *problem.topology.FindNode("spine1");
  const auto over_slow = [&](const CandidatePath& path) {
    return std::ranges::any_of(path.links, [&](LinkId link) { return problem.topology.link(link).to == slow; });
  };
  for (size_t l = 0; l < problem.topology.links().size(); ++l) {
    const Link& link = problem.topology.links()[l];
    if (link.from == slow || link.to == slow) problem.topology.SetCapacity(LinkId(static_cast<int32_t>(l)), MegabitsPerSecond(50));
  }
  for (MultiJobFlow& flow : job.flows) flow.shares = {0.5, 0.5};  // as they went before it was slow
  const MultiJobPlan plan = PlanMultiJob(problem);
  ASSERT_EQ(plan.jobs[0].shares.size(), 4u);
  for (size_t f = 0; f < 4; ++f) {
    for (size_t p = 0; p < 2; ++p) {
      EXPECT_NEAR(plan.jobs[0].shares[f][p], over_slow(job.flows[f].paths[p]) ? 1. / 3 : 2. / 3, 1e-9);
      job.flows[f].shares[p] = over_slow(job.flows[f].paths[p]) ? 5. / 16 : 11. / 16;  // as a sender weighs its lanes
    }
  }
  EXPECT_NEAR(plan.jobs[0].predicted.count(), 1 + 4. / 3, 1e-6);
  EXPECT_THAT(Joined(PlanMultiJob(problem).jobs[0].why), Not(HasSubstr("other ways than now")));
}

TEST(MultiJobPlan, FlowsOfOtherJobsAreBackground) {
  MultiJobProblem problem = Crowded();
  problem.jobs.pop_back();
  EXPECT_THAT(PlanMultiJob(problem).jobs[0].shares[0][0], 1) << "nobody is in its way";
  problem.background.assign(problem.topology.links().size(), BitsPerSecond(0));
  for (const CandidatePath& path : {problem.jobs[0].flows[0].paths[0], problem.jobs[0].flows[1].paths[0]}) {
    for (const LinkId link : path.links) {
      if (problem.topology.node(problem.topology.link(link).from).kind == NodeKind::kSwitch &&
          problem.topology.node(problem.topology.link(link).to).kind == NodeKind::kSwitch) {
        problem.background[link.index()] = MegabitsPerSecond(50);
      }
    }
  }
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_LT(plan.jobs[0].shares[0][0], 1);
  EXPECT_NEAR(plan.jobs[0].bound.count(), 1.5, 1e-9) << "the other flows could go elsewhere";
}

TEST(MultiJobPlan, DeadPathsAreLeftOut) {
  MultiJobProblem problem = Crowded();
  const std::vector<LinkId>& second = problem.jobs[0].flows[0].paths[1].links;
  problem.topology.SetCapacity(second[1], BitsPerSecond(0));
  const MultiJobPlan plan = PlanMultiJob(problem);
  for (const MultiJobJobPlan& job : plan.jobs) EXPECT_EQ(job.shares[0], (std::vector<double>{1, 0}));
}

TEST(MultiJobPlan, NoSimulatedPlanBeatsTheBound) {
  std::mt19937 random(3);
  const auto real = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() % 1000) / 1000;
  };
  for (int round = 0; round < 60; ++round) {
    MultiJobProblem problem{.topology = LeafSpine(2, 2, 3, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 3}};
    problem.options.hash_seeds = 2;
    for (int j = 0; j < 3; ++j) {
      MultiJobJob job = Pair(problem.topology, fmt::format("job{}", j), 1 + j, 4 + j, real(0.2, 2), real(0.1, 1.5), random() % 2);
      job.release = job.compute * real(0.3, 1);
      job.gpus = 1 + static_cast<int64_t>(random() % 8);
      problem.jobs.push_back(std::move(job));
    }
    const MultiJobPlan plan = PlanMultiJob(problem);
    EXPECT_GT(plan.gpu_use_bound, 0);
    for (const double use : {plan.gpu_use, plan.gpu_use_present, plan.gpu_use_default}) {
      EXPECT_LE(use, plan.gpu_use_bound * (1 + 1e-6)) << "round " << round;
    }
    for (const MultiJobJobPlan& job : plan.jobs) EXPECT_GE(job.predicted.count(), job.bound.count() * (1 - 1e-6));
    EXPECT_NEAR(plan.gap, std::max(0.0, 1 - plan.gpu_use / plan.gpu_use_bound), 1e-12);
  }
}

// Periods 100 : 97 : 89 : 1: on a common circle the last job alone has hundreds of bursts. They share
// the two hops over the spine, both ways.
// Sends for 0.6 and 0.25 of 2 s: they fit beside each other with pauses of 4 %, but the first one's pause of 0.8 s is shorter than
// what the gate takes for a pause between iterations, so that only the other would ever be held.
TEST(MultiJobPlan, JobThatSendsForMostOfItsPeriodIsNotShifted) {
  MultiJobProblem problem{.topology = LeafSpine(2, 1, 2, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 1}};
  problem.jobs = {Pair(problem.topology, "most", 1, 3, 0.8, 1.2), Pair(problem.topology, "some", 2, 4, 1.5, 0.5)};
  for (MultiJobJob& job : problem.jobs) job.stable = true;
  const MultiJobPlan plan = PlanMultiJob(problem);
  for (const MultiJobJobPlan& job : plan.jobs) EXPECT_FALSE(job.shifted);
  EXPECT_THAT(Joined(plan.jobs[0].rejected), HasSubstr("time shifts: most pauses for less than 50 % of its period"));
}

TEST(MultiJobPlan, PeriodsInNoSmallRatioAreLeftOutOfTimeShifts) {
  MultiJobProblem problem{.topology = LeafSpine(2, 1, 4, MegabitsPerSecond(100)), .jobs = {}, .options = {.classes = 2}};
  problem.options.hash_seeds = 2;
  const double periods[] = {10, 9.7, 8.9, 0.1};
  for (int j = 0; j < 4; ++j) {
    MultiJobJob job = Pair(problem.topology, fmt::format("job{}", j), 1 + j, 5 + j, 0.6 * periods[j], 0.4 * periods[j], 0);
    job.stable = true;
    problem.jobs.push_back(std::move(job));
  }
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_THAT(Joined(plan.jobs[0].rejected), HasSubstr("time shifts: 4 links left out"));
  for (const MultiJobJobPlan& job : plan.jobs) EXPECT_FALSE(job.shifted);
}

TEST(MultiJobPlan, DeadLinksAreNamedAndJobsOverThemAreLeftOut) {
  MultiJobProblem problem = BigAndSmall();
  problem.topology.SetCapacity(*problem.topology.FindLink(Host(problem.topology, 2), *problem.topology.FindNode("leaf1")),
                               BitsPerSecond(0));
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_TRUE(plan.jobs[0].modelled);
  EXPECT_FALSE(plan.jobs[1].modelled);
  EXPECT_EQ(plan.jobs[1].traffic_class, 1);
}

TEST(MultiJobPlan, SameProblemSameAnswerAndDigest) {
  MultiJobProblem problem = BigAndSmall();
  const MultiJobPlan one = PlanMultiJob(problem), two = PlanMultiJob(BigAndSmall());
  EXPECT_EQ(one.gpu_use, two.gpu_use);
  EXPECT_EQ(one.jobs[0].why, two.jobs[0].why);
  const uint64_t digest = DigestOf(problem);
  EXPECT_EQ(digest, DigestOf(BigAndSmall()));
  problem.jobs[0].flows[0].bytes = Bytes(kSecondOfBytes + 1);
  EXPECT_NE(digest, DigestOf(problem));
}

TEST(MultiJobPlan, JobsThatAreTooManyToSimulateAreDecidedByRules) {
  MultiJobProblem problem = BigAndSmall();
  problem.options.work = 10;
  const MultiJobPlan plan = PlanMultiJob(problem);
  EXPECT_EQ(plan.jobs[1].traffic_class, 0);
  EXPECT_EQ(plan.jobs[0].traffic_class, 1);
  EXPECT_FALSE(plan.complete);
  EXPECT_THAT(Joined(plan.jobs[1].why), HasSubstr("2 jobs, too many to simulate 60 plans of them: present paths, classes by corrected"));
  EXPECT_THAT(Joined(plan.jobs[1].why), HasSubstr("not simulated"));
  EXPECT_LE(plan.gpu_use, plan.gpu_use_bound * (1 + 1e-6));
  EXPECT_GT(plan.gpu_use_default, 0);
  problem.jobs[0].present_class = 1, problem.jobs[1].present_class = 0;
  EXPECT_THAT(Joined(PlanMultiJob(problem).jobs[1].why), HasSubstr("classes as they are"));
  problem.jobs[0].present_class = 0, problem.jobs[1].present_class = 1;
  EXPECT_EQ(PlanMultiJob(problem).jobs[1].traffic_class, 0) << "the wrong job goes first";
}

TEST(MultiJobPlan, StoppedPlansAreAnswersToo) {
  std::stop_source stop;
  stop.request_stop();
  const MultiJobPlan plan = PlanMultiJob(BigAndSmall(), stop.get_token());
  EXPECT_EQ(plan.modelled, 2);
  EXPECT_FALSE(plan.complete);
  EXPECT_LE(plan.gpu_use, plan.gpu_use_bound * (1 + 1e-6));
}

TEST(MultiJobPlan, NoJobsIsNoPlan) {
  const MultiJobPlan plan = PlanMultiJob({.topology = LeafSpine(1, 1, 1, MegabitsPerSecond(100)), .jobs = {}, .options = {}});
  EXPECT_EQ(plan.modelled, 0);
  EXPECT_EQ(plan.gpu_use, 0);
}

/// Two pods of two leaves with a host each. All cables give 1 Gbit/s, those between pods and core 100 Mbit/s.
Topology NarrowPods() {
  Topology topology;
  const NodeId core = topology.AddNode("core", NodeKind::kSwitch);
  for (int pod = 1, host = 1; pod <= 2; ++pod) {
    const NodeId top = topology.AddNode(fmt::format("pod{}", pod), NodeKind::kSwitch);
    topology.AddCable(top, core, MegabitsPerSecond(100));
    for (int i = 0; i < 2; ++i, ++host) {
      const NodeId leaf = topology.AddNode(fmt::format("leaf{}", host), NodeKind::kSwitch);
      topology.AddCable(leaf, top, MegabitsPerSecond(1000));
      topology.AddCable(topology.AddNode(fmt::format("h{}", host), NodeKind::kHost), leaf, MegabitsPerSecond(1000));
    }
  }
  return topology;
}

// Each job computes for 0.5 s and then sends for 1 s between the pods, which both share: one iteration per second in all,
// where each alone would make 1 / 1.5 s. Cuts around hosts and leaves would let both run as if alone.
TEST(MultiJobBound, JobsThatMeetOnlyAbovePodsAreBoundByTheirCut) {
  MultiJobProblem problem{.topology = NarrowPods(), .jobs = {}, .options = {.classes = 1}};
  problem.jobs = {Pair(problem.topology, "a", 1, 3, 0.5, 1), Pair(problem.topology, "b", 2, 4, 0.5, 1)};
  const Result<MultiJobBound> bound = BoundMultiJob(problem, {true, true});
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_NEAR(bound->alone[0].count(), 1.5, 1e-9);
  EXPECT_NEAR(bound->gpu_use, 0.5 * 1 / 2, 1e-6);
  EXPECT_THAT(bound->tight, Contains(HasSubstr("all below pod")));
}

TEST(MultiJobBound, BytesOverACutWithoutCapacityAreAnErrorThatNamesJobAndCut) {
  MultiJobProblem problem{.topology = NarrowPods(), .jobs = {}, .options = {.classes = 1}};
  problem.jobs = {Pair(problem.topology, "a", 1, 3, 0.5, 1)};
  problem.topology.SetCapacity(*problem.topology.FindLink(*problem.topology.FindNode("pod1"), *problem.topology.FindNode("core")),
                               BitsPerSecond(0));
  const Result<MultiJobBound> bound = BoundMultiJob(problem, {true});
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(bound.error().message(), HasSubstr("job \"a\" sends 12500000 bytes out of all below pod1"));
}

TEST(MultiJobBound, JobsThatAreNotModelledDoNotCount) {
  MultiJobProblem problem{.topology = NarrowPods(), .jobs = {}, .options = {.classes = 1}};
  problem.jobs = {Pair(problem.topology, "a", 1, 3, 0.5, 1), Pair(problem.topology, "b", 2, 4, 0.5, 1)};
  const Result<MultiJobBound> bound = BoundMultiJob(problem, {false, true});
  ASSERT_TRUE(bound) << bound.error().message();
  EXPECT_EQ(bound->alone[0].count(), 0);
  EXPECT_NEAR(bound->gpu_use, 0.5 / 1.5, 1e-6);
}

}  // namespace
}  // namespace weft::planner::jobs

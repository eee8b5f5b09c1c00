#include "controller/run_learning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "controller/testing/small_job.h"
#include "formats/hf_config.h"
#include "planner/plan/price_given.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

// What NICs give of what the site's configuration counts on.
constexpr double kNics = 0.7;

/// Nodes of eight A100 with a slow NIC, as configured.
JobPlannerOptions Site() {
  JobPlannerOptions options;
  options.cluster = *planner::FindClusterPreset("dgx-a100", 1);
  options.cluster.nic_rate = BitsPerSecond(100e9);
  return options;
}

v1::JobSpec Spec(int number) {
  v1::JobSpec spec;
  spec.set_job_id(fmt::format("job-{}", number));
  const int hidden = 1024 * (1 + number % 4);
  spec.set_model_config_json(fmt::format(R"({{"model_type": "gpt2", "n_layer": {}, "n_embd": {}, "n_head": 16, "n_positions": 2048, "vocab_size": 51200}})",
                                         8 + 4 * (number % 5), hidden));
  spec.set_global_batch(192 << number % 3);
  spec.set_sequence(2048);
  spec.set_precision("bf16");
  spec.set_framework("megatron");
  spec.set_ranks_per_host(8);
  return spec;
}

/// A job's run on a site whose NICs give `nics` of what is configured, measured within two percent.
v1::MeasuredRun RunOn(double nics, int number, double noise = 0.02) {
  const v1::JobSpec spec = Spec(number);
  planner::ClusterSpec cluster = Site().cluster;
  cluster.nodes = 2 + number % 3;
  const double as_built = planner::Calibration().Get("link.nic", "efficiency");
  cluster.measured = {{.name = "link.nic.efficiency", .value = nics * as_built}};
  const auto model = formats::ParseHfConfig(spec.model_config_json(), "model");
  EXPECT_TRUE(model) << model.error().message();
  auto job = proto::JobSpecFromProto(spec, *model);
  EXPECT_TRUE(job) << job.error().message();
  job->gpus = cluster.TotalGpus();
  const planner::Strategy strategy{.dp = cluster.TotalGpus() / 2, .tp = 2, .micro_batch = 1, .zero_stage = 1};
  const auto price = planner::PriceGiven(*job, cluster, spec.framework(), strategy);
  EXPECT_TRUE(price) << price.error().message();
  v1::JobPlan plan;
  proto::ToProto(price->plan, plan);
  v1::MeasuredRun run;
  *run.mutable_spec() = spec;
  *run.mutable_strategy() = plan.strategy();
  run.set_machine(MachineOf(Site().cluster));
  run.set_nodes(cluster.nodes);
  run.set_nic_rate_bps(cluster.nic_rate.value());
  run.set_iteration_s(price->plan.predicted.iteration.count() * (1 + noise * std::sin(7.0 * number)));
  return run;
}

/// How far other jobs are from their prediction, in the median, with these constants.
double ErrorOfOthers(const std::vector<planner::MeasuredConstant>& constants) {
  JobPlannerOptions planner = Site();
  planner.cluster.measured = constants;
  std::vector<double> errors;
  for (int number = 100; number < 111; ++number) {
    const auto learned = LearnFromRuns(std::vector<v1::MeasuredRun>{RunOn(kNics, number, 0)}, planner);
    EXPECT_TRUE(learned) << learned.error().message();
    errors.push_back(learned->before);
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

// The issue's own case: NICs give 70 % of their rate, and within 20 jobs others are predicted.
TEST(RunLearning, SlowNicsAreLearnedWithinTwentyJobs) {
  RunBook book;
  const double before = ErrorOfOthers({});
  EXPECT_GT(before, 0.1) << "the site is no other than configured";
  int needed = 0;
  double error = before;
  LearnedRuns learned;
  for (int number = 0; number < 20; ++number) {
    book.Add(RunOn(kNics, number));
    if (number > 3 && number < 19) continue;  // seconds
    auto now = LearnFromRuns(book.runs(), Site());
    ASSERT_TRUE(now) << now.error().message();
    learned = *std::move(now);
    error = ErrorOfOthers(learned.constants);
    if (error > 0.03) needed = number + 1;
  }
  // Several of a node share a NIC: what each constant takes of the loss cannot be told apart.
  planner::Calibration base, site = base.With(learned.constants);
  const auto nics = [](const planner::Calibration& c) { return c.Get("link.nic", "efficiency") * c.Get("link.nic", "shared"); };
  std::printf("NICs give %.2f of what is configured, as learned\n", nics(site) / nics(base));
  EXPECT_NEAR(nics(site) / nics(base), kNics, 0.1);
  RecordProperty("jobs", needed + 1);
  std::printf("error of jobs not seen: %.3f before, %.3f after 20, within 3 %% from %d on: %s\n", before, error, needed + 1, learned.text.c_str());
  EXPECT_LE(error, 0.03);
  EXPECT_THAT(learned.text, HasSubstr("link.nic"));
}

// On a site that is as configured nothing is made of noise.
TEST(RunLearning, AHealthySiteStays) {
  RunBook book;
  for (int number = 0; number < 8; ++number) book.Add(RunOn(1, number));
  const auto learned = LearnFromRuns(book.runs(), Site());
  ASSERT_TRUE(learned) << learned.error().message();
  EXPECT_LE(learned->after, 0.03);
  for (const planner::MeasuredConstant& constant : learned->constants) {
    const planner::Calibration compiled;
    EXPECT_NEAR(constant.value / compiled.RangeOf(constant.name).value, 1, 0.1) << constant.name;
  }
}

/// Runs of a healthy site of two users, and as many as may be of one who says that all takes ten times as long.
RunBook WithALiar(int honest) {
  RunBook book;
  const auto add = [&](int number, const char* user, double times) {
    v1::MeasuredRun run = RunOn(1, number);
    run.mutable_spec()->set_submitter(user);
    run.set_iteration_s(times * run.iteration_s());
    book.Add(run);
  };
  for (int number = 0; number < honest; ++number) add(number, number % 2 == 0 ? "alice" : "bob", 1);
  for (int number = 20; number < 60; ++number) add(number, "mallory", 10);
  return book;
}

// One user who lies does not decide what others' jobs are predicted to take, be they many or few.
TEST(RunLearning, OneUserDoesNotDecide) {
  for (const int honest : {12, 3}) {
    const RunBook book = WithALiar(honest);
    EXPECT_EQ(book.runs().size(), static_cast<size_t>(honest) + kMostRunsOfOne);
    const auto learned = LearnFromRuns(book.runs(), Site());
    ASSERT_TRUE(learned) << learned.error().message();
    EXPECT_EQ(learned->runs, static_cast<size_t>(honest) + std::min(static_cast<size_t>(honest), kMostRunsOfOne));
    JobPlannerOptions planner = Site();
    planner.cluster.measured = learned->constants;
    const auto of_honest = LearnFromRuns(std::vector<v1::MeasuredRun>{RunOn(1, 100, 0)}, planner);
    ASSERT_TRUE(of_honest);
    EXPECT_LE(of_honest->before, 0.15) << honest << " honest runs: " << learned->text;
  }
}

// What a site had before it got other machines says nothing of these; what cannot be read harms nobody.
TEST(RunLearning, OtherMachinesAndSpoiledRunsAreLeftOut) {
  std::vector<v1::MeasuredRun> runs = {RunOn(1, 1), RunOn(1, 2), RunOn(1, 3)};
  runs[0].set_machine("h100-80");
  runs[1].mutable_spec()->set_model_config_json("no model");
  const auto learned = LearnFromRuns(runs, Site());
  ASSERT_TRUE(learned) << learned.error().message();
  EXPECT_EQ(learned->runs, 1u);
  runs.pop_back();
  EXPECT_FALSE(LearnFromRuns(runs, Site()));
}

TEST(RunBook, TheNewestStay) {
  RunBook book;
  for (int number = 0; number < 50; ++number) {
    v1::MeasuredRun run;
    run.mutable_spec()->set_job_id(fmt::format("{}", number));
    book.Add(run);
  }
  ASSERT_EQ(book.runs().size(), kMostRuns);
  EXPECT_EQ(book.runs().back().spec().job_id(), "49");
  EXPECT_EQ(book.runs().front().spec().job_id(), fmt::format("{}", 50 - kMostRuns));
  book.Add(book.runs().front());  // the same job, measured again
  EXPECT_EQ(book.runs().size(), kMostRuns);
  EXPECT_EQ(book.runs().back().spec().job_id(), fmt::format("{}", 50 - kMostRuns));
}

TEST(RunWatch, WhatHoldsStillIsTakenOnceAndWhatGetsFasterAgain) {
  const RunWatch::Key kJob{"job", "dp=4"};
  RunWatch watch;
  EXPECT_FALSE(watch.See(kJob, 2, 0));
  EXPECT_FALSE(watch.See(kJob, 3, 15));    // not yet
  EXPECT_FALSE(watch.See(kJob, 3.05, 30));
  EXPECT_TRUE(watch.See(kJob, 3, 36));
  EXPECT_FALSE(watch.See(kJob, 3, 60));     // asked
  EXPECT_TRUE(watch.See(kJob, 3, 97));      // and refused: another job was sending
  watch.Taken("job", 3);
  EXPECT_FALSE(watch.See(kJob, 3, 300));
  EXPECT_FALSE(watch.See(kJob, 4, 310));
  EXPECT_FALSE(watch.See(kJob, 4, 400));    // slower: somebody else is there
  EXPECT_FALSE(watch.See(kJob, 2, 410));
  EXPECT_TRUE(watch.See(kJob, 2, 431));     // faster
  EXPECT_FALSE(watch.See({"job", "dp=2 pp=2"}, 2, 431)) << "another strategy of it";
  watch.KeepOnly({});
  EXPECT_FALSE(watch.See(kJob, 2, 440));   // another job of that name
}

TEST(RunOf, OnlyAJobAloneOnItsLinksIsOne) {
  AdviseRestart question = testing::Listening();
  question.view = testing::SmallView(60e6);
  question.iteration_s = 0.5;
  const auto run = RunOf(question, testing::SmallOptions());
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->nodes(), 4);
  EXPECT_EQ(run->iteration_s(), 0.5);
  EXPECT_EQ(run->spec().hosts_size(), 0);
  // A link that is believed to give less is what the run is priced on, and no load.
  AdviseRestart slow = question;
  for (size_t i = 0; i < slow.view.topology.links().size(); ++i) {
    slow.view.topology.SetCapacity(LinkId(static_cast<int32_t>(i)), 0.5 * slow.view.topology.links()[i].line_rate);
  }
  const auto on_slow = RunOf(slow, testing::SmallOptions());
  ASSERT_TRUE(on_slow) << on_slow.error().message();
  EXPECT_LT(on_slow->nic_rate_bps(), 0.6 * run->nic_rate_bps());
  for (BitsPerSecond& carried : question.view.carried) carried = BitsPerSecond(30e6);
  const auto crowded = RunOf(question, testing::SmallOptions());
  ASSERT_FALSE(crowded);
  EXPECT_THAT(crowded.error().message(), HasSubstr("carry others' bytes"));
  question.view = testing::SmallView(60e6);
  question.view.topology = {};
  question.view.carried.clear();
  const auto unknown = RunOf(question, testing::SmallOptions());
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message(), HasSubstr("probes have not joined"));
}

}  // namespace
}  // namespace weft::controller

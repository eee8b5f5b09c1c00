// One policy: what the controller's core decides for jobs that simulated agents measure, and what `weft simulate --policy weft` decides
// for a scenario of the same jobs, as text, byte for byte. Over one spine, where each flow has one path: the controller's paths are chosen
// elsewhere (flow_planner.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <variant>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;

constexpr int64_t kGpus[] = {1, 8, 64};

/// The newest question of the core.
std::shared_ptr<const planner::JointProblem> QuestionOf(const FakeCluster& cluster) {
  std::shared_ptr<const planner::JointProblem> newest;
  for (const Action& action : cluster.actions) {
    if (const auto* question = std::get_if<PlanJobs>(&action)) newest = question->problem;
  }
  return newest;
}

std::string Line(const std::string& job, int64_t traffic_class, const std::vector<std::vector<LinkId>>& paths,
                 const planner::Topology& topology) {
  std::string line = fmt::format("{}: class {}", job, traffic_class);
  for (const std::vector<LinkId>& links : paths) {
    line += ";";
    for (const LinkId link : links) line += " " + topology.LinkName(link);
  }
  return line + "\n";
}

/// What is in force for each job once the core is at rest.
std::string DecidedByCore(const Core& core, const planner::JointProblem& question) {
  std::string text;
  for (const planner::JointJob& job : question.jobs) {
    std::vector<std::vector<LinkId>> paths;
    for (const planner::JointFlow& flow : job.flows) {
      for (size_t p = 0; p < flow.paths.size(); ++p) {
        if (flow.shares[p] > 0.5) paths.push_back(flow.paths[p].links);
      }
    }
    text += Line(job.name, core.FindJob(job.name)->joint().traffic_class(), paths, question.topology);
  }
  return text;
}

/// The measured jobs as a scenario, simulated.
std::string DecidedBySimulation(const planner::JointProblem& question) {
  planner::Scenario scenario{.name = "as measured", .topology = question.topology, .jobs = {}, .faults = {},
                             .classes = question.options.classes, .duration = Seconds(3600)};
  scenario.windows = planner::ScenarioWindows::kNone;
  for (const planner::JointJob& job : question.jobs) {
    planner::ScenarioJob made{.name = job.name, .gpus = static_cast<double>(job.gpus), .compute = job.compute, .release = job.release};
    for (const planner::JointFlow& flow : job.flows) {
      made.flows.push_back({flow.from, flow.to, Bytes(static_cast<int64_t>(static_cast<double>(flow.bytes.count()) / job.efficiency))});
    }
    scenario.jobs.push_back(std::move(made));
  }
  const Result<planner::SimulationReport> report =
      planner::Simulate(scenario, planner::SimulationPolicy::kWeft,
                        {.evaluations = question.options.evaluations, .work = question.options.work});
  if (!report) return report.error().message();
  std::string text;
  for (const planner::SimulatedJob& job : report->jobs) text += Line(job.name, job.traffic_class, job.paths, scenario.topology);
  return text;
}

/// `count` drawn jobs between two leaves, one host of each.
std::vector<FakeJob> Drawn(std::mt19937* random, int count) {
  const auto draw = [&](double least, double most) { return least + (most - least) * static_cast<double>((*random)() % 1000) / 1000; };
  std::vector<FakeJob> jobs;
  for (int j = 0; j < count; ++j) {
    jobs.push_back({.id = fmt::format("job{}", j), .ring = {fmt::format("h{}", j + 1), fmt::format("h{}", j + 1 + count)},
                    .compute_s = draw(0.5, 2), .bytes = draw(2e6, 15e6)});
  }
  return jobs;
}

TEST(OnePolicy, SimulationAndControllerDecideAlike) {
  std::mt19937 random(2026);
  int raised = 0;
  for (int round = 0; round < 12; ++round) {
    const int count = 2 + round % 3;
    CoreOptions options;
    options.joint.dscp = {26, 18, 0};
    Core core(options);
    FakeCluster cluster(core, 2, 1, count);
    cluster.priorities = {26 << 2, 18 << 2};
    cluster.measures_periods = true;
    cluster.RegisterAll();
    for (const FakeJob& job : Drawn(&random, count)) {
      JobSubmitted submitted;
      submitted.spec.set_job_id(job.id);
      submitted.spec.set_gpus(kGpus[random() % std::size(kGpus)]);
      cluster.Send({.body = submitted});
      cluster.answers = false;
      cluster.Start(job, 0);
      cluster.Run(0.3);
      cluster.Probe(job.id);
    }
    // No answers until all jobs are measured: nothing is in force then, as in a scenario that begins.
    cluster.Run(100);
    cluster.answers = true;
    for (int i = 0; i < 300 && core.counters().joint_plans == 0; ++i) cluster.Run(0.5);
    const std::shared_ptr<const planner::JointProblem> question = QuestionOf(cluster);
    ASSERT_TRUE(question);
    ASSERT_EQ(question->jobs.size(), static_cast<size_t>(count)) << "round " << round;
    const std::string core_text = DecidedByCore(core, *question);
    EXPECT_EQ(core_text, DecidedBySimulation(*question)) << "round " << round;
    raised += core_text.find("class 0") != std::string::npos || core_text.find("class 1") != std::string::npos;
  }
  EXPECT_GE(raised, 3) << "some of them had something to decide";
}

}  // namespace
}  // namespace weft::controller

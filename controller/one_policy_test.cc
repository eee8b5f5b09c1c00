// One policy: what the controller's core decides for jobs that simulated agents measure, and what `weft simulate --policy weft` decides
// for a scenario of the same jobs, as text, byte for byte: paths and classes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <variant>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;

constexpr int64_t kGpus[] = {1, 8, 64};

/// The newest question of the core.
std::shared_ptr<const planner::MultiJobProblem> QuestionOf(const FakeCluster& cluster) {
  std::shared_ptr<const planner::MultiJobProblem> newest;
  for (const Action& action : cluster.actions) {
    if (const auto* question = std::get_if<PlanJobs>(&action)) newest = question->problem;
  }
  return newest;
}

/// "big: class 0; h1 over spine1, h3 over spine1 spine2".
std::string Line(const std::string& job, int64_t traffic_class, const std::vector<std::pair<std::string, std::set<std::string>>>& flows) {
  std::string line = fmt::format("{}: class {}", job, traffic_class);
  for (const auto& [from, spines] : flows) line += fmt::format("; {} over {}", from, fmt::join(spines, " "));
  return line + "\n";
}

/// What is in force for each job: classes in the core, paths at the senders.
std::string DecidedByCore(const Core& core, const FakeCluster& cluster, const planner::MultiJobProblem& question) {
  std::string text;
  for (const planner::MultiJobJob& job : question.jobs) {
    std::vector<std::pair<std::string, std::set<std::string>>> flows;
    for (const planner::MultiJobFlow& flow : job.flows) {
      const std::string& from = question.topology.node(flow.from).name;
      flows.emplace_back(from, std::set<std::string>());
      const std::vector<double> shares = cluster.Shares(job.name, from);
      for (size_t s = 0; s < shares.size(); ++s) {
        if (shares[s] > 0) flows.back().second.insert(fmt::format("spine{}", s + 1));
      }
    }
    text += Line(job.name, core.FindJob(job.name)->joint().traffic_class(), flows);
  }
  return text;
}

/// The measured jobs as a scenario, simulated.
std::string DecidedBySimulation(const planner::MultiJobProblem& question) {
  planner::Scenario scenario{.name = "as measured", .topology = question.topology, .jobs = {}, .faults = {},
                             .classes = question.options.classes, .duration = Seconds(3600)};
  scenario.windows = planner::ScenarioWindows::kNone;
  for (const planner::MultiJobJob& job : question.jobs) {
    planner::ScenarioJob made{.name = job.name, .gpus = static_cast<double>(job.gpus), .compute = job.compute, .release = job.release};
    for (const planner::MultiJobFlow& flow : job.flows) {
      made.flows.push_back({flow.from, flow.to, Bytes(static_cast<int64_t>(static_cast<double>(flow.bytes.count()) / job.efficiency))});
    }
    scenario.jobs.push_back(std::move(made));
  }
  const Result<planner::SimulationReport> report =
      planner::Simulate(scenario, planner::SimulationPolicy::kWeft,
                        {.evaluations = question.options.evaluations, .work = question.options.work});
  if (!report) return report.error().message();
  std::string text;
  for (size_t j = 0; j < report->jobs.size(); ++j) {
    std::vector<std::pair<std::string, std::set<std::string>>> flows;
    for (size_t f = 0; f < report->jobs[j].paths.size(); ++f) {
      flows.emplace_back(scenario.topology.node(scenario.jobs[j].flows[f].from).name, std::set<std::string>());
      for (const LinkId link : report->jobs[j].paths[f]) {
        const std::string& to = scenario.topology.node(scenario.topology.link(link).to).name;
        if (to.starts_with("spine")) flows.back().second.insert(to);
      }
    }
    text += Line(report->jobs[j].name, report->jobs[j].traffic_class, flows);
  }
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

/// Both, for `count` jobs between two leaves over `spines`; true if either has something above the default class.
void CheckAlike(std::mt19937& random, int count, int spines, const std::string& what, int* raised, int* moved) {
  CoreOptions options;
  options.joint.dscp = {26, 18, 0};
  Core core(options);
  FakeCluster cluster(core, 2, spines, count);
  cluster.priorities = {26 << 2, 18 << 2};
  cluster.measures_periods = true;
  cluster.RegisterAll();
  // No answers until all jobs are measured: nothing is in force then, as in a scenario that begins.
  cluster.answers = cluster.answers_paths = false;
  for (const FakeJob& job : Drawn(&random, count)) {
    JobSubmitted submitted;
    submitted.spec.set_job_id(job.id);
    submitted.spec.set_gpus(kGpus[random() % std::size(kGpus)]);
    cluster.Send({.body = submitted});
    cluster.Start(job, 0);
    cluster.Run(0.3);
    cluster.Probe(job.id);
  }
  cluster.Run(100);
  cluster.answers = true;
  for (int i = 0; i < 300 && core.counters().multi_job_plans == 0; ++i) cluster.Run(0.5);
  const std::shared_ptr<const planner::MultiJobProblem> question = QuestionOf(cluster);
  ASSERT_TRUE(question);
  ASSERT_EQ(question->jobs.size(), static_cast<size_t>(count)) << what;
  cluster.Run(0.1);
  const std::string core_text = DecidedByCore(core, cluster, *question);
  EXPECT_EQ(core_text, DecidedBySimulation(*question)) << what;
  *raised += core_text.find("class 0") != std::string::npos || core_text.find("class 1") != std::string::npos;
  *moved += core_text.find("spine2") != std::string::npos;
}

TEST(OnePolicy, SimulationAndControllerDecideAlike) {
  std::mt19937 random(2026);
  int raised = 0, moved = 0;
  for (int round = 0; round < 12; ++round) CheckAlike(random, 2 + round % 3, 1, fmt::format("round {}", round), &raised, &moved);
  EXPECT_GE(raised, 3) << "some of them had something to decide";
  moved = 0;
  for (const int spines : {2, 3}) {
    for (int round = 0; round < 9; ++round) {
      CheckAlike(random, 2 + round % 3, spines, fmt::format("{} spines, round {}", spines, round), &raised, &moved);
    }
  }
  EXPECT_GE(moved, 9) << "all began on the first spine";
}

}  // namespace
}  // namespace weft::controller

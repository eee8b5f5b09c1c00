#include "formats/scenario_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "formats/testing/config_corpus.h"
#include "formats/testing/scenario_corpus.h"
#include "formats/testing/topology_corpus.h"
#include "formats/testing/with.h"

namespace weft::formats {
namespace {

using planner::NodeKind;
using planner::ScenarioJob;
using planner::SimulationPolicy;
using testing::kScenarioLeafSpine;
using testing::kScenarioLinks;
using testing::kScenarioServers;
using testing::With;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ScenarioFile Read(const std::string& text) {
  Result<ScenarioFile> read = ParseScenarioYaml(text, "s.yaml", "");
  EXPECT_TRUE(read) << read.error().message();
  return read ? std::move(*read) : ScenarioFile{};
}

std::string Name(const planner::Scenario& scenario, NodeId node) { return scenario.topology.node(node).name; }

TEST(ScenarioYaml, RestartsNameAJobAndAStrategy) {
  const std::string head = kScenarioLeafSpine;
  const ScenarioFile file = Read(head + "\nrestarts:\n  - {at: 6s, job: a, as: dp=2}\n");
  ASSERT_EQ(file.scenario.restarts.size(), 1u);
  EXPECT_EQ(file.scenario.restarts[0].at, Seconds(6));
  EXPECT_EQ(file.scenario.restarts[0].job, "a");
  EXPECT_EQ(file.scenario.restarts[0].way, "dp=2");
  const auto refusal = [&](const std::string& item) {
    const Result<ScenarioFile> read = ParseScenarioYaml(head + "\nrestarts:\n  - {" + item + "}\n", "s.yaml", "");
    return read ? std::string("none") : std::string(read.error().message());
  };
  EXPECT_THAT(refusal("at: 6s, job: nobody, as: dp=2"), HasSubstr("key \"restarts[0].job\": \"nobody\", expected the name of a job"));
  EXPECT_THAT(refusal("at: 20s, job: a, as: dp=2"), HasSubstr("key \"restarts[0].at\": 20 s, expected less than the duration"));
  EXPECT_THAT(refusal("job: a, as: dp=2"), HasSubstr("key \"restarts[0].at\": missing"));
  EXPECT_THAT(refusal("at: 6s, job: a"), HasSubstr("key \"restarts[0].as\""));
}

TEST(ScenarioYaml, IsReadWithUnitsAndDefaults) {
  const ScenarioFile file = Read(kScenarioLeafSpine);
  const planner::Scenario& s = file.scenario;
  EXPECT_EQ(s.name, "collision");
  EXPECT_EQ(s.duration, Seconds(20));
  EXPECT_EQ(s.seed, 7u);
  EXPECT_EQ(s.draws, 4);
  EXPECT_EQ(s.classes, 3);
  EXPECT_THAT(file.policies, ElementsAre(SimulationPolicy::kEcmp, SimulationPolicy::kWeft));
  ASSERT_EQ(s.jobs.size(), 3u);
  const ScenarioJob& a = s.jobs[0];
  EXPECT_EQ(a.compute, Seconds(0.1));
  EXPECT_EQ(a.release, Seconds(0.04));
  EXPECT_EQ(a.gpus, 2);
  ASSERT_EQ(a.flows.size(), 2u) << "a ring of two";
  EXPECT_EQ(Name(s, a.flows[0].from), "h1");
  EXPECT_EQ(Name(s, a.flows[0].to), "h3");
  EXPECT_EQ(a.flows[0].bytes, Bytes(1 << 30));
  EXPECT_EQ(s.jobs[1].release, s.jobs[1].compute) << "nothing overlaps unless it is said";
  EXPECT_EQ(s.jobs[1].iterations, 40);
  EXPECT_EQ(s.jobs[1].arrival, Seconds(5));
  EXPECT_EQ(s.jobs[2].flows[1].bytes, Bytes(1 << 20));
}

TEST(ScenarioYaml, SeveralBurstsOfTwoHostsAreOneFlow) {
  const ScenarioFile file = Read(kScenarioLinks);
  const ScenarioJob& job = file.scenario.jobs.at(1);
  ASSERT_EQ(job.bursts.size(), 2u);
  EXPECT_EQ(job.bursts[0].release, Seconds(0.005));
  EXPECT_EQ(job.bursts[0].needed, Seconds(0.01));
  EXPECT_EQ(job.bursts[1].needed, job.compute) << "unless it is said";
  ASSERT_EQ(job.flows.size(), 2u) << "a to b, and b to a";
  // A ring of two passes all of it on; of a tree of two each hands half up and half down, over both trees.
  EXPECT_THAT(job.flows[0].per_burst, ElementsAre(Bytes(1'000'000), Bytes(2'000'000)));
  EXPECT_EQ(job.flows[0].bytes, Bytes(3'000'000));
  EXPECT_TRUE(file.scenario.jobs[0].bursts.empty());
}

TEST(ScenarioYaml, FaultsNameLinksOrCables) {
  const ScenarioFile file = Read(kScenarioLeafSpine);
  const auto& faults = file.scenario.faults;
  ASSERT_EQ(faults.size(), 5u) << "a cable has two links";
  EXPECT_EQ(file.scenario.topology.LinkName(faults[0].link), "leaf1->spine1");
  EXPECT_EQ(faults[0].capacity, GigabitsPerSecond(10));
  EXPECT_EQ(faults[1].capacity.value(), 0);
  EXPECT_EQ(file.scenario.topology.LinkName(faults[2].link), "spine1->leaf1");
  EXPECT_EQ(faults[4].capacity, GigabitsPerSecond(50)) << "up: what the cable was sold as";
  const ScenarioFile listed = Read(kScenarioLinks);
  ASSERT_EQ(listed.scenario.faults.size(), 2u) << "the dash inside s-1 is no separator";
}

// Without a list, b gets the two hosts that nobody has: h2 and h4, one per leaf. A seed of the caller counts more than
// the file's.
TEST(ScenarioYaml, PlacementTakesFreeHostsFirst) {
  const planner::Scenario s = Read(kScenarioLeafSpine).scenario;
  std::set<std::string> ends;
  for (const planner::ScenarioFlow& flow : s.jobs[1].flows) ends.insert(Name(s, flow.from));
  EXPECT_THAT(ends, ElementsAre("h2", "h4"));
  const std::string random = With(kScenarioLeafSpine, "hosts: 2, placement: spread", "hosts: 3, placement: random");
  std::set<std::string> drawn;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const planner::Scenario r = ParseScenarioYaml(random, "s", "", seed)->scenario;
    EXPECT_EQ(r.seed, seed);
    std::string order;
    for (const planner::ScenarioFlow& flow : r.jobs[1].flows) order += Name(r, flow.from);
    drawn.insert(order);
  }
  EXPECT_GT(drawn.size(), 2u);
}

TEST(ScenarioYaml, ASwitchFailsWithAllOfItsLinks) {
  const planner::Scenario s =
      Read(With(kScenarioLeafSpine, "cable: leaf1-spine1, rate: down", "switch: spine1, rate: down")).scenario;
  const auto of_spine = [&](const planner::ScenarioFault& fault) {
    const planner::Link& link = s.topology.link(fault.link);
    return s.topology.node(link.from).name == "spine1" || s.topology.node(link.to).name == "spine1";
  };
  const auto down = std::ranges::count_if(s.faults, [&](const auto& fault) { return of_spine(fault) && fault.capacity.value() == 0; });
  EXPECT_EQ(down, 4) << "two leaves, both directions";
}

TEST(ScenarioYaml, AJobMayKeepItsStrategyAndProfilesMayBeOff) {
  const ScenarioFile file = Read(With(With(kScenarioServers, "precision: bf16", "precision: bf16, strategy: alone"), "version: 1",
                                      "version: 1\nprofile_error: 0.2\nrestart: 2min"));
  EXPECT_FALSE(file.scenario.jobs[0].joint);
  EXPECT_EQ(file.profile_error, 0.2);
  EXPECT_EQ(file.scenario.restart, Seconds(120));
  EXPECT_TRUE(Read(kScenarioServers).scenario.jobs[0].joint);
}

TEST(ScenarioYaml, WindowsSayWhichTimeShiftsThereAre) {
  EXPECT_EQ(Read(kScenarioServers).scenario.windows, planner::ScenarioWindows::kFree);
  EXPECT_EQ(Read(With(kScenarioServers, "version: 1", "version: 1\nwindows: senders")).scenario.windows, planner::ScenarioWindows::kSenders);
  EXPECT_EQ(Read(With(kScenarioServers, "version: 1", "version: 1\nwindows: none")).scenario.windows, planner::ScenarioWindows::kNone);
}

TEST(ScenarioYaml, ServersSpreadTrafficOverTheGpusThatAreFree) {
  const ScenarioFile file = Read(kScenarioServers);
  const planner::Scenario& s = file.scenario;
  ASSERT_EQ(s.jobs.size(), 5u);
  EXPECT_EQ(s.jobs[1].name, "side-1");
  EXPECT_EQ(s.jobs[2].arrival, Seconds(1));
  EXPECT_EQ(s.jobs[1].gpus, 8);
  ASSERT_EQ(s.jobs[1].flows.size(), 2u * 4) << "four GPUs each, there and back";
  std::set<NodeId> first, second;
  for (const planner::ScenarioFlow& flow : s.jobs[1].flows) first.insert(flow.from);
  for (const planner::ScenarioFlow& flow : s.jobs[2].flows) second.insert(flow.from);
  EXPECT_EQ(s.topology.node(*first.begin()).kind, NodeKind::kGpu);
  for (const NodeId gpu : second) EXPECT_FALSE(first.contains(gpu)) << "half of each host was free";
}

TEST(ScenarioYaml, ModelsArePlannedOnTheJobsHosts) {
  ScenarioFile file = Read(kScenarioServers);
  ASSERT_EQ(file.models.size(), 1u);
  const ScenarioModel& model = file.models[0];
  EXPECT_EQ(model.spec.model.name, "gpt2");
  EXPECT_EQ(model.cluster.nodes, 2);
  EXPECT_EQ(model.cluster.TotalGpus(), 16);
  EXPECT_EQ(model.cluster.device.name, "a100-80");
  EXPECT_EQ(model.cluster.nic_rate, GigabitsPerSecond(1600));
  EXPECT_EQ(model.options.fix.at("zero_stage"), 1);
  EXPECT_THAT(model.place, HasSubstr("s.yaml:12: key \"jobs[0].model\""));
  const auto answer = planner::WayPlanner(model.spec, model.cluster, model.options).Blind().value();
  ASSERT_EQ(answer.ways.size(), 1u);
  ASSERT_TRUE(ApplyWays(model, 0, answer.ways, false, &file.scenario));
  const ScenarioJob& job = file.scenario.jobs[0];
  EXPECT_GT(job.compute.count(), 0);
  EXPECT_LE(job.release, job.compute);
  EXPECT_EQ(job.flows.size(), 2u * 8) << "both ways, GPU to GPU";
  const planner::ScenarioFlow& flow = job.flows.front();
  EXPECT_EQ(file.scenario.topology.ShortestPaths(flow.from, flow.to).size(), 1u) << "over its own NIC and rail";
}

TEST(ScenarioYaml, HostsThatThePolicyChoosesStandForAnyOthers) {
  ScenarioFile file = Read(With(kScenarioLeafSpine, "hosts: 2, placement: spread", "hosts: 3, placement: any, deadline: 8s"));
  const planner::Scenario& s = file.scenario;
  ASSERT_EQ(s.places.size(), 4u);
  EXPECT_EQ(s.places[2].name, "h3");
  const ScenarioJob& job = s.jobs[1];
  ASSERT_EQ(job.sizes.size(), 1u);
  EXPECT_EQ(job.sizes[0].hosts, 3);
  ASSERT_EQ(job.sizes[0].ways.size(), 1u);
  EXPECT_EQ(job.sizes[0].ways[0].flows.size(), 6u) << "all to all";
  EXPECT_EQ(job.sizes[0].ways[0].compute, Seconds(0.08));
  EXPECT_TRUE(job.flows.empty());
  EXPECT_EQ(job.deadline, Seconds(8));
  EXPECT_EQ(s.jobs[0].places, (std::vector<size_t>{0, 2})) << "given hosts are held";
}

TEST(ScenarioYaml, AModelOfSeveralSizesIsPlannedOnEach) {
  ScenarioFile file = Read(With(kScenarioServers, "name: gpt, hosts: 2,", "name: gpt, min_gpus: 8, max_gpus: 24, iterations: 9, count: 2,"));
  ASSERT_EQ(file.models.size(), 3u);
  for (size_t m = 0; m < 3; ++m) {
    const ScenarioModel& model = file.models[m];
    EXPECT_EQ(model.size, m);
    EXPECT_EQ(model.cluster.nodes, static_cast<int64_t>(m + 1));
    EXPECT_EQ(model.jobs, (std::vector<size_t>{0, 1}));
    const auto answer = planner::WayPlanner(model.spec, model.cluster, model.options).Blind().value();
    ASSERT_TRUE(ApplyWays(model, 1, answer.ways, false, &file.scenario));
  }
  const ScenarioJob& job = file.scenario.jobs[1];
  ASSERT_EQ(job.sizes.size(), 3u);
  EXPECT_EQ(job.sizes[2].gpus, 24);
  EXPECT_GT(job.work, 0);
  EXPECT_GT(job.sizes[0].ways[0].compute, job.sizes[2].ways[0].compute);
  for (const planner::ScenarioSize& size : job.sizes) EXPECT_LE(job.work, size.gpus * size.ways[0].compute.count());
}

TEST(ScenarioYaml, WhatAModelIsAllowedIsLookedForInTheWholeSpace) {
  const ScenarioFile file = Read(With(kScenarioServers, "precision: bf16", "precision: bf16, allow: [low_precision, gossip]"));
  const ScenarioModel& model = file.models.at(0);
  EXPECT_TRUE(model.options.allow.low_precision && model.options.allow.gossip && !model.options.allow.local_steps);
  EXPECT_EQ(model.options.framework, planner::Framework::kAny);
}

TEST(ScenarioYaml, EveryFabricCanBeNamed) {
  for (const char* text : testing::kScenarios) {
    const planner::Scenario s = Read(text).scenario;
    ASSERT_FALSE(s.jobs.empty());
    ASSERT_GT(s.topology.links().size(), 4u) << s.name;
  }
}

/// A folder with `name` in it, gone with the test.
class Folder {
 public:
  Folder(const char* name, const char* text)
      : path_(std::filesystem::path(::testing::TempDir()) / ("weft_scenario_" + std::to_string(::getpid()) + name)) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / name) << text;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

constexpr const char* kImported = R"(version: 1
name: imported
duration: 5s
cluster: {fabric: KIND}
jobs: [{name: one, hosts: HOSTS, compute: 10ms, bytes: 10MB}]
)";

TEST(ScenarioYaml, ReadsSlurmsTopology) {
  const Folder folder("topology.conf", testing::kSlurmTree);
  const std::string text =
      With(With(kImported, "KIND", "slurm, file: topology.conf, rate: 100Gbit/s"), "HOSTS", "[n1, login]");
  const auto read = ParseScenarioYaml(text, "s.yaml", folder.path());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(
      read->scenario.topology.ShortestPaths(read->scenario.jobs[0].flows[0].from, read->scenario.jobs[0].flows[0].to)[0]
          .size(),
      4u);
  const Folder blocks("topology.conf", testing::kSlurmBlocks);
  const auto apart = ParseScenarioYaml(text, "s.yaml", blocks.path());
  ASSERT_FALSE(apart);
  EXPECT_THAT(apart.error().message(), HasSubstr("b1 and b2 are not connected, expected one tree, or core_rate"));
  const std::string joined =
      With(With(text, "100Gbit/s", "100Gbit/s, core_rate: 50Gbit/s"), "[n1, login]", "[n1, n36]");
  EXPECT_TRUE(ParseScenarioYaml(joined, "s.yaml", blocks.path()));
}

TEST(ScenarioYaml, ReadsNcclsTopology) {
  const Folder folder("t.xml", testing::kNcclTopology);
  const std::string two = With(With(kImported, "KIND", "nccl, file: t.xml, hosts: 2"), "HOSTS", "2");
  const auto read = ParseScenarioYaml(two, "s.yaml", folder.path());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->scenario.jobs[0].flows.size(), 4u) << "two GPUs each, there and back";
  EXPECT_EQ(read->scenario.jobs[0].gpus, 4);
  // One server alone: its GPUs are what can be named.
  const std::string one = With(With(kImported, "KIND", "nccl, file: t.xml"), "HOSTS", "[h1/gpu0, h1/gpu1]");
  const auto inside = ParseScenarioYaml(one, "s.yaml", folder.path());
  ASSERT_TRUE(inside) << inside.error().message();
  EXPECT_EQ(inside->scenario.jobs[0].gpus, 2);
  EXPECT_EQ(inside->scenario.jobs[0].flows.size(), 2u);
}

TEST(ScenarioYaml, AFileThatIsNotThereIsNotFound) {
  const std::string text = With(With(kImported, "KIND", "slurm, file: topology.conf, rate: 1Gbit/s"), "HOSTS", "1");
  const auto read = ParseScenarioYaml(text, "s.yaml", "/nonexistent");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kNotFound);
  EXPECT_THAT(read.error().message(),
              HasSubstr("s.yaml:4: key \"cluster.file\": /nonexistent/topology.conf: no such file"));
  const auto model = ParseScenarioYaml(With(kScenarioServers, "model: gpt2", "model: gtp2"), "s.yaml", "/nonexistent");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kNotFound);
  EXPECT_THAT(model.error().message(), HasSubstr("key \"jobs[0].model\": model \"/nonexistent/gtp2\": no such file"));
  EXPECT_EQ(ReadScenarioYaml("/nonexistent/s.yaml").error().code(), Code::kNotFound);
}

/// Executions in all; WEFT_FUZZ_EXECUTIONS=1000000 makes the long run that docs/network.md records.
uint64_t Executions() {
  const char* wanted = std::getenv("WEFT_FUZZ_EXECUTIONS");
  return wanted == nullptr ? 3'000 : std::strtoull(wanted, nullptr, 10);
}

/// A scenario that the simulator may be given, whatever the file was.
void ExpectSound(const planner::Scenario& s, const std::string& text) {
  const auto nodes = static_cast<int32_t>(s.topology.nodes().size()),
             links = static_cast<int32_t>(s.topology.links().size());
  ASSERT_GT(s.duration.count(), 0) << text;
  ASSERT_FALSE(s.jobs.empty()) << text;
  for (const ScenarioJob& job : s.jobs) {
    ASSERT_LE(job.release, job.compute) << text;
    ASSERT_LT(job.arrival, s.duration) << text;
    planner::BurstTimes before;
    for (const planner::BurstTimes& burst : job.bursts) {
      ASSERT_TRUE(before.release <= burst.release && before.needed <= burst.needed && burst.release <= burst.needed && burst.needed <= job.compute) << text;
      before = burst;
    }
    for (const planner::ScenarioFlow& flow : job.flows) {
      ASSERT_EQ(flow.per_burst.size(), job.bursts.size()) << text;
      ASSERT_TRUE(flow.from.valid() && flow.from.value() < nodes && flow.to.valid() && flow.to.value() < nodes) << text;
      ASSERT_TRUE(flow.from != flow.to && flow.bytes.count() > 0) << text;
    }
  }
  for (const planner::ScenarioFault& fault : s.faults) {
    ASSERT_TRUE(fault.link.valid() && fault.link.value() < links && fault.capacity.value() >= 0) << text;
  }
}

TEST(ScenarioMutations, GiveAScenarioOrOneClearLine) {
  testing::Noise noise(20261121);
  uint64_t good = 0;
  const uint64_t executions = Executions();
  for (uint64_t round = 0; round < executions; ++round) {
    const std::string text = testing::Mutated(testing::kScenarios[round % std::size(testing::kScenarios)], noise);
    const Result<ScenarioFile> read = ParseScenarioYaml(text, "fuzz", "/nonexistent");
    if (read) {
      ++good;
      ExpectSound(read->scenario, text);
    } else if (read.error().code() != Code::kNotFound) {  // a model's name that is none: a file
      const std::string& message = read.error().message();
      ASSERT_EQ(read.error().code(), Code::kInvalidArgument) << message;
      ASSERT_TRUE(message.starts_with("fuzz:")) << message;
      ASSERT_LT(message.size(), 600u) << text;
      for (const char c : message) ASSERT_TRUE(c >= ' ' && c < 0x7f) << "in: " << message << "\nfrom: " << text;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(good, executions / 200) << "some mutations miss what matters";
  EXPECT_LT(good, executions);
}

}  // namespace
}  // namespace weft::formats

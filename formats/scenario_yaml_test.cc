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

namespace weft::formats {
namespace {

using planner::NodeKind;
using planner::ScenarioJob;
using planner::SimulationPolicy;
using testing::kScenarioLeafSpine;
using testing::kScenarioLinks;
using testing::kScenarioServers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// `text` with the first `old` in it replaced.
std::string With(std::string text, std::string_view old, std::string_view replacement) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return at == std::string::npos ? text : text.replace(at, old.size(), replacement);
}

ScenarioFile Read(const std::string& text) {
  Result<ScenarioFile> read = ParseScenarioYaml(text, "s.yaml", "");
  EXPECT_TRUE(read) << read.error().message();
  return read ? std::move(*read) : ScenarioFile{};
}

std::string Message(const std::string& text) {
  const Result<ScenarioFile> read = ParseScenarioYaml(text, "s.yaml", "");
  if (read) return "accepted";
  EXPECT_EQ(read.error().code(), Code::kInvalidArgument) << read.error().message();
  return read.error().message();
}

std::string Name(const planner::Scenario& scenario, NodeId node) { return scenario.topology.node(node).name; }

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

TEST(ScenarioYaml, ServersSpreadTrafficOverTheGpusThatAreFree) {
  const ScenarioFile file = Read(kScenarioServers);
  const planner::Scenario& s = file.scenario;
  ASSERT_EQ(s.jobs.size(), 3u);
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
  EXPECT_EQ(model.fix.at("zero_stage"), 1);
  EXPECT_THAT(model.place, HasSubstr("s.yaml:12: key \"jobs[0].model\""));
  const auto answer = planner::ProfileModel(model.spec, model.cluster, model.fix).value();
  ASSERT_TRUE(answer.profile);
  ASSERT_TRUE(ApplyProfile(model, *answer.profile, &file.scenario));
  const ScenarioJob& job = file.scenario.jobs[0];
  EXPECT_GT(job.compute.count(), 0);
  EXPECT_LE(job.release, job.compute);
  EXPECT_EQ(job.flows.size(), 2u * 8) << "both ways, GPU to GPU";
  const planner::ScenarioFlow& flow = job.flows.front();
  EXPECT_EQ(file.scenario.topology.ShortestPaths(flow.from, flow.to).size(), 1u) << "over its own NIC and rail";
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

struct Refusal {
  const char *text, *old, *replacement, *message;
};

void ExpectRefused(std::initializer_list<Refusal> cases) {
  for (const Refusal& one : cases) {
    EXPECT_THAT(Message(With(one.text, one.old, one.replacement)), HasSubstr(one.message)) << one.replacement;
  }
}

TEST(ScenarioYaml, ErrorsOfTheClusterNameLineKeyValueAndWhatWasExpected) {
  ExpectRefused({
      {kScenarioLeafSpine, "leaf-spine", "tree",
       "s.yaml:8: key \"cluster.fabric\": value \"tree\", expected one of leaf-spine, "},
      {kScenarioLeafSpine, "leaves: 2", "leaves: 0", "key \"cluster.leaves\": value 0, expected an integer from 1 to"},
      {kScenarioLeafSpine, "leaves: 2", "leaves: -2",
       "key \"cluster.leaves\": value -2, expected an integer from 1 to"},
      {kScenarioLeafSpine, "leaves: 2", "leafs: 2", "key \"cluster.leaves\": missing, expected an integer"},
      {kScenarioLeafSpine, "spines: 2,", "spines: 2, cores: 1,", "key \"cluster.cores\": unknown, expected one of"},
      {kScenarioLeafSpine, "host_rate: 100Gbit/s", "host_rate: 0Gbit/s",
       "key \"cluster.host_rate\": rate \"0Gbit/s\": expected a positive"},
      {kScenarioLeafSpine, "host_rate: 100Gbit/s", "host_rate: 100",
       "key \"cluster.host_rate\": rate \"100\": expected a positive"},
      {kScenarioLeafSpine, "leaves: 2, spines: 2", "leaves: 9999, spines: 9999", "expected at most 65536 and 250000"},
      {kScenarioServers, "dgx-a100", "dgx-z9",
       "s.yaml:6: key \"cluster.server\": value \"dgx-z9\", expected one of dgx-v100, dgx-a100"},
      {kScenarioServers, "hosts: 4", "hosts: 4\n  rails: 4",
       "key \"cluster.rails\": value 4, expected 8, as many as the server has"},
      {kScenarioLinks, "to: s-1, rate: 10Gbit/s", "to: s-1, rate: 0bit/s",
       "key \"cluster.links[0].rate\": rate \"0bit/s\""},
      {kScenarioLinks, "from: s-1, to: b", "from: s-1, to: s-1",
       "s.yaml:15: key \"cluster.links[1].to\": value s-1, expected another"},
      {kScenarioLinks, "from: s-1, to: b", "from: s-1, to: a",
       "key \"cluster.links[1].to\": the link s-1->a stands twice"},
      {kScenarioLinks, "[a, b]", "[a, b, c]", "s.yaml:6: key \"cluster.hosts\": host \"c\" has no link"},
      {kScenarioLinks, "[a, b]", "[a, a]", "key \"cluster.hosts\": host \"a\" stands twice"},
      {kScenarioLinks, "device: a100-80", "device: a1", "key \"cluster.device\": value \"a1\", expected one of"},
      {kScenarioLinks, "  intra_node_rate: 300GB/s\n", "", "key \"cluster.intra_node_rate\": missing"},
      // Two islands; and a way there without a way back.
      {kScenarioLinks, "from: b, to: s-2, rate: 10Gbit/s", "from: b, to: s-3, rate: 10Gbit/s",
       "s.yaml:5: key \"cluster\": no path from b to a, expected one as job \"one\" sends there"},
      {testing::kScenarioTorus, "[3, 2]", "[3, 0]",
       "key \"cluster.extent\": value 0, expected a list of integers from 1 to"},
      {testing::kScenarioTorus, "[3, 2]", "[3, \"x\xc3\xa9\\e[0m\"]",
       "key \"cluster.extent\": value x???[0m, expected a list of integers from 1 to"},
      {testing::kScenarioTorus, "[3, 2]", "[]", "key \"cluster.extent\": expected a list of 1 to 8 sizes"},
  });
}

TEST(ScenarioYaml, ErrorsOfJobsNameLineKeyValueAndWhatWasExpected) {
  ExpectRefused({
      {kScenarioLeafSpine, "[h1, h3]", "[h1, h9]",
       "s.yaml:10: key \"jobs[0].hosts\": unknown host \"h9\", expected one of 4 hosts from \"h1\" to \"h4\""},
      {kScenarioLeafSpine, "[h1, h3]", "[h1, h1]", "key \"jobs[0].hosts\": host \"h1\" stands twice"},
      {kScenarioLeafSpine, "name: b", "name: a", "s.yaml:11: key \"jobs[1].name\": job \"a\" stands twice"},
      {kScenarioLeafSpine, "name: a", "name: a b", "key \"jobs[0].name\": value \"a b\", expected 1 to 63 letters"},
      {kScenarioLeafSpine, "bytes: 1GiB", "bytes: -1GiB",
       "key \"jobs[0].bytes\": size \"-1GiB\": expected a non-negative"},
      {kScenarioLeafSpine, "bytes: 1GiB", "bytes: 4000000TB",
       "key \"jobs[0].bytes\": 8e+18 bytes per iteration between all hosts, expected at most 4.612e+18"},
      {kScenarioLeafSpine, "bytes: 1GiB", "byte: 1GiB", "key \"jobs[0].bytes\": missing, expected a size such as 1GiB"},
      {kScenarioLeafSpine, "compute: 100ms", "compute: -1s",
       "key \"jobs[0].compute\": duration \"-1s\": expected a non-negative"},
      {kScenarioLeafSpine, "compute: 100ms, ", "",
       "key \"jobs[0].compute\": missing, expected a duration such as 100ms"},
      {kScenarioLeafSpine, "release: 40ms", "release: 140ms",
       "key \"jobs[0].release\": 0.14 s, expected at most compute, 0.1 s"},
      {kScenarioLeafSpine, "100ms, release: 40ms, bytes: 1GiB", "0s, bytes: 0B",
       "key \"jobs[0].compute\": 0 s and nothing to send"},
      {kScenarioLeafSpine, "all-to-all", "gossip",
       "key \"jobs[1].pattern\": value \"gossip\", expected ring, tree or all-to-all"},
      {kScenarioLeafSpine, "spread", "near",
       "key \"jobs[1].placement\": value \"near\", expected packed, spread or random"},
      {kScenarioLeafSpine, "hosts: 2", "hosts: 5", "key \"jobs[1].hosts\": value 5, expected an integer from 1 to 4"},
      {kScenarioLeafSpine, "arrival: 5s", "arrival: 20s",
       "key \"jobs[1].arrival\": 20 s, expected less than the duration, 20 s"},
      {kScenarioLeafSpine, "to: h4, bytes", "to: h2, bytes",
       "s.yaml:15: key \"jobs[2].flows[0].to\": expected another host than from"},
      {kScenarioLeafSpine, "to: h4, bytes", "to: x, bytes", "key \"jobs[2].flows\": unknown host \"x\""},
      {kScenarioLeafSpine, "    compute: 50ms", "    bytes: 1GB\n    compute: 50ms",
       "key \"jobs[2].bytes\": expected only without flows"},
      {kScenarioLeafSpine, "hosts: [h1, h3]", "priority: 1, hosts: [h1, h3]",
       "key \"jobs[0].priority\": unknown, expected one of"},
      {kScenarioServers, "gpus_per_host: 4", "gpus_per_host: 9",
       "key \"jobs[1].gpus_per_host\": value 9, expected an integer from 1 to 8"},
      {kScenarioServers, "precision: bf16", "precision: int1",
       "key \"jobs[0].precision\": precision \"int1\", expected one of"},
      {kScenarioServers, "zero_stage=1", "zero=1", "key \"jobs[0].fix\": "},
      {kScenarioServers, "interval: 1s", "interval: 60s",
       "key \"jobs[1].interval\": copy 2 arrives at 60 s, expected less than"},
      {kScenarioLeafSpine, "hosts: [h1, h3], compute: 100ms, release: 40ms, bytes: 1GiB",
       "hosts: [h1, h3], model: gpt2, global_batch: 8, sequence: 128",
       "key \"jobs[0].model\": value \"gpt2\", expected cluster.device"},
  });
}

TEST(ScenarioYaml, OtherErrorsNameLineKeyValueAndWhatWasExpected) {
  ExpectRefused({
      {kScenarioLeafSpine, "duration: 20s", "duration: 0s", "s.yaml:3: key \"duration\": 0 s, expected more than 0"},
      {kScenarioLeafSpine, "duration: 20s\n", "", "key \"duration\": missing, expected a duration such as 60s"},
      {kScenarioLeafSpine, "[ecmp, weft]", "[ecmp, fast]",
       "s.yaml:7: key \"policies\": value \"fast\", expected some of ecmp, weft"},
      {kScenarioLeafSpine, "[ecmp, weft]", "[ecmp, ecmp]", "key \"policies\": \"ecmp\" stands twice"},
      {kScenarioLeafSpine, "classes: 3", "classes: 0", "key \"classes\": value 0, expected an integer from 1 to 64"},
      {kScenarioLeafSpine, "version: 1", "version: 2", "key \"version\": value 2, expected an integer from 1 to 1"},
      {kScenarioLeafSpine, "at: 10s", "at: 30s",
       "s.yaml:18: key \"faults[0].at\": 30 s, expected less than the duration, 20 s"},
      {kScenarioLeafSpine, "leaf1->spine1", "leaf1->leaf2",
       "key \"faults[0].link\": unknown link \"leaf1->leaf2\", expected two nodes"},
      {kScenarioLeafSpine, "cable: leaf1-spine1, rate: down", "cable: leaf1-x, rate: down",
       "key \"faults[1].cable\": unknown cable \"leaf1-x\""},
      {kScenarioLeafSpine, "rate: 10Gbit/s", "rate: 0Gbit/s",
       "key \"faults[0].rate\": rate \"0Gbit/s\": expected a positive number"},
      {kScenarioLeafSpine, "rate: 10Gbit/s", "rate: 60Gbit/s",
       "key \"faults[0].rate\": 60 Gbit/s, expected at most the link's 50 Gbit/s"},
      {kScenarioLeafSpine, "link: leaf1->spine1, rate", "rate", "key \"faults[0].link\": expected either a link"},
      {kScenarioLeafSpine, "rate: down", "rates: down", "key \"faults[1].rate\": missing"},
  });
  EXPECT_THAT(Message("version: 1\nname: x\nduration: 1s\n"), HasSubstr("key \"cluster\": missing"));
  EXPECT_THAT(Message("jobs: [a"), HasSubstr("s.yaml:"));
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
    for (const planner::ScenarioFlow& flow : job.flows) {
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

// Clusters of scenario files whose parts differ from each other, or are named like what the reader adds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "formats/scenario_yaml.h"

namespace weft::formats {
namespace {

using ::testing::SizeIs;

constexpr const char* kTwoSpeeds = R"(version: 1
name: speeds
duration: 60s
cluster:
  fabric: links
  hosts: [HOSTS]
  gpus_per_host: 2
  device: a100-80
  intra_node_rate: 300GB/s
  links:
    - {from: slow1, to: s, rate: 10Gbit/s}
    - {from: slow2, to: s, rate: 10Gbit/s}
    - {from: fast1, to: s, rate: 100Gbit/s}
    - {from: fast2, to: s, rate: 100Gbit/s}
jobs: [{name: gpt, hosts: 2, count: 2, model: gpt2, global_batch: 64, sequence: 1024}]
)";

TEST(ScenarioCluster, CopiesOfAModelArePlannedOnTheSlowestHostsOfAll) {
  for (const char* hosts : {"slow1, slow2, fast1, fast2", "fast1, fast2, slow1, slow2"}) {
    std::string text = kTwoSpeeds;
    text.replace(text.find("HOSTS"), 5, hosts);
    const Result<ScenarioFile> read = ParseScenarioYaml(text, "s.yaml", "");
    ASSERT_TRUE(read) << read.error().message();
    ASSERT_THAT(read->models, SizeIs(1));
    EXPECT_THAT(read->models[0].jobs, SizeIs(2));
    EXPECT_EQ(read->models[0].cluster.nodes, 2);
    EXPECT_EQ(read->models[0].cluster.nic_rate, GigabitsPerSecond(10)) << hosts;
  }
}

TEST(ScenarioCluster, TheSwitchAboveSlurmsRootsTakesANameThatIsFree) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("weft_scenario_core_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "t.conf") << "SwitchName=core Nodes=n1\nSwitchName=s2 Nodes=core2\n";
  const Result<ScenarioFile> read = ParseScenarioYaml(R"(version: 1
name: roots
duration: 5s
cluster: {fabric: slurm, file: t.conf, rate: 100Gbit/s, core_rate: 50Gbit/s}
jobs: [{name: one, hosts: [n1, core2], compute: 10ms, bytes: 10MB}]
)",
                                                      "s.yaml", folder.string());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(read) << read.error().message();
  const planner::Topology& topology = read->scenario.topology;
  ASSERT_TRUE(topology.FindNode("core3"));
  EXPECT_EQ(topology.node(*topology.FindNode("core3")).kind, planner::NodeKind::kSwitch);
  EXPECT_THAT(topology.links(), SizeIs(8)) << "four cables";
  for (const planner::Link& link : topology.links()) EXPECT_NE(link.from, link.to);
  const planner::ScenarioFlow& flow = read->scenario.jobs[0].flows[0];
  EXPECT_THAT(topology.ShortestPaths(flow.from, flow.to)[0], SizeIs(4));
}

}  // namespace
}  // namespace weft::formats

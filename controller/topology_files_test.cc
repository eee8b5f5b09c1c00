#include "controller/topology_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSlurm[] = "SwitchName=s1 Nodes=h[1-2]\nSwitchName=s2 Nodes=h[3-4]\nSwitchName=top Switches=s[1-2]\n";

ImportedTopology Slurm(const char* text) {
  ImportedTopology imported;
  const Status status = AddTopologyText({TopologyFormat::kSlurm, "topology.conf", ""}, text, &imported);
  EXPECT_TRUE(status) << status.error().message();
  return imported;
}

TEST(TopologyFiles, SlurmAndLldpNameTheSwitchOfAHost) {
  ImportedTopology imported = Slurm(kSlurm);
  EXPECT_EQ(imported.leaf.at("h3").name, "s2");
  const TopologyFile lldp{TopologyFormat::kLldp, "h3.json", "h3"};
  ASSERT_TRUE(AddTopologyText(
      lldp, R"({"lldp":{"interface":{"eth0":{"chassis":{"s1":{}},"port":{"descr":"p1"}}}}})", &imported));
  EXPECT_EQ(imported.leaf.at("h3").name, "s2") << "the first file holds";
  EXPECT_THAT(imported.conflicts, ElementsAre(HasSubstr("host h3 hangs on s2 in topology.conf, on s1 in h3.json")));
}

TEST(TopologyFiles, MistakesNameTheFile) {
  ImportedTopology imported;
  const Status status = AddTopologyText({TopologyFormat::kSlurm, "t.conf", ""}, "Switch=1\n", &imported);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(status.error().message(), HasSubstr("t.conf: line 1"));
  EXPECT_THAT(ReadTopologyFiles({{TopologyFormat::kLldp, "/none/such.json", "h1"}}).error().message(),
              HasSubstr("/none/such.json"));
  EXPECT_THAT(ParseTopologyFormat("xml").error().message(), HasSubstr("slurm, lldp or nccl"));
}

TEST(TopologyFiles, GroupsThatDifferFromWhatProbesFindAreConflicts) {
  const ImportedTopology imported = Slurm(kSlurm);
  EXPECT_THAT(TopologyConflicts(imported, {{"h1", "10.0.0.1"}, {"h2", "10.0.0.1"}, {"h3", "10.0.0.2"}}, {}), IsEmpty());
  EXPECT_THAT(TopologyConflicts(imported, {{"h1", "10.0.0.1"}, {"h2", "10.0.0.2"}}, {}),
              ElementsAre(HasSubstr("hosts h1 and h2 hang on s1, but probes find them on 10.0.0.1 and 10.0.0.2")));
  EXPECT_THAT(TopologyConflicts(imported, {{"h1", "10.0.0.1"}, {"h3", "10.0.0.1"}}, {}),
              ElementsAre(HasSubstr("hosts h1 and h3 hang on s1 and s2, but probes find both on 10.0.0.1")));
}

TEST(TopologyFiles, NicsThatCarryLessThanConfiguredAreAConflict) {
  ImportedTopology imported;
  imported.nic_rate["h1"] = GigabitsPerSecond(100);
  EXPECT_THAT(TopologyConflicts(imported, {}, {{"h1", GigabitsPerSecond(400)}}),
              ElementsAre(HasSubstr("host h1: its NICs carry 100 Gbit/s, its link is configured for 400 Gbit/s")));
  EXPECT_THAT(TopologyConflicts(imported, {}, {{"h1", GigabitsPerSecond(100)}}), IsEmpty());
}

TEST(TopologyFiles, CoreOrdersByFilesUntilProbesSpeakAndReportsConflicts) {
  CoreOptions options;
  options.imported = Slurm("SwitchName=s1 Nodes=h[1,3]\nSwitchName=s2 Nodes=h[2,4]\n");  // not as the cluster is
  Core core(options);
  testing::FakeCluster cluster(core, 2, 1, 2);
  cluster.RegisterAll();
  EXPECT_EQ(core.Placement("").leaf.at("h3"), "s1") << "before any probe";
  cluster.Start({.id = "a", .ring = {"h1", "h3"}}, 0);
  cluster.Run(0.5);
  cluster.Probe("a");
  cluster.Run(3);
  EXPECT_EQ(core.Placement("").leaf.at("h3"), "leaf2") << "probes win";
  std::vector<std::string> conflicts;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == "topology") conflicts.push_back(decision.reason());
  }
  EXPECT_THAT(conflicts, ElementsAre(HasSubstr("hosts h1 and h3 hang on s1, but probes find them on leaf1 and leaf2")))
      << "once";
}

}  // namespace
}  // namespace weft::controller

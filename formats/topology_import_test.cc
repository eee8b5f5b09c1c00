// The importers of topologies: what they read, what they refuse and how they say so, and 21,000 broken files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "formats/lldp_json.h"
#include "formats/nccl_topology_xml.h"
#include "formats/slurm_topology.h"
#include "formats/testing/config_corpus.h"
#include "formats/testing/topology_corpus.h"
#include "formats/testing/with.h"

namespace weft::formats {
namespace {

using planner::LinkKind;
using planner::NodeKind;
using testing::kLldpOne;
using testing::kLldpSeveral;
using testing::kNcclMesh;
using testing::kNcclTopology;
using testing::kSlurmBlocks;
using testing::kSlurmTree;
using testing::With;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const planner::Link& LinkOf(const planner::Topology& topology, const char* from, const char* to) {
  return topology.link(topology.FindLink(*topology.FindNode(from), *topology.FindNode(to)).value());
}

TEST(NcclTopologyXml, BecomesAServer) {
  const Result<NcclTopology> read = ParseNcclTopologyXml(kNcclTopology, "t.xml", "n1");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->server.gpus.size(), 2u);
  EXPECT_EQ(read->server.nics.size(), 1u);
  EXPECT_EQ(LinkOf(read->topology, "n1/gpu0", "n1/nvswitch").line_rate, GigabytesPerSecond(18 * 25));
  EXPECT_EQ(LinkOf(read->topology, "n1/mlx5_0", "n1/0000:11:00.0").line_rate, GigabitsPerSecond(400));
  EXPECT_NEAR(LinkOf(read->topology, "n1/gpu1", "n1/cpu1").line_rate.bytes_per_second(), 31.5e9, 0.1e9);
  EXPECT_EQ(LinkOf(read->topology, "n1/cpu0", "n1/cpu1").kind, LinkKind::kCpuFabric);
  EXPECT_EQ(read->topology.ShortestPaths(read->server.gpus[0], read->server.gpus[1])[0].size(), 2u) << "NVSwitch";
}

TEST(NcclTopologyXml, ReadsDirectNvlinks) {
  const Result<NcclTopology> read = ParseNcclTopologyXml(kNcclMesh, "t.xml", "n1");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(LinkOf(read->topology, "n1/gpu1", "n1/gpu0").line_rate, GigabytesPerSecond(50));
}

TEST(NcclTopologyXml, ErrorsNameTheLineTheValueAndWhatWasExpected) {
  const struct {
    const char *old, *replacement, *message;
  } kCases[] = {
      {"</cpu>", "</cqu>", "t.xml: line 2: not XML: XML_ERROR_MISMATCHED_ELEMENT"},
      {"<system", "<sistem", "not XML"},
      {"dev=\"0\" sm", "dev=\"x\" sm", "t.xml: line 5: gpu dev \"x\", expected an integer from 0 to 4095"},
      {"dev=\"1\"", "dev=\"0\"", "line 14: gpu \"gpu0\": the name is there already"},
      {"speed=\"400000\"", "speed=\"-1\"", "line 8: net speed \"-1\", expected an integer from 1 to"},
      {"name=\"mlx5_0\" ", "", "line 8: net without name"},
      {"link_speed=\"32.0 GT/s PCIe\"", "link_speed=\"fast\"", "line 3: pci link_speed \"fast\", expected a number"},
      {"busid=\"0000:13:00.0\"", "busid=\"0000:12:00.0\"", "line 7: pci busid \"0000:12:00.0\" is there twice"},
      {"tclass=\"0x068000\"", "tclass=\"0x030200\"", "line 5: nvlink target \"0000:ff:00.0\" is no GPU of this file"},
  };
  for (const auto& one : kCases) {
    const Result<NcclTopology> read = ParseNcclTopologyXml(With(kNcclTopology, one.old, one.replacement), "t.xml", "n1");
    ASSERT_FALSE(read) << one.replacement;
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr(one.message));
  }
  EXPECT_THAT(ParseNcclTopologyXml("<system/>", "t.xml", "n1").error().message(), HasSubstr("without GPU and without net"));
  EXPECT_THAT(ParseNcclTopologyXml("<a/>", "t.xml", "n1").error().message(), HasSubstr("no \"system\" element"));
}

TEST(LldpJson, ReadsOneNeighbourOrSeveral) {
  const auto one = ParseLldpJson(kLldpOne, "l.json");
  ASSERT_TRUE(one) << one.error().message();
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].interface + " " + (*one)[0].chassis + " " + (*one)[0].port, "eth0 leaf0 swp1");
  const auto several = ParseLldpJson(kLldpSeveral, "l.json");
  ASSERT_TRUE(several) << several.error().message();
  ASSERT_EQ(several->size(), 2u);
  EXPECT_EQ((*several)[1].interface + " " + (*several)[1].chassis + " " + (*several)[1].port,
            "eth1 66:07:d4:75:6d:bc Ethernet7");
  EXPECT_TRUE(ParseLldpJson(R"({"lldp": {}})", "l.json")->empty());
}

TEST(LldpJson, ErrorsNameTheInterfaceAndTheKey) {
  EXPECT_THAT(ParseLldpJson("{\n\"lldp\": ]", "l.json").error().message(), HasSubstr("l.json: "));
  EXPECT_THAT(ParseLldpJson("{}", "l.json").error().message(), HasSubstr("lldp: missing or no object"));
  EXPECT_THAT(ParseLldpJson(R"({"lldp": {"interface": 7}})", "l.json").error().message(),
              HasSubstr("lldp.interface: expected an object or a list"));
  EXPECT_THAT(ParseLldpJson(With(kLldpOne, "chassis", "chasis"), "l.json").error().message(),
              HasSubstr("interface eth0: chassis is missing"));
  EXPECT_THAT(ParseLldpJson(With(kLldpOne, "\"swp1\"", "1"), "l.json").error().message(),
              HasSubstr("interface eth0: port.descr is no text"));
}

TEST(SlurmTopology, ReadsTreesAndBlocks) {
  const auto tree = ParseSlurmTopology(kSlurmTree, "topology.conf");
  ASSERT_TRUE(tree) << tree.error().message();
  ASSERT_EQ(tree->size(), 3u);
  EXPECT_THAT((*tree)[1].nodes, ElementsAre("n03", "n04", "n7", "login"));
  EXPECT_THAT((*tree)[2].switches, ElementsAre("leaf1", "leaf2"));
  const planner::Topology graph = SlurmTopologyGraph(*tree, GigabitsPerSecond(400));
  const auto paths = graph.ShortestPaths(*graph.FindNode("n1"), *graph.FindNode("login"));
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_EQ(paths[0].size(), 4u);
  const auto blocks = ParseSlurmTopology(kSlurmBlocks, "topology.conf");
  ASSERT_TRUE(blocks) << blocks.error().message();
  EXPECT_EQ((*blocks)[1].nodes.back(), "n36");
}

TEST(SlurmTopology, ErrorsNameTheLine) {
  const struct {
    const char *text, *message;
  } kCases[] = {
      {"SwitchName=a Nodes=n1\nSwitch=b", "c: line 2: unknown key \"switch\", expected SwitchName"},
      {"SwitchName=a", "c: line 1: a has neither Nodes nor Switches"},
      {"Nodes=n1", "line 1: neither SwitchName nor BlockName"},
      {"SwitchName=a Nodes=n1\n\nSwitchName=a Nodes=n2", "line 3: a is there twice"},
      {"SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "line 2: node n1 is on two switches"},
      {"SwitchName=a Switches=b", "line 1: switch b is not defined"},
      {"SwitchName=a Switches=b\nSwitchName=b Switches=a", "line 1: switch a is below itself"},
      {"SwitchName=a Nodes=n[3-1]", "host list \"n[3-1]\": range 3-1 runs backwards"},
      {"SwitchName=a Nodes=n[1-999999]", "more than 65,536 names"},
      {"SwitchName=a Nodes=n[1", "expected ']'"},
      {"SwitchName=a Nodes=n[x]", "\"x\" is no number"},
      {"SwitchName=a Nodes=n1,,n2", "an empty name"},
      {"SwitchName=a foo", "line 1: \"foo\", expected key=value"},
  };
  for (const auto& one : kCases) {
    const auto read = ParseSlurmTopology(one.text, "c");
    ASSERT_FALSE(read) << one.text;
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr(one.message));
  }
}

/// What a broken file may lead to: success, or one printable line that starts with the source.
template <typename T>
bool ReadOrOneClearLine(const Result<T>& read, const std::string& text) {
  if (read) return true;
  const std::string& message = read.error().message();
  EXPECT_EQ(read.error().code(), Code::kInvalidArgument) << message;
  EXPECT_TRUE(message.starts_with("fuzz: ")) << message;
  EXPECT_LT(message.size(), 400u) << text;
  for (const char c : message) EXPECT_TRUE(c >= ' ' && c < 0x7f) << "in: " << message << "\nfrom: " << text;
  return false;
}

/// Executions in all; WEFT_FUZZ_EXECUTIONS=1000000 makes the long run that docs/network.md records.
uint64_t Executions() {
  const char* wanted = std::getenv("WEFT_FUZZ_EXECUTIONS");
  return wanted == nullptr ? 21'000 : std::strtoull(wanted, nullptr, 10);
}

TEST(TopologyMutations, GiveATopologyOrOneClearLine) {
  testing::Noise noise(20241103);
  uint64_t good = 0;
  const uint64_t executions = Executions();
  for (uint64_t round = 0; round < executions; ++round) {
    switch (round % 3) {
      case 0: {
        const std::string text = testing::Mutated(round % 2 == 0 ? kNcclTopology : kNcclMesh, noise);
        const Result<NcclTopology> read = ParseNcclTopologyXml(text, "fuzz", "n1");
        if (!ReadOrOneClearLine(read, text)) break;
        ++good;
        for (const planner::Link& link : read->topology.links()) ASSERT_GT(link.capacity.value(), 0) << text;
        break;
      }
      case 1: {
        const std::string text = testing::Mutated(round % 2 == 0 ? kLldpOne : kLldpSeveral, noise);
        good += ReadOrOneClearLine(ParseLldpJson(text, "fuzz"), text) ? 1 : 0;
        break;
      }
      default: {
        const std::string text = testing::Mutated(round % 2 == 0 ? kSlurmTree : kSlurmBlocks, noise);
        const auto read = ParseSlurmTopology(text, "fuzz");
        if (!ReadOrOneClearLine(read, text)) break;
        ++good;
        const planner::Topology graph = SlurmTopologyGraph(*read, GigabitsPerSecond(1));
        ASSERT_GE(graph.nodes().size(), read->size()) << text;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(good, executions / 20) << "some mutations miss what matters";
  EXPECT_LT(good, executions);
}

}  // namespace
}  // namespace weft::formats

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "formats/cluster_yaml.h"
#include "formats/job_yaml.h"

namespace weft::formats {
namespace {

using namespace literals;
using planner::ClusterSpec;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kCluster = R"(version: 1
name: lab
nodes: 4
gpus_per_node: 8
device: a100-80
device_memory: 40GiB
intra_node_rate: 300GB/s
nic_rate: 800Gbit/s   # all four NICs
nic_latency: 10us
)";

constexpr const char* kJob = R"(version: 1
name: pretrain
model: gpt2
global_batch: 64
sequence: 512
precision: fp32
hosts: [h1, h2]
measured_compute: 250ms
)";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

template <typename T>
std::string Message(const Result<T>& result) {
  if (result) return "accepted";
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  return result.error().message();
}

TEST(ClusterYaml, IsReadWithUnitsAndDefaults) {
  const ClusterSpec cluster = ParseClusterYaml(kCluster, "lab.yaml").value();
  EXPECT_EQ(cluster.name, "lab");
  EXPECT_EQ(cluster.nodes, 4);
  EXPECT_EQ(cluster.gpus_per_node, 8);
  EXPECT_EQ(cluster.device.name, "a100-80");
  EXPECT_EQ(cluster.device.memory, 40_GiB);
  EXPECT_DOUBLE_EQ(cluster.intra_node_rate.value(), 2.4e12);
  EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 8e11);
  EXPECT_DOUBLE_EQ(cluster.nic_latency.count(), 1e-5);
  EXPECT_DOUBLE_EQ(cluster.intra_latency.count(), 4e-6);
}

struct Fault {
  const char* from;
  const char* to;
  const char* message;
};

TEST(ClusterYaml, EachFaultNamesFileLineKeyAndExpectation) {
  const Fault faults[] = {
      {"version: 1\n", "", "key \"version\": missing"},
      {"version: 1", "version: 2", "lab.yaml:1: key \"version\": value 2, expected an integer from 1 to 1"},
      {"nodes: 4", "nodes: four", "lab.yaml:3: key \"nodes\": value four, expected an integer from 1"},
      {"nodes: 4", "nodes: 4\nnodes: 5", "lab.yaml:4: key \"nodes\": stands twice"},
      {"nodes: 4", "nodez: 4", "key \"nodes\": missing"},
      {"nodes: 4", "nodes: 4\ncolour: red", "lab.yaml:4: key \"colour\": unknown, expected one of device"},
      {"nodes: 4", "nodes: [4]", "lab.yaml:3: key \"nodes\": expected a single value"},
      {"nodes: 4", "nodes: 4: 5", "lab.yaml:3:9: illegal map value"},
      {"300GB/s", "300", "lab.yaml:7: key \"intra_node_rate\": "},
      {"40GiB", "1GiB", "lab.yaml:6: key \"device_memory\": expected more than the 2048 MiB"},
      {"a100-80", "b100", "lab.yaml:5: key \"device\": value \"b100\", expected one of v100-16, v100-32"},
      {"nic_latency: 10us", "network_efficiency: 1.5", "value 1.5, expected a number from 0.01 to 1"},
  };
  for (const Fault& fault : faults) {
    EXPECT_THAT(Message(ParseClusterYaml(Replaced(kCluster, fault.from, fault.to), "lab.yaml")),
                HasSubstr(fault.message));
  }
  EXPECT_THAT(Message(ParseClusterYaml("[1, 2]", "lab.yaml")), HasSubstr("expected a map"));
  EXPECT_THAT(Message(ParseClusterYaml("", "lab.yaml")), HasSubstr("lab.yaml: no YAML document, expected 1"));
  EXPECT_THAT(Message(ParseClusterYaml("a: 1\n---\na: 1", "lab.yaml")), HasSubstr("more than one YAML document"));
  // yaml-cpp 0.7 collects empty documents from this without end.
  EXPECT_THAT(Message(ParseClusterYaml(", version: 1\n", "lab.yaml")), HasSubstr("more than one YAML document"));
}

constexpr const char* kGroups = R"(version: 1
name: old-and-new
groups:
  - {nodes: 2, gpus_per_node: 8, device: h100-80, intra_node_rate: 450GB/s, nic_rate: 3.2Tbit/s}
  - {name: old, nodes: 4, gpus_per_node: 4, device: v100-32, intra_node_rate: 150GB/s, nic_rate: 100Gbit/s, nic_latency: 20us}
between_groups_rate: 10Gbit/s
)";

TEST(ClusterYaml, GroupsOfNodesMayDiffer) {
  const ClusterSpec cluster = ParseClusterYaml(kGroups, "mixed.yaml").value();
  ASSERT_EQ(cluster.groups.size(), 2u);
  EXPECT_EQ(cluster.groups[0].name, "group0");
  EXPECT_EQ(cluster.groups[1].name, "old");
  EXPECT_EQ(cluster.TotalGpus(), 32);
  EXPECT_EQ(cluster.device.memory, 32_GiB);
  EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 1e11);
  EXPECT_DOUBLE_EQ(cluster.nic_latency.count(), 2e-5);
  EXPECT_DOUBLE_EQ(cluster.groups[0].nic_latency.count(), 12e-6);
  EXPECT_DOUBLE_EQ(cluster.between_groups_rate.value(), 1e10);
}

constexpr const char* kOnFabric = R"(version: 1
name: oversubscribed
gpus_per_node: 8
device: h100-80
intra_node_rate: 450GB/s
fabric: {fabric: leaf-spine, leaves: 4, spines: 1, hosts_per_leaf: 4, host_rate: 400Gbit/s}
)";

TEST(ClusterYaml, AFabricSaysHowManyNodesThereAreAndWhatTheyHangOn) {
  const ClusterSpec cluster = ParseClusterYaml(kOnFabric, "fabric.yaml").value();
  EXPECT_EQ(cluster.nodes, 16);
  EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 400e9);
  ASSERT_EQ(cluster.tiers.size(), 2u);
  EXPECT_EQ(cluster.tiers[0].name, "leaf");
  EXPECT_EQ(cluster.tiers[0].nodes, 4);
  EXPECT_DOUBLE_EQ(cluster.tiers[0].out.value(), 100e9);
  ASSERT_EQ(cluster.node_names.size(), 16u);
  EXPECT_EQ(cluster.node_names.front(), "h1");
  EXPECT_TRUE(ParseClusterYaml(Replaced(kOnFabric, "gpus_per_node: 8", "gpus_per_node: 8\nnodes: 16"), "fabric.yaml"));
}

TEST(ClusterYaml, SeveralHostsOfAFabricMayMakeOneNode) {
  const ClusterSpec cluster =
      ParseClusterYaml(Replaced(kOnFabric, "gpus_per_node: 8", "gpus_per_node: 8\nhosts_per_node: 2"), "fabric.yaml").value();
  EXPECT_EQ(cluster.nodes, 8);
  EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 800e9);
  EXPECT_EQ(cluster.tiers[0].nodes, 2);
  EXPECT_EQ(cluster.node_names[1], "h3");
}

TEST(ClusterYaml, EachFaultOfAFabricNamesItsPlace) {
  const Fault faults[] = {
      {"gpus_per_node: 8", "gpus_per_node: 8\nnodes: 12", "fabric.yaml:4: key \"nodes\": value 12, expected 16, the nodes of \"fabric\""},
      {"gpus_per_node: 8", "gpus_per_node: 8\nnic_rate: 1.6Tbit/s", "fabric.yaml:4: key \"nic_rate\": expected 400 Gbit/s"},
      {"gpus_per_node: 8", "gpus_per_node: 9\nhosts_per_node: 3", "key \"hosts_per_node\": value 3, expected a divisor of the fabric's 16"},
      {"leaves: 4", "leaves: none", "fabric.yaml:6: key \"fabric.leaves\": value none, expected an integer"},
      {"leaf-spine", "cloth", "key \"fabric.fabric\": value \"cloth\", expected one of leaf-spine"},
      {"leaves: 4", "leaves: 4, device: h200", "key \"fabric.device\": expected beside \"fabric\", not in it"},
      {"host_rate: 400Gbit/s", "server: dgx-h100", ""},
      {"gpus_per_node: 8", "gpus_per_node: 4", ""},
  };
  for (const Fault& fault : faults) {
    const auto cluster = ParseClusterYaml(Replaced(kOnFabric, fault.from, fault.to), "fabric.yaml");
    if (*fault.message != 0) EXPECT_THAT(Message(cluster), HasSubstr(fault.message));
    else EXPECT_TRUE(cluster) << fault.to;
  }
  const std::string apart = Replaced(kOnFabric, "{fabric: leaf-spine, leaves: 4, spines: 1, hosts_per_leaf: 4, host_rate: 400Gbit/s}",
                                     "{fabric: links, hosts: [a, b, c], links: [{from: a, to: s, rate: 1Gbit/s}, {from: s, to: b, "
                                     "rate: 1Gbit/s}, {from: c, to: t, rate: 1Gbit/s}]}");
  EXPECT_THAT(Message(ParseClusterYaml(apart, "fabric.yaml")),
              HasSubstr("fabric.yaml:6: key \"fabric\": a and c cannot send to each other, expected links both ways"));
  const std::string servers = Replaced(kOnFabric, "host_rate: 400Gbit/s", "server: dgx-h100");
  EXPECT_THAT(Message(ParseClusterYaml(Replaced(servers.c_str(), "gpus_per_node: 8", "gpus_per_node: 4"), "fabric.yaml")),
              HasSubstr("key \"gpus_per_node\": value 4, expected 8, as the fabric's servers have"));
}

TEST(ClusterYaml, ExamplesAreRead) {
  size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_CLUSTERS)) {
    const auto cluster = ReadClusterYaml(entry.path().string());
    ASSERT_TRUE(cluster) << cluster.error().message();
    EXPECT_EQ(cluster->name + ".yaml", entry.path().filename());
    ++examples;
  }
  EXPECT_GE(examples, 2u);
}

TEST(ClusterYaml, EachFaultOfAGroupNamesItsPlace) {
  const Fault faults[] = {
      {"device: h100-80", "device: h100", "mixed.yaml:4: key \"groups[0].device\": value \"h100\", expected one of v100-16"},
      {", nic_rate: 3.2Tbit/s", "", "mixed.yaml:4: key \"groups[0].nic_rate\": missing, expected a rate such as 400Gbit/s"},
      {"name: old,", "colour: old,", "mixed.yaml:5: key \"groups[1].colour\": unknown, expected one of device"},
      {"  - {nodes: 2", "  - 3\n  - {nodes: 2", "mixed.yaml:4: expected a map of keys and values"},
      {"nic_rate: 100Gbit/s", "nic_rate: 0Gbit/s", "mixed.yaml:5: key \"groups[1].nic_rate\": "},
      {"between_groups_rate", "nodes", "mixed.yaml:6: key \"nodes\": unknown, expected one of between_groups_latency"},
  };
  for (const Fault& fault : faults) {
    EXPECT_THAT(Message(ParseClusterYaml(Replaced(kGroups, fault.from, fault.to), "mixed.yaml")), HasSubstr(fault.message));
  }
  EXPECT_THAT(Message(ParseClusterYaml("version: 1\nname: a\ngroups: []\n", "c")), HasSubstr("0 groups, expected 1 to 64"));
  EXPECT_THAT(Message(ParseClusterYaml("version: 1\nname: a\ngroups: 3\n", "c")), HasSubstr("key \"groups\": expected a list"));
}

TEST(ClusterYaml, SwitchesMaySum) {
  EXPECT_FALSE(ParseClusterYaml(kCluster, "c").value().switch_sums);
  EXPECT_TRUE(ParseClusterYaml(Replaced(kCluster, "gpus_per_node: 8", "gpus_per_node: 8\nswitch_sums: true"), "c").value().switch_sums);
  EXPECT_THAT(Message(ParseClusterYaml(Replaced(kCluster, "gpus_per_node: 8", "gpus_per_node: 8\nswitch_sums: maybe"), "c")),
              HasSubstr("key \"switch_sums\": value \"maybe\", expected true or false"));
}

TEST(ClusterYaml, NicsHaveANumberAndAKind) {
  EXPECT_EQ(ParseClusterYaml(kCluster, "c").value().nics_per_node, 0);
  const auto with = [](const char* keys) { return ParseClusterYaml(Replaced(kCluster, "gpus_per_node: 8", std::string("gpus_per_node: 8\n") + keys), "c"); };
  const planner::ClusterSpec efa = with("nics_per_node: 32\nnic_kind: efa").value();
  EXPECT_EQ(efa.nics_per_node, 32);
  EXPECT_EQ(efa.nic_kind, planner::NicKind::kEfa);
  EXPECT_THAT(Message(with("nic_kind: token-ring")), HasSubstr("key \"nic_kind\": value \"token-ring\", expected plain, efa, efa-staged or slingshot"));
}

TEST(ClusterYaml, HostsDivideANode) {
  const std::string rack = Replaced(kCluster, "gpus_per_node: 8", "gpus_per_node: 72\nhosts_per_node: 18");
  EXPECT_EQ(ParseClusterYaml(rack, "c").value().GpusPerHost(), 4);
  EXPECT_THAT(Message(ParseClusterYaml(Replaced(rack, "18", "17"), "c")),
              HasSubstr("key \"hosts_per_node\": value 17, expected a divisor of gpus_per_node = 72"));
}

TEST(ClusterYaml, AliasesThatExplodeAreRefused) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = std::to_string(i - 1), self = std::to_string(i);
    bomb.append("a").append(self).append(": &a").append(self).append(" [*a").append(before);
    for (int j = 1; j < 10; ++j) bomb.append(", *a").append(before);
    bomb.append("]\n");
  }
  EXPECT_THAT(Message(ParseClusterYaml(bomb, "bomb.yaml")), HasSubstr("more than 100000 values"));
}

TEST(ResolveCluster, TakesPresetsWithACountAndFiles) {
  EXPECT_EQ(ResolveCluster("dgx-a100:384").value().nodes, 384);
  for (const char* name : {"dgx-a100", "dgx-a100:", "dgx-a100:0", "dgx-a100:4x", "dgx-a100:-1"}) {
    EXPECT_THAT(Message(ResolveCluster(name)), HasSubstr("expected dgx-a100:N with N from 1")) << name;
  }
  const ClusterSpec mixed = ResolveCluster("dgx-h100:2+dgx-a100:4").value();
  EXPECT_EQ(mixed.name, "dgx-h100:2+dgx-a100:4");
  ASSERT_EQ(mixed.groups.size(), 2u);
  EXPECT_EQ(mixed.groups[1].device.name, "a100-80");
  EXPECT_EQ(mixed.TotalGpus(), 48);
  EXPECT_THAT(Message(ResolveCluster("dgx-h100:2+dgx-a100")), HasSubstr("expected dgx-a100:N with N from 1"));
  EXPECT_EQ(ResolveCluster("dgx-h100:2+").error().code(), Code::kNotFound);
  const Result<ClusterSpec> unknown = ResolveCluster("dgx-b900:4");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), Code::kNotFound);
  EXPECT_THAT(unknown.error().message(), HasSubstr("gb200-nvl72 with a number of nodes"));
  const std::string path = testing::TempDir() + "/weft_cluster_test.yaml";
  std::ofstream(path) << kCluster;
  EXPECT_EQ(ResolveCluster(path).value().name, "lab");
  std::remove(path.c_str());
}

TEST(JobYaml, IsReadWithItsModel) {
  const JobFile file = ParseJobYaml(kJob, "job.yaml", "").value();
  EXPECT_EQ(file.job.name, "pretrain");
  EXPECT_EQ(file.job.model.layers, 12);
  EXPECT_EQ(file.job.gpus, 2);
  EXPECT_EQ(file.job.precision, planner::Precision::kFp32);
  EXPECT_THAT(file.hosts, ElementsAre("h1", "h2"));
  EXPECT_EQ(file.job.measured_compute, Seconds(0.25));
  EXPECT_THAT(file.model_config_json, HasSubstr("\"n_layer\": 12"));
}

TEST(JobYaml, MayLeaveItsHostsToTheController) {
  const JobFile file = ParseJobYaml(Replaced(kJob, "hosts: [h1, h2]", "max_gpus: 8\niterations: 5\ndeadline: 1h"), "job.yaml", "").value();
  EXPECT_EQ(file.min_gpus, 1);
  EXPECT_EQ(file.max_gpus, 8);
  EXPECT_EQ(file.iterations, 5);
  EXPECT_EQ(file.deadline, Seconds(3600));
  EXPECT_EQ(ParseJobYaml(kJob, "job.yaml", "")->min_gpus, 0);
}

TEST(JobYaml, TheModelsPathIsRelativeToTheFile) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "/weft_job_model.json") << R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 8, "n_head": 2,
      "n_positions": 16, "vocab_size": 256, "unheard_of": 1})";
  std::ofstream(folder + "/weft_job.yaml") << Replaced(kJob, "model: gpt2", "model: weft_job_model.json");
  const JobFile file = ReadJobYaml(folder + "/weft_job.yaml").value();
  EXPECT_EQ(file.job.model.layers, 3);
  EXPECT_THAT(file.warnings, ElementsAre(folder + "/weft_job_model.json: keys not used: unheard_of"));
  std::remove((folder + "/weft_job_model.json").c_str());
  const Result<JobFile> missing = ReadJobYaml(folder + "/weft_job.yaml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("key \"model\""));
  std::remove((folder + "/weft_job.yaml").c_str());
}

TEST(JobYaml, EachFaultNamesFileLineKeyAndExpectation) {
  const Fault faults[] = {
      {"precision: fp32", "precision: int8", "job.yaml:6: key \"precision\": precision \"int8\", expected one of fp32, tf32, fp16, bf16, fp8, fp4"},
      {"hosts: [h1, h2]", "hosts: h1", "job.yaml:7: key \"hosts\": expected a list"},
      {"hosts: [h1, h2]", "hosts: [h1, [h2]]", "job.yaml:7: key \"hosts\": an item that is no word"},
      {"hosts: [h1, h2]", "hosts: [h1, h2]\ngpus: 3", "job.yaml:8: key \"gpus\": value 3, expected 2: 2 hosts"},
      {"global_batch: 64", "global_batch: 0", "job.yaml:4: key \"global_batch\": value 0"},
      {"precision: fp32", "precision: fp32\nallow: [quiet]", "job.yaml:7: key \"allow\": value \"quiet\", expected some of low_precision"},
      {"precision: fp32", "precision: fp32\nallow: [gossip]\nstrategy: {dp: 2}", "key \"allow\": expected only without strategy and plan"},
      {"precision: fp32", "precision: fp32\nframework: megatron\nallow: [gossip]", "key \"allow\": with framework megatron: expected only"},
      {"precision: fp32", "precision: fp32\nreshard: maybe", "key \"reshard\": value \"maybe\", expected on or off"},
      {"precision: fp32", "precision: fp32\nframework: megatron\nreshard: on", "key \"reshard\": with framework \"megatron\", expected weft-train"},
      {"250ms", "250", "job.yaml:8: key \"measured_compute\": "},
      {"sequence: 512\n", "", "key \"sequence\": missing"},
      {"hosts: [h1, h2]", "hosts: [h1, h2]\nmin_gpus: 2", "key \"hosts\": stands beside min_gpus or max_gpus"},
      {"hosts: [h1, h2]", "min_gpus: 4\nmax_gpus: 2", "job.yaml:7: key \"min_gpus\": value 4, expected at most max_gpus, 2"},
      {"hosts: [h1, h2]", "hosts: [h1, h2]\niterations: 5\ndeadline: 1h", "key \"deadline\": without min_gpus or max_gpus"},
      {"hosts: [h1, h2]", "max_gpus: 2\ndeadline: 1h", "key \"deadline\": without iterations"},
  };
  for (const Fault& fault : faults) {
    EXPECT_THAT(Message(ParseJobYaml(Replaced(kJob, fault.from, fault.to), "job.yaml", "")), HasSubstr(fault.message));
  }
}

}  // namespace
}  // namespace weft::formats

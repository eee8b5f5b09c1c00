#include "controller/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "controller/testing/temp_dir.h"
#include "formats/read_file.h"

namespace weft::controller {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Config, DefaultsPlanCpuHostsAtTheLinkRate) {
  const auto config = ParseConfig("version: 1\n", "c.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->listen.text(), "127.0.0.1:7070");
  EXPECT_EQ(config->core.mode, v1::MODE_ENFORCE);
  EXPECT_EQ(config->core.rates.line_rate, MegabitsPerSecond(100));
  EXPECT_EQ(config->planner.cluster.nic_rate, MegabitsPerSecond(100));
  EXPECT_EQ(config->planner.cluster.device.name, "cpu");
}

TEST(Config, ReadsWhatItIsTold) {
  const auto config = ParseConfig(
      "version: 1\nmode: observe\nlink_rate: 400Gbit/s\nlinks:\n  - {from: a, to: b, rate: 10Gbit/s}\n"
      "replan: {interval: 2s, switching_gain: 0.1}\ncapacity:\n  recovery_interval: 1min\n",
      "c.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->core.mode, v1::MODE_OBSERVE);
  EXPECT_EQ(config->core.rates.line_rate, GigabitsPerSecond(400));
  EXPECT_EQ(config->core.rates.overrides.at({"a", "b"}), GigabitsPerSecond(10));
  EXPECT_EQ(config->core.replan_interval, Seconds(2));
  EXPECT_EQ(config->core.planning.switching_gain, 0.1);
  EXPECT_EQ(config->core.monitor.recovery_interval, Seconds(60));
  EXPECT_EQ(config->planner.cluster.nic_rate, GigabitsPerSecond(400));
}

TEST(Config, ReadsClassesMultiJobPlanningAndTopologyFiles) {
  const auto config = ParseConfig(
      "version: 1\nclasses: [46, 26, 0]\njoint: {interval: 3s, class_gain: 0.02, time_shifts: off}\n"
      "topology:\n  - {format: slurm, file: /etc/t.conf}\n  - {format: nccl, file: x.xml, host: h1}\n",
      "c.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->core.joint.dscp, (std::vector<int32_t>{46, 26, 0}));
  EXPECT_EQ(config->core.joint.interval, Seconds(3));
  EXPECT_EQ(config->core.joint.planning.class_gain, 0.02);
  EXPECT_FALSE(config->core.joint.shifts);
  ASSERT_EQ(config->topology.size(), 2u);
  EXPECT_EQ(config->topology[1].host, "h1");
  EXPECT_EQ(DefaultConfig().core.joint.dscp, std::vector<int32_t>{0}) << "nothing is marked unless the site says so";
}

TEST(Config, ClassesMayDeclareWhatNicsDoWithThem) {
  const auto config = ParseConfig(
      "version: 1\nqos: {roce_tos: 106, mtu: 9000}\nclasses:\n  - {dscp: 26, priority: 3, share: 60%, lossless: on}\n"
      "  - {dscp: 0, priority: 0, share: 40%}\n", "c.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->core.joint.dscp, (std::vector<int32_t>{26, 0}));
  ASSERT_TRUE(config->qos);
  EXPECT_EQ(config->qos->roce_tos(), 106);
  EXPECT_EQ(config->qos->mtu(), 9000);
  ASSERT_EQ(config->qos->classes_size(), 2);
  EXPECT_EQ(config->qos->classes(0).priority(), 3);
  EXPECT_EQ(config->qos->classes(0).share(), 60);
  EXPECT_TRUE(config->qos->classes(0).lossless());
  EXPECT_FALSE(config->qos->classes(1).lossless());
  EXPECT_FALSE(ParseConfig("version: 1\nclasses: [26, 0]\n", "c.yaml")->qos) << "DSCP alone say nothing of NICs";
  const auto only_tos = ParseConfig("version: 1\nqos: {roce_tos: 104}\nclasses: [26, 0]\n", "c.yaml");
  ASSERT_TRUE(only_tos && only_tos->qos);
  EXPECT_EQ(only_tos->qos->classes(0).dscp(), 26);
  EXPECT_EQ(only_tos->qos->classes(0).priority(), -1);
}

TEST(Config, ErrorsNameFileLineKeyAndValue) {
  const struct {
    const char* text;
    const char* where;
    const char* what;
  } cases[] = {
      {"", "c.yaml:1", "empty"},
      {"mode: observe\n", "c.yaml", "version: missing"},
      {"version: 2\n", "c.yaml:1", "\"2\""},
      {"version: 1\nlink_rat: 1Gbit/s\n", "c.yaml:2: link_rat", "unknown key"},
      {"version: 1\nmode: observe\nmode: enforce\n", "c.yaml:3: mode", "twice"},
      {"version: 1\nlink_rate: 100\n", "c.yaml:2: link_rate: \"100\"", "unit"},
      {"version: 1\nmode: watch\n", "c.yaml:2: mode", "expected observe or enforce"},
      {"version: 1\nlisten: nowhere\n", "c.yaml:2: listen", "expected host:port"},
      {"version: 1\nreplan:\n  intervall: 1s\n", "c.yaml:3: replan.intervall", "unknown key"},
      {"version: 1\nreplan: {switching_gain: 7}\n", "c.yaml:2: replan.switching_gain: \"7\"", "from 0 to 1"},
      {"version: 1\nlinks:\n  - {from: a, to: b}\n", "c.yaml:3: links", "expected from, to and rate"},
      {"version: 1\ncluster: {device: abacus}\n", "c.yaml:2: cluster.device: \"abacus\"", "cpu"},
      {"version: 1\ncluster: {calibration: /no/such}\n", "c.yaml:2: cluster.calibration", "/no/such"},
      {"version: 1\nclasses: 26\n", "c.yaml:2: classes", "list of 1 to 8 DSCP values"},
      {"version: 1\nclasses: [26, 64]\n", "c.yaml:2: classes: \"64\"", "from 0 to 63"},
      {"version: 1\nclasses: [26, 26]\n", "c.yaml:2: classes", "DSCP 26 is there twice"},
      {"version: 1\nclasses: [{priority: 3}]\n", "c.yaml:2: classes", "dscp is missing"},
      {"version: 1\nclasses: [{dscp: 26, lossless: on}]\n", "c.yaml:2: classes", "priority is missing"},
      {"version: 1\nclasses: [{dscp: 26, priority: 8}]\n", "c.yaml:2: classes.priority: \"8\"", "from 0 to 7"},
      {"version: 1\nclasses: [{dscp: 26, priority: 3, share: 0.6}]\n", "c.yaml:2: classes.share: \"0.6\"", "whole percents"},
      {"version: 1\nclasses: [{dscp: 26, priority: 3, share: 60%}, 0]\n", "c.yaml:2: classes", "shares come to 60 %"},
      {"version: 1\nqos: {roce_tos: 256}\n", "c.yaml:2: qos.roce_tos: \"256\"", "from 0 to 255"},
      {"version: 1\njoint: {time_shifts: maybe}\n", "c.yaml:2: joint.time_shifts: \"maybe\"", "on or off"},
      {"version: 1\njoint: {lease: 1h}\n", "c.yaml:2: joint.lease: \"1h\"", "expected at most 60 s"},
      {"version: 1\ntopology:\n  - {format: xml, file: f}\n", "c.yaml:3: topology.format: \"xml\"", "slurm, lldp or nccl"},
      {"version: 1\ntopology:\n  - {format: lldp, file: f}\n", "c.yaml:3: topology", "host for nccl and lldp only"},
      {"version: 1\nlinks: [\n", "c.yaml:", ""},
      {"- 1\n", "c.yaml:1", "expected a map"},
  };
  for (const auto& test : cases) {
    const auto config = ParseConfig(test.text, "c.yaml");
    ASSERT_FALSE(config.has_value()) << test.text;
    EXPECT_EQ(config.error().code(), Code::kInvalidArgument) << test.text;
    EXPECT_THAT(config.error().message(), AllOf(HasSubstr(test.where), HasSubstr(test.what))) << test.text;
  }
}

// As `weft calibrate --out` writes it.
TEST(Config, ClustersCalibrationIsRead) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/hosts.yaml";
  std::ofstream(path) << "version: 1\nconstants:\n  - {name: gpu.cpu.gemm16, value: 1.5, least: 0.01, most: 8, fitted: true, source: \"test\"}\n";
  const auto config = ParseConfig("version: 1\ncluster: {calibration: " + path + "}\n", "c.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  ASSERT_EQ(config->planner.cluster.measured.size(), 1u);
  EXPECT_EQ(config->planner.cluster.measured[0].name, "gpu.cpu.gemm16");
  EXPECT_EQ(config->planner.cluster.measured[0].value, 1.5);
}

TEST(Config, SaysWhatItAssumes) {
  const auto assumed = [](const char* text) { return AssumptionsOf(ParseConfig(text, "c.yaml").value()); };
  EXPECT_THAT(assumed("version: 1\n"), ElementsAre("link_rate is not set: links are taken to carry 100 Mbit/s",
                                                   "cluster is not set: jobs are planned for one cpu per host behind 100 Mbit/s"));
  EXPECT_THAT(assumed("version: 1\nlink_rate: 1Gbit/s\n"), ElementsAre(HasSubstr("behind 1 Gbit/s")));
  EXPECT_THAT(assumed("version: 1\nlink_rate: 1Gbit/s\ncluster: {preset: dgx-h100}\n"), ElementsAre());
  const std::string known = "version: 1\nlink_rate: 1Gbit/s\ncluster: {preset: dgx-h100}\n";
  EXPECT_THAT(assumed((known + "listen: 0.0.0.0:7070\nhttp: \"[::]:7080\"\n").c_str()),
              ElementsAre("tls is not set: who reaches 0.0.0.0:7070 may submit and release jobs",
                          "tls is not set: who reaches [::]:7080 may read everything"));
  EXPECT_THAT(assumed((known + "http: 0.0.0.0:7080\ntls: {certificate: c, key: k, authority: a}\n").c_str()), ElementsAre());
  EXPECT_THAT(assumed((known + "http: localhost:7080\n").c_str()), ElementsAre());
}

TEST(Config, TokensNeedTls) {
  const auto config = ParseConfig("version: 1\ntls: {viewer_tokens: /t}\n", "c.yaml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->tokens.viewer, "/t");
  EXPECT_THAT(CheckFiles(*config).error().message(), HasSubstr("tokens without TLS"));
}

TEST(Config, MissingFileIsNotFound) {
  const auto config = ReadConfig("/no/such/controller.yaml");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code(), Code::kNotFound);
  EXPECT_THAT(config.error().message(), HasSubstr("/no/such/controller.yaml"));
}

TEST(Config, ExampleNamesEveryKeyWithItsDefault) {
  const auto example = ReadConfig(WEFT_SOURCE_DIR "/controller/controller.example.yaml");
  ASSERT_TRUE(example.has_value()) << example.error().message();
  ControllerConfig defaults = DefaultConfig();
  defaults.state_dir = example->state_dir;
  defaults.core.rates.overrides = example->core.rates.overrides;
  EXPECT_EQ(DescribeConfig(*example), DescribeConfig(defaults));
  EXPECT_EQ(example->core.monitor.explained, defaults.core.monitor.explained);
  EXPECT_EQ(example->core.settle, defaults.core.settle);
  EXPECT_EQ(example->planner.run_dir, defaults.planner.run_dir);
  EXPECT_DOUBLE_EQ(example->planner.cluster.nic_latency.count(), defaults.planner.cluster.nic_latency.count());
  EXPECT_EQ(example->planner.cluster.intra_node_rate, defaults.planner.cluster.intra_node_rate);
  EXPECT_EQ(example->planner.cluster.network_efficiency, defaults.planner.cluster.network_efficiency);
}

TEST(Endpoint, KnowsHostsAndPorts) {
  EXPECT_EQ(ParseEndpoint("[::1]:0")->host, "[::1]");
  EXPECT_EQ(ParseEndpoint("h1:7070")->port, 7070);
  for (const char* text : {"", "h1", ":1", "h1:", "h1:x", "h1:70000", "h1:-1"}) {
    const auto endpoint = ParseEndpoint(text);
    ASSERT_FALSE(endpoint.has_value()) << text;
    EXPECT_EQ(endpoint.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft::controller

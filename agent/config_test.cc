#include "agent/config.h"

#include <gmock/gmock.h>

#include "agent/exporter.h"

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AgentConfig, ReadsEveryKey) {
  AgentConfig config;
  const Status status = LoadConfigText(R"(version: 1
host: node-17
run_dir: /run/weft
controller: 10.0.0.1:7070
http: 0.0.0.0:9100
interfaces: [eth0, eth1]
sample_interval: 50ms
report_interval: 1s
probe_candidates: 3
reprobe_interval: 5min
qos: apply
silent_lanes: wait
quotas: {segments: 9, memory_mib: 10, flows: 11, destinations: 12}
log_level: debug
tls: {certificate: a.pem, key: b.pem, authority: c.pem, revoked: r.txt, viewer_tokens: v.tokens}
)", "agent.yaml", &config);
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(config.host, "node-17");
  EXPECT_EQ(config.run_dir, "/run/weft");
  EXPECT_EQ(config.controller, "10.0.0.1:7070");
  EXPECT_EQ(config.http, "0.0.0.0:9100");
  EXPECT_THAT(config.interfaces, ElementsAre("eth0", "eth1"));
  EXPECT_EQ(config.sample_interval, Seconds(0.05));
  EXPECT_EQ(config.report_interval, Seconds(1));
  EXPECT_EQ(config.probe_candidates, 3);
  EXPECT_EQ(config.reprobe_interval, Seconds(300));
  EXPECT_TRUE(config.qos_apply);
  EXPECT_FALSE(config.move_silent_lanes);
  EXPECT_EQ(config.quotas.segments, 9);
  EXPECT_EQ(config.quotas.memory_mib, 10);
  EXPECT_EQ(config.quotas.flows, 11);
  EXPECT_EQ(config.quotas.destinations, 12);
  EXPECT_EQ(config.tls_authority, "c.pem");
  EXPECT_EQ(config.tls_revoked, "r.txt");
  EXPECT_EQ(config.viewer_tokens, "v.tokens");
  EXPECT_TRUE(CheckConfig(config));
}

TEST(AgentConfig, BadFilesAreRefusedWithFileAndLine) {
  const struct {
    const char* text;
    const char* says;
  } kCases[] = {
      {"version: 1\nhots: a\n", "agent.yaml: line 2: key \"hots\" is unknown"},
      {"version: 1\nhost: a\nhost: b\n", "agent.yaml: line 3: key \"host\" is there twice"},
      {"version: 1\nsilent_lanes: stay\n", "line 2: key \"silent_lanes\": \"stay\", expected wait or move"},
      {"version: 2\n", "line 1: key \"version\": \"2\", expected 1"},
      {"host: a\n", "key \"version\" is missing"},
      {"version: 1\nsample_interval: 100\n", "line 2: key \"sample_interval\""},
      {"version: 1\ninterfaces: eth0\n", "line 2: key \"interfaces\": expected a list"},
      {"version: 1\nprobe_candidates: many\n", "\"many\", expected an integer"},
      {"version: 1\ntls: {cert: a}\n", "line 2: key \"cert\" is unknown"},
      {"version: 1\nqos: maybe\n", "line 2: key \"qos\": \"maybe\", expected report or apply"},
      {"version: 1\nhost: [\n", "agent.yaml: line"},
      {"- a\n", "expected keys and values"},
  };
  for (const auto& bad : kCases) {
    AgentConfig config;
    const Status status = LoadConfigText(bad.text, "agent.yaml", &config);
    ASSERT_FALSE(status) << bad.text;
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument) << bad.text;
    EXPECT_THAT(status.error().message(), HasSubstr(bad.says));
  }
  AgentConfig config;
  const Status missing = LoadConfigFile("/nonexistent/agent.yaml", &config);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("/nonexistent/agent.yaml"));
}

TEST(AgentConfig, SettingsAreChecked) {
  const AgentConfig good{.host = "a", .run_dir = "r", .controller = "c:1"};
  ASSERT_TRUE(CheckConfig(good));
  const auto refused = [&](auto change, const char* says) {
    AgentConfig config = good;
    change(config);
    const Status status = CheckConfig(config);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(status.error().message(), HasSubstr(says));
  };
  refused([](AgentConfig& c) { c.host = ""; }, "host is not set");
  refused([](AgentConfig& c) { c.controller = "nowhere"; }, "controller: address \"nowhere\", expected HOST:PORT");
  refused([](AgentConfig& c) { c.http = "h:99999"; }, "http: address \"h:99999\"");
  refused([](AgentConfig& c) { c.sample_interval = Seconds(0.001); }, "sample_interval 0.001 s");
  refused([](AgentConfig& c) { c.probe_candidates = -1; }, "probe_candidates -1");
  refused([](AgentConfig& c) { c.log_level = "loud"; }, "log_level \"loud\"");
  refused([](AgentConfig& c) { c.tls_key = "k"; }, "tls: expected certificate, key and authority");
  refused([](AgentConfig& c) { c.viewer_tokens = "t"; }, "tls: viewer_tokens without certificates");
}

TEST(HostPort, SplitsNamesAndBracketedAddresses) {
  EXPECT_EQ(*SplitHostPort("a.b:1"), std::pair(std::string("a.b"), uint16_t{1}));
  EXPECT_EQ(*SplitHostPort("[::1]:80"), std::pair(std::string("::1"), uint16_t{80}));
  for (const char* bad : {"", "a", ":1", "a:", "a:x", "::1:80", "a:65536", "a:-1"}) EXPECT_FALSE(SplitHostPort(bad)) << bad;
}

}  // namespace
}  // namespace weft::agent

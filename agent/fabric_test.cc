// Probed paths against the kernel's own routing decisions, in a fabric of network namespaces.
#include <arpa/inet.h>
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/testing/controller.h"
#include "agent/testing/plugin.h"
#include "testbed/fabric.h"
#include "testbed/process.h"
#include "testbed/require_fabric.h"

namespace weft::agent {
namespace {

using testbed::Fabric;
using testbed::FabricHost;

constexpr uint16_t kPort = 29500;

class ProbeFabric : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_REQUIRE_FABRIC();
    auto fabric = Fabric::Create({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
    ASSERT_TRUE(fabric) << fabric.error().message();
    fabric_ = std::move(*fabric);
    for (const auto* switches : {&fabric_->leaves(), &fabric_->spines()}) {
      for (const auto& s : *switches) identity_[s.name] = s.identity;
    }
  }

  /// Identities of the switches that the kernel would send the flow over.
  std::vector<std::string> Truth(const FabricHost& from, const FabricHost& to, int source_port) {
    const auto nodes = fabric_->PathOf({from.name, to.name, static_cast<uint16_t>(source_port), kPort});
    EXPECT_TRUE(nodes) << nodes.error().message();
    std::vector<std::string> switches;
    for (size_t i = 1; nodes && i + 1 < nodes->size(); ++i) switches.push_back(identity_.at((*nodes)[i]));
    return switches;
  }

  nlohmann::json Probe(const FabricHost& from, const FabricHost& to, const std::string& ports) {
    const auto text = testbed::CheckCommand(
        {.argv = {WEFT_AGENT_PROGRAM, "probe", "--source", from.data_address, "--destination", to.data_address,
                  "--port", std::to_string(kPort), "--ports", ports, "--output", "json"},
         .netns = from.netns},
        Seconds(60));
    EXPECT_TRUE(text) << text.error().message();
    return nlohmann::json::parse(text.value_or("{}"));
  }

  std::unique_ptr<Fabric> fabric_;
  std::map<std::string, std::string> identity_;
};

TEST_F(ProbeFabric, EveryPortsPathIsTheKernels) {
  const FabricHost& from = fabric_->hosts()[0];
  const FabricHost& to = fabric_->hosts()[2];
  std::string ports = "41000";
  for (int port = 41001; port < 41014; ++port) ports += "," + std::to_string(port);
  const nlohmann::json answer = Probe(from, to, ports);
  EXPECT_EQ(answer.at("hop_count"), 3);
  ASSERT_EQ(answer.at("paths").size(), 14u);
  std::set<std::string> spines;
  for (const nlohmann::json& path : answer.at("paths")) {
    EXPECT_TRUE(path.at("complete"));
    const auto hops = path.at("hops").get<std::vector<std::string>>();
    EXPECT_EQ(hops, Truth(from, to, path.at("source_port"))) << path.at("source_port");
    if (hops.size() == 3) spines.insert(hops[1]);
  }
  EXPECT_EQ(spines.size(), 2u) << "14 ports that all hash alike are a broken fabric (1 in 8192)";
}

TEST_F(ProbeFabric, NeighbourIsOneSwitchAway) {
  const nlohmann::json answer = Probe(fabric_->hosts()[0], fabric_->hosts()[1], "41000,41001");
  EXPECT_EQ(answer.at("hop_count"), 1);
  for (const nlohmann::json& path : answer.at("paths")) {
    EXPECT_EQ(path.at("hops"), nlohmann::json({fabric_->leaves()[0].identity}));
  }
}

TEST_F(ProbeFabric, AgentReportsTruePathsAndAnAlternative) {
  const FabricHost& from = fabric_->hosts()[0];
  const FabricHost& to = fabric_->hosts()[3];
  TestController controller(fabric_->mgmt_gateway() + ":0");
  TempDir dir;
  auto agent = testbed::Spawn({.argv = {WEFT_AGENT_PROGRAM, "--host", from.name, "--run-dir", dir.path, "--controller",
                                        controller.address(), "--interfaces", "eth0"},
                               .netns = from.netns,
                               .out = testbed::Output::Pipe()});
  ASSERT_TRUE(agent) << agent.error().message();
  const auto ready = agent->out_lines()->Next(Seconds(10));
  ASSERT_TRUE(ready && *ready) << "the agent said nothing";
  const auto registered = controller.Await([](const auto& m) { return m.has_register_host(); });
  ASSERT_TRUE(registered);
  EXPECT_EQ(registered->register_host().interfaces(0).addresses(0), from.data_address);

  TestSegment segment;
  TestPeer plugin(nlohmann::json::parse(**ready).at("socket"));
  plugin.SendHello("job-1", segment.fd.get());
  ASSERT_EQ(plugin.Receive().type(), abi::MessageType::kPolicy);
  abi::FlowSlot& slot = segment.segment->flows[0];
  inet_pton(AF_INET, from.data_address.c_str(), slot.local_address);
  inet_pton(AF_INET, to.data_address.c_str(), slot.peer_address);
  segment.Open(0, 77, abi::Direction::kSend, 41001, false);

  const auto report = controller.Await([](const v1::AgentMessage& m) {
    std::set<std::string> ways;
    for (const v1::Path& path : m.paths().paths()) {
      if (path.complete() && path.hops_size() == 3) ways.insert(path.hops(1));
    }
    return ways.size() == 2;
  });
  ASSERT_TRUE(report);
  EXPECT_EQ(report->paths().flow(), 77u);
  EXPECT_EQ(report->paths().paths(0).source_port(), 41001);
  for (const v1::Path& path : report->paths().paths()) {
    EXPECT_EQ(std::vector<std::string>(path.hops().begin(), path.hops().end()), Truth(from, to, path.source_port()));
  }

  agent->Kill(SIGTERM);
  const auto status = agent->Wait(Seconds(10));
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_TRUE(status->ok()) << status->ToString();
  EXPECT_TRUE(std::filesystem::is_empty(dir.path));
}

}  // namespace
}  // namespace weft::agent

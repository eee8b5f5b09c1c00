// The whole agent against a real gRPC server and a plugin's side of the socket.
#include "agent/agent.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <httplib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "agent/testing/agent_fixture.h"
#include "agent/testing/controller.h"
#include "agent/testing/plugin.h"
#include "common/clock.h"
#include "netplugin/abi/seqlock.h"

namespace weft::agent {
namespace {

using ::testing::HasSubstr;

using AgentTest = AgentFixture;

v1::ControllerMessage PolicyFor(const std::string& job, int64_t epoch) {
  v1::ControllerMessage message;
  message.mutable_policy()->set_job_id(job);
  message.mutable_policy()->set_epoch(epoch);
  v1::FlowPolicy* flow = message.mutable_policy()->add_flows();
  flow->set_flow(11);
  v1::LanePolicy* lane = flow->add_lanes();
  lane->set_source_port(20123);
  lane->set_weight(1);
  return message;
}

TEST_F(AgentTest, CarriesTelemetryUpAndPolicyDown) {
  TestController controller;
  const auto agent = Start(controller.address());
  ASSERT_TRUE(agent);
  const auto registered = controller.Await([](const auto& m) { return m.has_register_host(); });
  ASSERT_TRUE(registered);
  EXPECT_EQ(registered->register_host().host(), "h1");
  EXPECT_EQ(registered->register_host().agent_version(), "1.2.3");
  EXPECT_EQ(registered->register_host().interfaces(0).name(), "lo");

  TestSegment segment;
  TestPeer plugin(agent->socket_path());
  plugin.SendHello("job-1", segment.fd.get());
  const TestReply reply = plugin.Receive();
  ASSERT_EQ(reply.type(), abi::MessageType::kPolicy) << reply.reason();
  segment.Open(0, 11).bytes = 4242;
  const auto opened = controller.Await([](const auto& m) { return m.sample().opened_size() == 1; });
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->sample().opened(0).job_id(), "job-1");
  EXPECT_TRUE(HasCounters(*opened, 11, 4242));
  EXPECT_GT(opened->sample().time_s(), 0);

  controller.Send(PolicyFor("job-1", 6));
  const void* const data = ::mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ, MAP_SHARED, reply.fd.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const abi::PolicyTable& table = static_cast<const abi::PolicySegment*>(data)->table;
  while (table.epoch.load(std::memory_order_acquire) != 6) std::this_thread::yield();  // the plugin's part
  abi::FlowPolicy flow{};
  ASSERT_EQ(abi::ReadFlowPolicy(table, 11, &flow), abi::PolicyRead::kFound);
  EXPECT_EQ(flow.lanes[0].source_port, 20123);
  while (table.renewed_until_ns.load() == 0) std::this_thread::yield();  // the session stands: leases go on
  segment.segment->process.policy_epoch = 6;
  const auto applied = controller.Await([](const auto& m) { return m.sample().applied_size() > 0; });
  ASSERT_TRUE(applied);
  EXPECT_EQ(applied->sample().applied(0).epoch(), 6);

  const std::string metrics = Scrape(*agent);
  EXPECT_THAT(metrics, HasSubstr("weft_agent_controller_connected 1"));
  EXPECT_THAT(metrics, HasSubstr("weft_agent_processes_attached 1"));
  EXPECT_THAT(metrics, HasSubstr("weft_agent_flow_bytes_total{direction=\"send\",weft_job=\"job-1\"} 4242"));
  EXPECT_THAT(metrics, HasSubstr("weft_agent_flow_wait_seconds_total{side=\"window\",weft_job=\"job-1\"} 0"));
  EXPECT_THAT(metrics, HasSubstr("weft_agent_policy_epoch{weft_job=\"job-1\"} 6"));
  EXPECT_THAT(metrics, HasSubstr("weft_agent_policy_apply_delay_seconds_count 1"));

  plugin = TestPeer("");  // the process dies
  EXPECT_TRUE(controller.Await([](const auto& m) { return m.sample().closed_size() == 1; }));
}

TEST_F(AgentTest, LeasesGoOnBetweenSamplesThatAreFarApart) {
  TestController controller;
  const auto agent = Start(controller.address(), 60, 60);
  ASSERT_TRUE(agent);
  ASSERT_TRUE(controller.Await([](const auto& m) { return m.has_register_host(); }));
  TestSegment segment;
  TestPeer plugin(agent->socket_path());
  plugin.SendHello("job-1", segment.fd.get());
  const TestReply reply = plugin.Receive();
  ASSERT_EQ(reply.type(), abi::MessageType::kPolicy) << reply.reason();
  controller.Send(PolicyFor("job-1", 6));
  const void* const data = ::mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ, MAP_SHARED, reply.fd.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const abi::PolicyTable& table = static_cast<const abi::PolicySegment*>(data)->table;
  const auto renewed_after = [&](uint64_t before) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (table.renewed_until_ns.load() <= before) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  };
  ASSERT_TRUE(renewed_after(0));
  EXPECT_TRUE(renewed_after(table.renewed_until_ns.load())) << "and again, long before the next sample";
}

TEST_F(AgentTest, LeasesFollowHeartbeatsNotTheStream) {
  TestController controller;
  controller.heartbeat_interval_s = 1;
  const auto agent = Start(controller.address());
  ASSERT_TRUE(agent);
  TestSegment segment;
  TestPeer plugin(agent->socket_path());
  plugin.SendHello("job-1", segment.fd.get());
  const TestReply reply = plugin.Receive();
  ASSERT_EQ(reply.type(), abi::MessageType::kPolicy) << reply.reason();
  segment.Open(0, 11).bytes = 4242;
  const void* const data = ::mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ, MAP_SHARED, reply.fd.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const abi::PolicyTable& table = static_cast<const abi::PolicySegment*>(data)->table;
  ASSERT_TRUE(controller.Await([](const auto& m) { return HasCounters(m, 11, 4242); }));
  v1::ControllerMessage beat;
  beat.mutable_heartbeat();
  const uint64_t welcomed = table.renewed_until_ns.load();
  controller.Send(beat);
  while (table.renewed_until_ns.load() == welcomed) std::this_thread::yield();
  const uint64_t before = table.renewed_until_ns.load();
  // The stream stands and carries samples; nobody at its other end turns the loop.
  const SystemClock clock;
  const Seconds begin = clock.Now();
  for (int64_t bytes = 5000; clock.Now() - begin < Seconds(2.1); ++bytes) {
    segment.segment->flows[0].bytes = static_cast<uint64_t>(bytes);
    ASSERT_TRUE(controller.Await([&](const auto& m) { return HasCounters(m, 11, bytes); }));
  }
  EXPECT_EQ(table.renewed_until_ns.load(), before);
  controller.Send(beat);
  while (table.renewed_until_ns.load() == before) std::this_thread::yield();
}

TEST_F(AgentTest, OfTwoControllersTheOneThatStartedLaterIsObeyed) {
  auto newer = std::make_unique<TestController>();
  newer->incarnation = 2000;
  newer->heartbeat_interval_s = 1;
  const std::string address = newer->address();
  const auto agent = Start(address);
  ASSERT_TRUE(agent);
  const auto first = newer->Await([](const auto& m) { return m.has_register_host(); });
  ASSERT_TRUE(first);
  EXPECT_EQ(first->register_host().controller_incarnation(), 0);
  ASSERT_TRUE(newer->Await([](const auto& m) { return m.has_sample(); }));
  newer.reset();
  TestController older(address);  // a virtual address that goes back to one that should be gone
  older.incarnation = 1000;
  older.heartbeat_interval_s = 1;
  const auto second = older.Await([](const auto& m) { return m.has_register_host(); });
  ASSERT_TRUE(second);
  EXPECT_EQ(second->register_host().controller_incarnation(), 2000) << "so that it can make way";
  ASSERT_TRUE(older.Await([](const auto& m) { return m.has_register_host(); })) << "it ends the session and asks again";
  EXPECT_FALSE(older.AwaitWithin(std::chrono::seconds(1), [](const auto& m) { return m.has_sample(); }));
  older.incarnation = 3000;
  EXPECT_TRUE(older.Await([](const auto& m) { return m.has_sample(); }));
}

TEST_F(AgentTest, ProcessesWithoutAJobIdShareNothing) {
  TestController controller;
  const auto agent = Start(controller.address());
  ASSERT_TRUE(agent);
  TestSegment one(""), two("");
  TestPeer plugin_one(agent->socket_path()), plugin_two(agent->socket_path());
  plugin_one.SendHello("", one.fd.get());
  plugin_two.SendHello("", two.fd.get());
  ASSERT_EQ(plugin_one.Receive().type(), abi::MessageType::kPolicy);
  ASSERT_EQ(plugin_two.Receive().type(), abi::MessageType::kPolicy);
  one.Open(0, 21);
  two.Open(0, 22);
  std::map<uint64_t, std::string> jobs;
  ASSERT_TRUE(controller.Await([&](const auto& m) {
    for (const v1::FlowIdentity& identity : m.sample().opened()) jobs[identity.flow()] = identity.job_id();
    return jobs.size() == 2;
  }));
  EXPECT_THAT(jobs[21], ::testing::StartsWith("unnamed:"));
  EXPECT_NE(jobs[21], jobs[22]);
  TestSegment forged(jobs[21]);
  TestPeer plugin_three(agent->socket_path());
  plugin_three.SendHello(jobs[21], forged.fd.get());
  EXPECT_EQ(plugin_three.Receive().type(), abi::MessageType::kReject) << "nobody takes such an id for himself";
}

TEST_F(AgentTest, WhatProcessesHaveNoRoomForIsTold) {
  TestController controller;
  const auto agent = Start(controller.address());
  ASSERT_TRUE(agent);
  TestSegment segment;
  TestPeer plugin(agent->socket_path());
  plugin.SendHello("job-1", segment.fd.get());
  ASSERT_EQ(plugin.Receive().type(), abi::MessageType::kPolicy);
  segment.segment->process.flows_dropped = 44;
  const auto told = controller.Await([](const auto& m) { return m.sample().shortages_size() > 0; });
  ASSERT_TRUE(told);
  EXPECT_EQ(told->sample().shortages(0).job_id(), "job-1");
  EXPECT_EQ(told->sample().shortages(0).flows_dropped(), 44);
  TestSegment of_old;
  of_old.MakeOld(abi::kPreviousSegmentVersion);
  TestPeer old_plugin(agent->socket_path());
  old_plugin.SendHello("job-1", of_old.fd.get(), abi::kPreviousSegmentVersion);
  ASSERT_EQ(old_plugin.Receive().type(), abi::MessageType::kPolicy);
  v1::ControllerMessage policy = PolicyFor("job-1", 6);
  for (uint64_t i = 1; i < 300; ++i) {
    *policy.mutable_policy()->add_flows() = policy.policy().flows(0);
    policy.mutable_policy()->mutable_flows(static_cast<int>(i))->set_flow(100 + i);
  }
  controller.Send(policy);
  const auto cut = controller.Await([](const auto& m) { return m.sample().shortages_size() > 0 && m.sample().shortages(0).policy_cut() > 0; });
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->sample().shortages(0).policy_cut(), 44);
}

TEST_F(AgentTest, LaunchEnvironmentReachesTheHook) {
  TestController controller;
  const auto agent = Start(controller.address());
  ASSERT_TRUE(agent);
  v1::ControllerMessage launch;
  launch.mutable_launch()->set_job_id("job-7");
  (*launch.mutable_launch()->mutable_environment())["NCCL_NET"] = "weft";
  controller.Send(launch);
  abi::EnvironmentReply body{};
  for (int i = 0; i < 1000 && body.found == 0; ++i) {  // the launch is on its way
    TestPeer hook(agent->socket_path());
    abi::EnvironmentRequest request{};
    std::strcpy(request.job, "job-7");
    hook.SendMessage(abi::MessageType::kEnvironmentRequest, request);
    const TestReply reply = hook.Receive();
    ASSERT_EQ(reply.body.size(), sizeof body);
    std::memcpy(&body, reply.body.data(), sizeof body);
  }
  EXPECT_EQ(std::string(body.text, body.bytes), "NCCL_NET=weft\n");
}

TEST_F(AgentTest, RestartedControllerGetsAFullAccount) {
  auto controller = std::make_unique<TestController>();
  const std::string address = controller->address();
  const auto agent = Start(address);
  ASSERT_TRUE(agent);
  TestSegment segment;
  TestPeer plugin(agent->socket_path());
  plugin.SendHello("job-1", segment.fd.get());
  ASSERT_EQ(plugin.Receive().type(), abi::MessageType::kPolicy);
  segment.Open(0, 11).bytes = 100;
  segment.segment->process.policy_epoch = 41;  // read from an agent that is no more
  ASSERT_TRUE(controller->Await([](const auto& m) { return HasCounters(m, 11, 100); }));
  controller.reset();
  controller = std::make_unique<TestController>(address);
  const auto registered = controller->Await([](const auto& m) { return m.has_register_host(); });
  ASSERT_TRUE(registered);
  ASSERT_EQ(registered->register_host().policies_size(), 1);
  EXPECT_EQ(registered->register_host().policies(0).epoch(), 41) << "the controller must go on above";
  const auto account = controller->Await([](const auto& m) { return m.sample().opened_size() == 1; });
  ASSERT_TRUE(account);
  EXPECT_TRUE(HasCounters(*account, 11, 100));
}

TEST_F(AgentTest, RunsWithoutAController) {
  const auto agent = Start("127.0.0.1:1");
  ASSERT_TRUE(agent);
  TestSegment segment;
  TestPeer plugin(agent->socket_path());
  plugin.SendHello("job-1", segment.fd.get());
  EXPECT_EQ(plugin.Receive().type(), abi::MessageType::kPolicy);
  EXPECT_THAT(Scrape(*agent), HasSubstr("weft_agent_controller_connected 0"));
  const auto health = httplib::Client("http://" + agent->http_address()).Get("/healthz");
  ASSERT_TRUE(health);
  EXPECT_EQ(health->status, 200);
}

TEST_F(AgentTest, TakenHttpPortAndDirectoryAreOneClearLine) {
  const auto agent = Start("127.0.0.1:1");
  ASSERT_TRUE(agent);
  AgentConfig config{.host = "h2", .run_dir = dir.path + "/2", .controller = "127.0.0.1:1", .http = agent->http_address()};
  const auto taken = Agent::Start(config, "1");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(taken.error().message(), HasSubstr("listen at " + agent->http_address()));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path + "/2"));
  config.run_dir = dir.path;
  const auto same = Agent::Start(config, "1");
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error().code(), Code::kAlreadyExists);
}

TEST(Backoff, DoublesToItsLimitAndIsSpread) {
  const Seconds first(0.2), longest(5);
  EXPECT_DOUBLE_EQ(BackoffAfter(0, first, longest, 0).count(), 0.1);
  EXPECT_NEAR(BackoffAfter(0, first, longest, 0.999999).count(), 0.2, 1e-6);
  EXPECT_DOUBLE_EQ(BackoffAfter(2, first, longest, 0).count(), 0.4);
  EXPECT_DOUBLE_EQ(BackoffAfter(1000, first, longest, 0).count(), 2.5);
}

/// Names in the first column of the table under `## Agent`.
std::set<std::string> DocumentedMetrics() {
  std::ifstream page(WEFT_SOURCE "/docs/metrics.md");
  constexpr std::string_view kRow = "| `weft_";
  std::set<std::string> names;
  bool ours = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) ours = line == "## Agent";
    if (ours && line.starts_with(kRow)) names.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return names;
}

/// Names in the `# TYPE` lines of a scrape.
std::set<std::string> ServedMetrics(const std::string& text) {
  constexpr std::string_view kType = "# TYPE ";
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kType)) names.insert(line.substr(kType.size(), line.find(' ', kType.size()) - kType.size()));
  }
  return names;
}

TEST_F(AgentTest, EveryDocumentedMetricIsThereFromTheStartAndNoOther) {
  const auto agent = Start("127.0.0.1:1");
  ASSERT_TRUE(agent);
  // The sampler's first turn has read the interfaces once the scrape shows one.
  std::string text;
  for (int i = 0; i < 1000 && text.find("weft_agent_nic_bytes_total") == std::string::npos; ++i) text = Scrape(*agent);
  const std::set<std::string> served = ServedMetrics(text);
  EXPECT_EQ(served, DocumentedMetrics());
  EXPECT_GE(served.size(), 15u);
}

}  // namespace
}  // namespace weft::agent

// The whole agent, and what users of its host make of it: quotas over all of their processes, and the words of rank 0.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "agent/testing/agent_fixture.h"
#include "agent/testing/controller.h"

namespace weft::agent {
namespace {

using ::testing::HasSubstr;

using AgentStrategyTest = AgentFixture;
using AgentQuotaTest = AgentFixture;

/// What rank 0 is answered; empty: the agent knows nothing of the job.
std::string TellStrategy(const Agent& agent, uint64_t epoch, const std::string& reason, uint64_t digest = 0xabc) {
  TestPeer rank(agent.socket_path());
  abi::StrategyRequest request{};
  std::strcpy(request.job, "job-7");
  request.epoch = epoch;
  request.digest = digest;
  request.iteration_s = 1.5;
  request.refused = reason.empty() ? 0 : 1;
  reason.copy(request.reason, sizeof request.reason - 1);
  rank.SendMessage(abi::MessageType::kStrategyRequest, request);
  const TestReply reply = rank.Receive();
  abi::EnvironmentReply body{};
  if (reply.body.size() == sizeof body) std::memcpy(&body, reply.body.data(), sizeof body);
  return std::string(body.text, body.bytes);
}

v1::ControllerMessage LaunchOfJob7() {
  v1::ControllerMessage launch;
  launch.mutable_launch()->set_job_id("job-7");
  (*launch.mutable_launch()->mutable_environment())["WEFT_RESHARD_EPOCH"] = "3";
  return launch;
}

TEST_F(AgentStrategyTest, WordsReachRankZeroAndItsAnswersTheController) {
  auto controller = std::make_unique<TestController>();
  const std::string address = controller->address();
  const auto agent = Start(address);
  ASSERT_TRUE(agent);
  controller->Send(LaunchOfJob7());
  std::string text;
  for (int i = 0; i < 1000 && text.empty(); ++i) text = TellStrategy(*agent, 2, "");  // the launch is on its way
  EXPECT_EQ(text, "WEFT_RESHARD_EPOCH=3\n");
  const auto told = controller->Await([](const auto& m) { return m.sample().strategies_size() > 0; });
  ASSERT_TRUE(told);
  EXPECT_EQ(told->sample().strategies(0).job_id(), "job-7");
  EXPECT_EQ(told->sample().strategies(0).epoch(), 2);
  EXPECT_EQ(told->sample().strategies(0).digest(), 0xabcu);
  EXPECT_EQ(told->sample().strategies(0).iteration_s(), 1.5);
  TellStrategy(*agent, 3, "no such program");
  const auto refused = controller->Await([](const auto& m) {
    return m.sample().strategies_size() > 0 && m.sample().strategies(0).refused();
  });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->sample().strategies(0).reason(), "no such program");
  // Another life of the controller hears of it again.
  controller.reset();
  controller = std::make_unique<TestController>(address);
  const auto again = controller->Await([](const auto& m) { return m.sample().strategies_size() > 0; });
  ASSERT_TRUE(again);
  EXPECT_EQ(again->sample().strategies(0).epoch(), 3);
}

// A process that says something else each time: one word of its job is reported, the last, and its lines in the log are counted.
TEST_F(AgentStrategyTest, AWordThatChangesWithoutEndFloodsNeitherLogNorReport) {
  constexpr uint64_t kWords = 100;
  TestController controller;
  const auto agent = Start(controller.address(), 0.02, 1);
  ASSERT_TRUE(agent);
  controller.Send(LaunchOfJob7());
  std::string text;
  for (int i = 0; i < 1000 && text.empty(); ++i) text = TellStrategy(*agent, 3, "");  // the launch is on its way
  ASSERT_FALSE(text.empty());
  ::testing::internal::CaptureStderr();
  for (uint64_t word = 1; word <= kWords; ++word) TellStrategy(*agent, 3, "", word);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string piece = "strategy job=job-7";
  int lines = 0;
  for (size_t at = log.find(piece); at != std::string::npos; at = log.find(piece, at + 1)) ++lines;
  EXPECT_GE(lines, 1);
  EXPECT_LE(lines, 20) << "a minute; a hundred words were said within a second or two";
  int most = 0;
  ASSERT_TRUE(controller.Await([&](const auto& m) {
    most = std::max(most, m.sample().strategies_size());
    return m.sample().strategies_size() > 0 && m.sample().strategies(0).digest() == kWords;
  }));
  EXPECT_EQ(most, 1);
}

// Two processes of one user: what one has too much of is refused to the other, by a message at the socket or by not being followed.
TEST_F(AgentQuotaTest, AUserHasHisQuotasOverAllOfHisProcesses) {
  TestController controller;
  const auto agent = Start(controller.address(), 0.02, 0.05, {.segments = 2, .flows = 3, .destinations = 1});
  ASSERT_TRUE(agent);
  TestSegment segments[3];
  for (uint32_t i = 0; i < 2; ++i) {
    segments[0].Open(i, 10 + i);
    segments[1].Open(i, 20 + i).peer_port = static_cast<uint16_t>(29501 + i);
  }
  TestPeer first(agent->socket_path()), second(agent->socket_path()), third(agent->socket_path());
  first.SendHello("job-1", segments[0].fd.get());
  ASSERT_EQ(first.Receive().type(), abi::MessageType::kPolicy);
  second.SendHello("job-1", segments[1].fd.get());
  ASSERT_EQ(second.Receive().type(), abi::MessageType::kPolicy);
  third.SendHello("job-1", segments[2].fd.get());
  EXPECT_THAT(third.Receive().reason(), HasSubstr("has 2 telemetry segments of"));
  std::string page;
  while (page.find("weft_agent_over_quota_total{what=\"destination\"} 1") == std::string::npos ||
         page.find("weft_agent_flows{direction=\"send\"} 3") == std::string::npos) {
    page = Scrape(*agent);
  }
  EXPECT_THAT(page, HasSubstr("weft_agent_over_quota_total{what=\"flow\"} 1"));
  EXPECT_THAT(page, HasSubstr("weft_agent_segments_rejected_total{reason=\"quota\"} 1"));
}

}  // namespace
}  // namespace weft::agent

// For tests: a whole agent, and what its metrics page says.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <string>

#include "agent/agent.h"
#include "agent/testing/plugin.h"

namespace weft::agent {

/// A test with an agent of its own.
struct AgentFixture : ::testing::Test {
  /// One of host h1 in a folder of its own, with lo as its only interface.
  std::unique_ptr<Agent> Start(const std::string& controller, double sample_interval_s = 0.02,
                               double report_interval_s = 0.05, const UserLimits& quotas = {}) {
    auto agent = Agent::Start({.host = "h1",
                               .run_dir = dir.path,
                               .controller = controller,
                               .interfaces = {"lo"},
                               .sample_interval = Seconds(sample_interval_s),
                               .report_interval = Seconds(report_interval_s),
                               .quotas = quotas},
                              "1.2.3");
    EXPECT_TRUE(agent) << agent.error().message();
    return agent ? std::move(*agent) : nullptr;
  }
  static std::string Scrape(const Agent& agent) {
    const auto response = httplib::Client("http://" + agent.http_address()).Get("/metrics");
    return response ? response->body : "";
  }
  static bool HasCounters(const v1::AgentMessage& m, uint64_t flow, int64_t bytes) {
    for (const v1::FlowCounters& c : m.sample().counters()) {
      if (c.flow() == flow && c.bytes() == bytes) return true;
    }
    return false;
  }
  TempDir dir;
};

}  // namespace weft::agent

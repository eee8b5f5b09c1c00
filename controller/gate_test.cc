#include "controller/gate.h"

#include <gmock/gmock.h>

#include "controller/config.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

// With TLS, without a certificate: 50 calls of an operator at once and 10 a second, 16 times that from one address.
TEST(Gate, WhoCannotSayWhoHeIsCallsInALoopNoMoreThanOthers) {
  ManualClock clock;
  Metrics metrics;
  const ControllerConfig config = DefaultConfig();
  ControlLoop loop({config.core, config.planner, "test"}, nullptr, &clock, &metrics);
  Gate gate(true, "", &loop);
  // Each from another port.
  int port = 0;
  const auto call = [&](const std::string& address) {
    return gate.Admit({.peer = address + ":" + std::to_string(++port), .certificate = ""}, Access::kOperate);
  };
  const auto unnamed_calls = [&] {
    int count = 0;
    while (count < 10'000 && call("ipv4:10.0.0.7").error().error.code() == Code::kUnauthenticated) ++count;
    return count;
  };
  EXPECT_EQ(unnamed_calls(), 16 * 50);
  const auto late = call("ipv4:10.0.0.7");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().error.code(), Code::kResourceExhausted);
  EXPECT_THAT(late.error().error.message(), HasSubstr("ipv4:10.0.0.7 calls more often than 160 times a second"));
  EXPECT_NEAR(late.error().again_after.count(), 1.0 / 160, 1e-9);
  EXPECT_EQ(call("ipv4:10.0.0.8").error().error.code(), Code::kUnauthenticated) << "another address has calls of its own";
  clock.Advance(Seconds(1));
  EXPECT_EQ(unnamed_calls(), 160);
  EXPECT_THAT(loop.MetricsText(), HasSubstr("weft_controller_calls_refused_total{why=\"rate\"} 3"))
      << "two that ended a loop, and one";
}

}  // namespace
}  // namespace weft::controller

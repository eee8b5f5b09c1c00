#include "agent/probe/dscp_trace.h"

#include <gmock/gmock.h>

#include <functional>

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Ipv4 kSource = 0x0A010001, kDestination = 0x0A020001;
const DscpWay kWay{.source = kSource, .destination = kDestination, .destination_port = 29500, .source_port = 41001, .hops = 3};

/// Switches 1, 2, 3 on the way; `at` says with which DSCP a packet arrives at the switch of a TTL.
struct Way {
  std::function<uint8_t(int ttl, uint8_t dscp)> at = [](int, uint8_t dscp) { return dscp; };
  int answering = 3;
  TracerOptions options;
  DscpTrace trace{options};
  ProbeBudget budget{options};
  Seconds now{100};
  std::vector<Probe> sent;

  void Run(Seconds until) {
    while (now < until) {
      if (trace.WantsWays(now)) trace.SetWays({kWay});
      while (const auto probe = trace.Next(now, budget)) {
        sent.push_back(*probe);
        EXPECT_LE(probe->ttl, kWay.hops) << "a probe must never arrive where somebody listens";
        if (probe->ttl > answering) continue;
        const auto tos = static_cast<uint8_t>(at(probe->ttl, probe->tos >> 2) << 2);
        EXPECT_TRUE(trace.OnTimeExceeded(*probe, static_cast<Ipv4>(probe->ttl), tos, now));
      }
      ASSERT_GT(trace.Wake(), now) << "busy loop";
      now = std::min(trace.Wake(), until);
    }
  }
};

TEST(DscpTrace, FindsTheSwitchThatChangesAClass) {
  Way way;
  way.at = [](int ttl, uint8_t dscp) -> uint8_t { return ttl >= 2 && dscp == 26 ? 0 : dscp; };
  way.trace.SetClasses({26, 0});
  way.Run(Seconds(110));
  EXPECT_THAT(way.trace.rewrites(), ElementsAre(DscpRewrite{.way = kWay, .dscp = 26, .seen = 0, .at = 2, .after = 1}));
}

TEST(DscpTrace, NothingIsNamedWhereNothingIsChanged) {
  Way way;
  way.trace.SetClasses({26, 0});
  way.Run(Seconds(200));
  EXPECT_THAT(way.trace.rewrites(), IsEmpty());
  // Six questions, each again every 30 s.
  EXPECT_THAT(way.sent, SizeIs(6 * 4));
}

TEST(DscpTrace, AMendedSwitchIsForgotten) {
  Way way;
  way.at = [](int, uint8_t) -> uint8_t { return 8; };
  way.trace.SetClasses({26});
  way.Run(Seconds(110));
  ASSERT_THAT(way.trace.rewrites(), SizeIs(1));
  EXPECT_EQ(way.trace.rewrites()[0].after, 0u) << "the first switch: the host itself may have done it";
  way.at = [](int, uint8_t dscp) { return dscp; };
  way.Run(Seconds(150));
  EXPECT_THAT(way.trace.rewrites(), IsEmpty());
}

TEST(DscpTrace, SwitchesThatDoNotAnswerAreAskedSeldom) {
  Way way;
  way.answering = 0;
  way.trace.SetClasses({26});
  way.Run(Seconds(200));
  EXPECT_LE(way.sent.size(), 3u * 3 * 4) << "three questions, three attempts each, every 30 s";
  EXPECT_THAT(way.trace.rewrites(), IsEmpty());
}

TEST(DscpTrace, WithoutClassesNothingIsAsked) {
  Way way;
  way.Run(Seconds(101));
  EXPECT_THAT(way.sent, IsEmpty());
  EXPECT_FALSE(way.trace.WantsWays(Seconds(500)));
}

}  // namespace
}  // namespace weft::agent

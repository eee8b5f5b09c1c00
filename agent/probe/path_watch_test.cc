#include "agent/probe/path_watch.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "agent/probe/tracer.h"

namespace weft::agent {
namespace {

constexpr Ipv4 kSource = 0x0A010001, kDestination = 0x0A020001, kSpine = 0x0AFE0000;

/// Four ways over as many spines, of two flows.
std::vector<WatchedWay> Ways() {
  std::vector<WatchedWay> ways;
  for (uint16_t port = 0; port < 8; ++port) ways.push_back({port < 4 ? 1u : 2u, kSource, kDestination, 29500, port, 2, kSpine + port % 4});
  return ways;
}

struct Watching {
  TracerOptions options;
  PathWatch watch{options};
  ProbeBudget budget{options};
  Seconds now{100};
  std::map<Ipv4, int> asked;
  std::function<Ipv4(const Probe&)> answer = [](const Probe& probe) { return kSpine + probe.source_port % 4; };

  Watching() { watch.SetWays(Ways()); }
  /// The first way that has changed, until `end`.
  std::optional<WatchedWay> Until(Seconds end) {
    for (; now < end; now += Seconds(0.1)) {
      if (const auto changed = watch.TakeChanged(now)) return changed;
      if (watch.WantsWays(now)) watch.SetWays(Ways());
      const std::optional<Probe> probe = watch.Next(now, budget, static_cast<uint64_t>(now.count() * 10));
      if (!probe) continue;
      ++asked[kSpine + probe->source_port % 4];
      if (const Ipv4 from = answer(*probe); from != 0) watch.OnTimeExceeded(*probe, from);
    }
    return std::nullopt;
  }
};

TEST(PathWatch, EveryHopIsAskedInTurnOnceASecondAndNothingIsSaidWhileAllIsWell) {
  Watching run;
  EXPECT_FALSE(run.Until(Seconds(140)));
  ASSERT_EQ(run.asked.size(), 4u);
  for (const auto& [hop, times] : run.asked) EXPECT_NEAR(times, 10, 2);
}

TEST(PathWatch, AWayThatGoesElsewhereIsSaidWithinFiveSeconds) {
  Watching run;
  run.Until(Seconds(110));
  run.answer = [](const Probe& probe) { return kSpine + (probe.source_port % 4 == 2 ? 3 : probe.source_port % 4); };
  const auto changed = run.Until(Seconds(130));
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->hop, kSpine + 2);
  EXPECT_LT(run.now.count(), 115.5);
}

TEST(PathWatch, AHopThatAnswersNoMoreIsSaidAfterThreeAttempts) {
  Watching run;
  run.Until(Seconds(110));
  run.answer = [](const Probe& probe) { return probe.source_port % 4 == 1 ? 0 : kSpine + probe.source_port % 4; };
  EXPECT_TRUE(run.Until(Seconds(130)));
  EXPECT_LT(run.now.count(), 110 + 4 + 3 + 1);
}

TEST(PathWatch, OneLostAnswerSaysNothing) {
  Watching run;
  int lost = 0;
  run.answer = [&](const Probe& probe) { return ++lost % 3 == 0 ? 0 : kSpine + probe.source_port % 4; };
  EXPECT_FALSE(run.Until(Seconds(160)));
}

TEST(PathWatch, AsksNothingWithoutTokensOrWhereItIsOff) {
  Watching poor;
  poor.budget.SetRate(0.01);
  poor.Until(Seconds(200));
  int asked = 0;
  for (const auto& [hop, times] : poor.asked) asked += times;
  EXPECT_LE(asked, 6 + 2) << "the burst, then one in 100 s";
  Watching off;
  TracerOptions none;
  none.watch_interval = Seconds(0);
  PathWatch watch(none);
  watch.SetWays(Ways());
  EXPECT_FALSE(watch.WantsWays(Seconds(1000)));
  EXPECT_FALSE(watch.Next(Seconds(1000), off.budget, 1));
}

// The spine answers nobody while the lane is first asked for: the gap is asked again within seconds, then less and less often.
TEST(PathWatch, ALaneWhoseWayIsNotKnownWholeIsAskedAgainSoon) {
  PathTracer tracer(TracerOptions(), 1);
  tracer.Track({.flow = 1, .source = kSource, .destination = kDestination, .destination_port = 29500, .lanes = {41001}, .candidates = {}}, Seconds(100));
  Seconds now{100};
  std::vector<TraceReport> reports;
  bool mute = true;
  const auto until = [&](Seconds end) {
    while (now < end) {
      const PathTracer::Step step = tracer.Next(now);
      for (TraceReport& report : tracer.TakeReports(now)) reports.push_back(std::move(report));
      if (!step.probe) {
        now = std::min(end, std::max(step.wake, now + Seconds(0.01)));
        continue;
      }
      const Probe& probe = *step.probe;
      if (probe.ttl > 3) {
        tracer.OnTcpAnswer({probe.destination, probe.source, probe.destination_port, probe.source_port, probe.sequence, 61});
      } else if (probe.ttl != 2 || !mute) {
        tracer.OnTimeExceeded({kSpine + probe.ttl, probe}, now);
      }
    }
  };
  until(Seconds(112));
  ASSERT_FALSE(reports.empty());
  EXPECT_FALSE(reports.back().paths[0].complete);
  mute = false;
  until(Seconds(140));
  EXPECT_TRUE(reports.back().paths[0].complete) << "before the next look that is due anyway";
}

}  // namespace
}  // namespace weft::agent

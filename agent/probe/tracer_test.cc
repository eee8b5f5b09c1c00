#include "agent/probe/tracer.h"

#include <gmock/gmock.h>

#include <functional>
#include <set>

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr Ipv4 kLeafHere = 0x0AFF0001, kLeafThere = 0x0AFF0002, kSpine = 0x0AFE0000;
constexpr Ipv4 kSource = 0x0A010001, kDestination = 0x0A020001;
constexpr uint16_t kListening = 29500;

/// Leaf, spine (chosen by the source port), leaf; the limits on answers are the Linux ones: a burst of 6, then 1/s.
struct FakeFabric {
  int spines = 2;
  int hops = 3;        // 0: same host
  int extra_back = 0;  // switches more on the way back
  Ipv4 leaf_there = kLeafThere;
  bool silent = false;
  std::function<Ipv4(const Probe&)> spine = [this](const Probe& p) {
    return kSpine + static_cast<Ipv4>(p.source_port % spines);
  };
  std::set<Ipv4> mute;
  struct Limit {
    double tokens = 6;
    Seconds at{0};
  };
  std::map<Ipv4, Limit> limits;
  int limited = 0;
  std::vector<Probe> reached_listener;

  bool Allowed(Ipv4 from, Seconds now) {
    Limit& limit = limits[from];
    limit.tokens = std::min(6.0, limit.tokens + (now - limit.at).count());
    limit.at = now;
    if (limit.tokens < 1) return ++limited, false;
    limit.tokens -= 1;
    return true;
  }

  void Deliver(const Probe& probe, PathTracer& tracer, Seconds now) {
    if (probe.ttl > hops) {
      if (probe.destination_port == kListening) reached_listener.push_back(probe);
      if (silent) return;
      tracer.OnTcpAnswer({probe.destination, probe.source, probe.destination_port, probe.source_port, probe.sequence,
                          static_cast<uint8_t>(64 - hops - extra_back)});
      return;
    }
    const Ipv4 from = probe.ttl == 1 ? kLeafHere : probe.ttl == hops ? leaf_there : spine(probe);
    if (mute.contains(from) || !Allowed(from, now)) return;
    tracer.OnTimeExceeded({from, probe}, now);
  }
};

struct Trial {
  Trial() { options.reprobe_interval = options.watch_interval = Seconds(0); }  // what was learned is to stand

  FakeFabric fabric;
  TracerOptions options;
  Seconds now{100};
  std::vector<TraceReport> reports;
  uint64_t turns = 0;

  /// Lets `tracer` work until it has nothing to wait for or `until` has come.
  void Until(PathTracer& tracer, Seconds until) {
    for (;;) {
      ASSERT_LT(++turns, 100'000u) << "busy loop";
      const PathTracer::Step step = tracer.Next(now);
      if (step.probe) fabric.Deliver(*step.probe, tracer, now);
      std::vector<TraceReport> news = tracer.TakeReports(now);
      const bool some = !news.empty();
      for (TraceReport& report : news) reports.push_back(std::move(report));
      if (step.probe || some) continue;
      if (step.wake > until) return;
      ASSERT_GT(step.wake, now) << "asks to be called again at once";
      now = step.wake;
    }
  }
};

TraceTarget Target(uint64_t flow, std::vector<uint16_t> lanes, int candidates = 12) {
  TraceTarget target{.flow = flow,
                     .source = kSource,
                     .destination = kDestination,
                     .destination_port = kListening,
                     .lanes = std::move(lanes)};
  for (int i = 0; i < candidates; ++i) target.candidates.push_back(static_cast<uint16_t>(20000 + 13 * i + flow));
  return target;
}

TEST(PathTracer, NamesEverySwitchOfEveryPort) {
  Trial run;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001, 41002}), run.now);
  run.Until(tracer, Seconds(200));
  ASSERT_FALSE(run.reports.empty());
  const TraceReport& last = run.reports.back();
  EXPECT_TRUE(last.finished);
  EXPECT_EQ(last.hop_count, 3);
  ASSERT_GE(last.paths.size(), 4u);
  for (const TracedPath& path : last.paths) {
    EXPECT_TRUE(path.complete);
    EXPECT_THAT(path.hops, ElementsAre(kLeafHere, kSpine + path.source_port % 2, kLeafThere)) << path.source_port;
  }
  EXPECT_THAT(run.fabric.reached_listener, SizeIs(0)) << "a probe must never arrive where somebody listens";
}

TEST(PathTracer, FirstReportComesWithTheFirstAlternative) {
  Trial run;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}), run.now);
  run.Until(tracer, Seconds(200));
  ASSERT_GE(run.reports.size(), 2u);
  const TraceReport& first = run.reports.front();
  EXPECT_FALSE(first.finished);
  EXPECT_EQ(first.paths[0].source_port, 41001) << "the lane in use comes first";
  std::set<std::vector<Ipv4>> ways;
  for (const TracedPath& path : first.paths) ways.insert(path.hops);
  EXPECT_EQ(ways.size(), 2u);
}

TEST(PathTracer, OneWayIsReportedAfterSixPortsAndBelievedAfterTwelve) {
  Trial run;
  run.fabric.spines = 1;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}), run.now);
  run.Until(tracer, Seconds(200));
  ASSERT_THAT(run.reports, SizeIs(2));
  EXPECT_THAT(run.reports[0].paths, SizeIs(6));
  EXPECT_FALSE(run.reports[0].finished);
  EXPECT_THAT(run.reports[1].paths, SizeIs(12));
  EXPECT_TRUE(run.reports[1].finished);
}

TEST(PathTracer, FindsTheSecondWayThoughNinePortsTakeTheFirst) {
  Trial run;
  PathTracer tracer(run.options, 1);
  TraceTarget target = Target(1, {41000}, 0);
  for (uint16_t i = 1; i <= 12; ++i) target.candidates.push_back(static_cast<uint16_t>(20000 + (i < 9 ? 2 : 1) * i));
  tracer.Track(target, run.now);
  run.Until(tracer, Seconds(200));
  ASSERT_FALSE(run.reports.empty());
  std::set<std::vector<Ipv4>> ways;
  for (const TracedPath& path : run.reports.back().paths) ways.insert(path.hops);
  EXPECT_THAT(ways, SizeIs(2));
}

TEST(PathTracer, BurstsStayWithinWhatSwitchesAnswer) {
  // 8 flows want 2 lanes each and alternatives: far more than one burst. What is lost to limits is a small part.
  Trial run;
  run.fabric.spines = 4;
  PathTracer tracer(run.options, 1);
  for (uint64_t flow = 1; flow <= 8; ++flow) {
    tracer.Track(Target(flow, {static_cast<uint16_t>(41000 + flow), static_cast<uint16_t>(42000 + 3 * flow)}), run.now);
  }
  run.Until(tracer, Seconds(400));
  std::map<uint64_t, const TraceReport*> last;
  for (const TraceReport& report : run.reports) last[report.flow] = &report;
  ASSERT_THAT(last, SizeIs(8));
  for (const auto& [flow, report] : last) {
    EXPECT_TRUE(report->finished);
    for (const TracedPath& path : report->paths) EXPECT_TRUE(path.complete) << flow << " " << path.source_port;
  }
  EXPECT_LT(run.fabric.limited, static_cast<int>(tracer.counters().sent) / 4);
}

TEST(PathTracer, FlowsThatCarryBytesAreKnownFirst) {
  // 24 flows, as NCCL opens them; two carry. Of each all the ports are known before any idle one that was not asked yet.
  for (const bool told : {false, true}) {
    Trial run;
    PathTracer tracer(run.options, 1);
    for (uint64_t flow = 1; flow <= 24; ++flow) {
      tracer.Track(Target(flow, {static_cast<uint16_t>(41000 + 3 * flow)}), run.now);
    }
    if (told) tracer.SetCarrying({17, 23, 99});
    run.Until(tracer, Seconds(103));
    std::set<uint64_t> reported;
    for (const TraceReport& report : run.reports) reported.insert(report.flow);
    if (told) {
      EXPECT_THAT(reported, ::testing::IsSupersetOf({17, 23}));
    } else {
      EXPECT_THAT(reported, ::testing::Not(::testing::Contains(23))) << "this fabric answers all at once: no test";
    }
    run.Until(tracer, Seconds(600));
    for (const TraceReport& report : run.reports) reported.insert(report.flow);
    EXPECT_THAT(reported, SizeIs(24)) << "idle flows get their turn";
  }
}

TEST(PathTracer, SilentSwitchLeavesAGap) {
  Trial run;
  run.fabric.mute = {kSpine + 1};
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001, 41002}, 2), run.now);
  run.Until(tracer, Seconds(300));
  ASSERT_FALSE(run.reports.empty());
  const TraceReport& last = run.reports.back();
  EXPECT_TRUE(last.finished);
  for (const TracedPath& path : last.paths) {
    const bool through_mute = path.source_port % 2 == 1;
    EXPECT_EQ(path.complete, !through_mute) << path.source_port;
    EXPECT_EQ(path.hops[1], through_mute ? 0 : kSpine) << path.source_port;
  }
}

TEST(PathTracer, WayBackOfAnotherLengthDoesNotMislead) {
  for (const int extra : {-1, 1, 2}) {
    Trial run;
    run.fabric.extra_back = extra;
    PathTracer tracer(run.options, 1);
    tracer.Track(Target(1, {41001}, 3), run.now);
    run.Until(tracer, Seconds(300));
    ASSERT_FALSE(run.reports.empty()) << extra;
    EXPECT_EQ(run.reports.back().hop_count, 3) << extra;
    EXPECT_THAT(run.reports.back().paths[0].hops, ElementsAre(kLeafHere, kSpine + 1, kLeafThere)) << extra;
    EXPECT_THAT(run.fabric.reached_listener, SizeIs(0)) << extra;
  }
}

TEST(PathTracer, ShortWaysNeedNoProbesPerPort) {
  for (const auto& [hops, want] : std::map<int, std::vector<Ipv4>>{{0, {}}, {1, {kLeafHere}}, {2, {kLeafHere, kLeafThere}}}) {
    Trial run;
    run.fabric.hops = hops;
    PathTracer tracer(run.options, 1);
    tracer.Track(Target(1, {41001}), run.now);
    run.Until(tracer, Seconds(300));
    ASSERT_THAT(run.reports, SizeIs(1)) << hops;
    EXPECT_EQ(run.reports[0].hop_count, hops);
    EXPECT_EQ(run.reports[0].paths[0].hops, want);
    EXPECT_TRUE(run.reports[0].paths[0].complete);
    EXPECT_LE(tracer.counters().sent, 4u);
  }
}

TEST(PathTracer, SilentDestinationIsAskedAgainMuchLater) {
  Trial run;
  run.fabric.silent = true;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}), run.now);
  run.Until(tracer, Seconds(110));
  EXPECT_THAT(run.reports, SizeIs(0));
  EXPECT_EQ(tracer.counters().sent, 4u);
  EXPECT_EQ(tracer.counters().silent_destinations, 1u);
  EXPECT_FALSE(tracer.AwaitsArrival());
  run.fabric.silent = false;
  run.Until(tracer, Seconds(300));
  ASSERT_FALSE(run.reports.empty());
  EXPECT_TRUE(run.reports.back().finished);
}

TEST(PathTracer, NewLaneIsTracedAndReportedOnKnownPortsNothingIsAsked) {
  Trial run;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}), run.now);
  run.Until(tracer, Seconds(200));
  const uint16_t known = run.reports.back().paths.back().source_port;
  const uint64_t sent = tracer.counters().sent;
  run.reports.clear();
  tracer.Track(Target(1, {41001, known}), run.now);
  run.Until(tracer, Seconds(300));
  EXPECT_EQ(tracer.counters().sent, sent);
  tracer.Track(Target(1, {41001, 45678}), run.now);
  run.Until(tracer, Seconds(400));
  EXPECT_EQ(tracer.counters().sent, sent + 1);
  ASSERT_FALSE(run.reports.empty());
  EXPECT_EQ(run.reports.back().paths[1].source_port, 45678);
}

TEST(PathTracer, AnswersThatFitNoProbeAreIgnored) {
  Trial run;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}), run.now);
  const PathTracer::Step step = tracer.Next(run.now);
  ASSERT_TRUE(step.probe.has_value());
  TcpAnswer answer{kDestination, kSource, step.probe->destination_port, step.probe->source_port,
                   step.probe->sequence + 1, 61};
  tracer.OnTcpAnswer(answer);
  answer.sequence = step.probe->sequence;
  answer.from = kDestination + 1;
  tracer.OnTcpAnswer(answer);
  Probe other = *step.probe;
  other.source_port += 1;
  tracer.OnTimeExceeded({kLeafHere, other}, run.now);
  EXPECT_EQ(tracer.counters().answered, 0u);
  EXPECT_TRUE(tracer.AwaitsArrival());
}

TEST(PathTracer, ReprobingFindsAChangedWay) {
  Trial run;
  run.options.reprobe_interval = Seconds(60);
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}, 3), run.now);
  run.Until(tracer, Seconds(130));
  ASSERT_EQ(run.reports.back().paths[0].hops[1], kSpine + 1);
  run.fabric.spine = [](const Probe&) { return kSpine + 7; };
  run.Until(tracer, Seconds(200));
  EXPECT_EQ(run.reports.back().paths[0].hops[1], kSpine + 7);
}

TEST(PathTracer, PathsAreProbedAgainSlowlyWithoutBeingAskedTo) {
  Trial run;
  run.options = TracerOptions();
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}, 3), run.now);
  run.Until(tracer, Seconds(130));
  run.fabric.spine = [](const Probe&) { return kSpine + 7; };
  run.Until(tracer, Seconds(250));
  EXPECT_EQ(run.reports.back().paths[0].hops[1], kSpine + 7);
}

TEST(PathTracer, AWayThatGoesElsewhereIsFoundWithinTenSecondsWithoutASign) {
  Trial run;
  run.options.watch_interval = Seconds(1);
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}, 3), run.now);
  run.Until(tracer, Seconds(130));
  run.fabric.spine = [](const Probe&) { return kSpine + 7; };
  run.Until(tracer, Seconds(140));
  EXPECT_EQ(run.reports.back().paths[0].hops[1], kSpine + 7);
}
TEST(PathTracer, ASignHasAFlowProbedAtOnceAndNotAgainAtOnce) {
  Trial run;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}, 3), run.now);
  run.Until(tracer, Seconds(130));
  ASSERT_EQ(run.reports.back().paths[0].hops[1], kSpine + 1);
  run.fabric.spine = [](const Probe&) { return kSpine + 7; };
  run.now = Seconds(130);
  run.fabric.silent = true;  // the host itself: what was known of its distance stands
  tracer.ProbeAgain(1, run.now);
  run.Until(tracer, Seconds(139));
  EXPECT_EQ(run.reports.back().paths[0].hops[1], kSpine + 7);
  const uint64_t sent = tracer.counters().sent;
  run.now = Seconds(140);
  tracer.ProbeAgain(1, run.now);  // a lossy link gives signs all the time
  tracer.ProbeAgain(2, run.now);
  run.Until(tracer, Seconds(142));
  EXPECT_EQ(tracer.counters().sent, sent);
}

TEST(PathTracer, AWayOfAnotherLengthOrLastSwitchIsFoundForAllFlowsBetweenTheHosts) {
  for (const bool longer : {false, true}) {
    Trial run;
    PathTracer tracer(run.options, 1);
    for (const uint64_t flow : {1UL, 2UL}) tracer.Track(Target(flow, {static_cast<uint16_t>(41000 + flow)}, 3), run.now);
    run.Until(tracer, Seconds(130));
    if (longer) run.fabric.hops = 4;
    else run.fabric.leaf_there += 1;
    run.now = Seconds(130);
    tracer.ProbeAgain(1, run.now);
    run.Until(tracer, Seconds(150));
    std::map<uint64_t, TraceReport> last;
    for (const TraceReport& report : run.reports) last[report.flow] = report;
    for (const auto& [flow, report] : last) {
      EXPECT_EQ(report.hop_count, run.fabric.hops) << flow;
      EXPECT_EQ(report.paths.at(0).hops.back(), run.fabric.leaf_there) << flow;
    }
  }
}

TEST(PathTracer, HostsThatBeganTogetherDoNotProbeAgainTogether) {
  std::set<double> times;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Trial run;
    run.options.reprobe_interval = TracerOptions().reprobe_interval;
    PathTracer tracer(run.options, seed);
    tracer.Track(Target(1, {41001}, 0), run.now);
    run.Until(tracer, Seconds(130));
    times.insert(tracer.Next(Seconds(130)).wake.count());
  }
  EXPECT_EQ(times.size(), 8u);
  EXPECT_GT(*times.rbegin() - *times.begin(), 10);
}

TEST(PathTracer, ASitesLimitHoldsOnlyForAllHostsTogether) {
  Trial run;
  PathTracer tracer(run.options, 1);
  tracer.SetRate(0.01);  // of 10,000 hosts, where a switch gives 100 answers a second
  tracer.Track(Target(1, {41001}, 12), run.now);
  run.Until(tracer, Seconds(300));
  // First and last switch, the distance and its confirmation, and one or two middle hops: no burst of six either.
  EXPECT_LE(tracer.counters().sent, 10u);
}

TEST(PathTracer, ForgottenFlowIsNotProbed) {
  Trial run;
  PathTracer tracer(run.options, 1);
  tracer.Track(Target(1, {41001}), run.now);
  tracer.Forget(1);
  run.Until(tracer, Seconds(300));
  EXPECT_THAT(run.reports, SizeIs(0));
}

}  // namespace
}  // namespace weft::agent

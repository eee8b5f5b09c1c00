#include "netplugin/arrival_meter.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::net {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kChunk = 20'000;  // bytes

/// A path of `delay` behind a link of `rate` bytes per nanosecond, and a reader that always waits.
class Path {
 public:
  explicit Path(double rate) : rate_(rate) {}

  /// A chunk that the kernel is given at `sent_ns`; returns when its header arrives.
  uint64_t Send(uint64_t sent_ns, bool awaited = true) { return Send(sent_ns, sent_ns, awaited); }
  uint64_t Send(uint64_t sent_ns, uint64_t told_ns, bool awaited) {
    const uint64_t begin = std::max(sent_ns, free_ns_);
    free_ns_ = begin + static_cast<uint64_t>(kChunk / rate_);
    const uint64_t arrival = begin + delay_ns;
    // The peer's clock is hours behind this one.
    meter_.Arrived(arrival, SentTick(told_ns - 7'777'777 * kMs), kChunk, awaited, &lane);
    return arrival;
  }

  double seconds() const { return static_cast<double>(lane.backlog_ns.load()) * 1e-9; }
  double rate() const {
    return static_cast<double>(lane.backlog_bytes.load()) / static_cast<double>(lane.backlog_ns.load());
  }

  uint64_t delay_ns = 3 * kMs;
  abi::LaneTelemetry lane{};

 private:
  double rate_;
  uint64_t free_ns_ = 0;
  ArrivalMeter meter_;
};

constexpr uint64_t kStart = 9'000'000 * kMs;

TEST(ArrivalMeter, AQueueShowsTheRateOfTheLink) {
  Path path(0.001);  // 1 MB/s: a chunk takes 20 ms
  for (uint64_t i = 0; i < 50; ++i) path.Send(kStart + i * 5 * kMs);
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  EXPECT_NEAR(path.seconds(), 48 * 0.02, 0.021) << "all but the first, which nothing was before";
}

TEST(ArrivalMeter, ASenderThatIsSlowerThanTheLinkShowsNothing) {
  Path path(0.001);
  for (uint64_t i = 0; i < 50; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_EQ(path.seconds(), 0);
}

TEST(ArrivalMeter, OnlyTheTimeInAQueueCounts) {
  Path path(0.001);
  // Bursts of four chunks, then as long a pause as they take.
  for (uint64_t burst = 0; burst < 20; ++burst) {
    for (uint64_t i = 0; i < 4; ++i) path.Send(kStart + burst * 160 * kMs + i * kMs);
  }
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  // Of the three that waited the first only shows when the second must have begun to: it was due before that came.
  EXPECT_NEAR(path.seconds(), 20 * 2 * 0.02, 0.021);
}

TEST(ArrivalMeter, AReaderThatPausesIsNotTakenForTheWire) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  // A chunk every 5 ms on an idle wire; the reader looks every 50 ms, finds ten, and waits for the eleventh.
  for (uint64_t i = 0; i < 400; ++i) {
    const uint64_t sent = kStart + i * 5 * kMs;
    const bool awaited = i % 10 == 0;
    const uint64_t seen = awaited ? sent : kStart + (i / 10 + 1) * 50 * kMs - kMs;
    meter.Arrived(seen, SentTick(sent), kChunk, awaited, &lane);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, ChunksReadTogetherCountWithTheNextThatIsWaitedFor) {
  Path path(0.001);
  for (uint64_t i = 0; i < 61; ++i) path.Send(kStart + i * kMs, i % 3 == 0);
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  EXPECT_NEAR(path.seconds(), 57 * 0.02, 0.05);
}

TEST(ArrivalMeter, WhatOneSystemCallTookIsNoQueue) {
  Path path(0.001);
  // Pairs that are given to the kernel at once and whose second half follows with the copying, well before the next pair.
  for (uint64_t i = 0; i < 50; ++i) {
    path.Send(kStart + i * 100 * kMs);
    path.Send(kStart + i * 100 * kMs, kStart + i * 100 * kMs, true);
  }
  EXPECT_EQ(path.seconds(), 0);
}

TEST(ArrivalMeter, ChunksWithoutATimeCountWhereTheyCame) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  for (uint64_t i = 0; i < 50; ++i) {
    meter.Arrived(kStart + i * 20 * kMs, SentTick(kStart + i * 4096), kChunk, true, &lane);
    if (i == 20) meter.Also(5 * kChunk);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 48 * 20 * kMs);
  EXPECT_EQ(lane.backlog_bytes.load(), (48 + 5) * kChunk);
}

TEST(ArrivalMeter, AQueueThatNeverEmptiesIsMeasuredOn) {
  Path path(0.001);
  for (uint64_t i = 0; i < 6000; ++i) path.Send(kStart + (i < 20 ? i * 5 : 100 + (i - 20) * 20) * kMs);  // two minutes
  EXPECT_GT(path.seconds(), 118);
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
}

TEST(ArrivalMeter, AReaderThatFallsBehindIsNotTakenForTheWire) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  // A chunk every 5 ms, looked at every 10 ms: each has been there for longer, and none is waited for after the first.
  for (uint64_t i = 0; i < 100; ++i) {
    meter.Arrived(kStart + i * 10 * kMs, SentTick(kStart + i * 5 * kMs), kChunk, i == 0, &lane);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, TheClocksMayDriftAndTheRouteMayChange) {
  Path path(0.001);
  for (uint64_t i = 0; i < 1000; ++i) path.Send(kStart + i * 21 * kMs);
  path.delay_ns = 5 * kMs;  // for good: after 20 s that is the least
  for (uint64_t i = 1000; i < 2500; ++i) path.Send(kStart + i * 21 * kMs);
  const double after = path.seconds();
  for (uint64_t i = 2500; i < 3000; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_EQ(path.seconds(), after);
}

TEST(ArrivalMeter, AnyNumberFromThePeerIsSafe) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  uint32_t sent = 1;
  for (uint64_t i = 0; i < 100'000; ++i) {
    sent = sent * 1664525 + 1013904223;
    meter.Arrived(kStart + i * kMs, i % 5 == 0 ? 0x80000000u : sent | 1, kChunk, i % 2 == 0, &lane);
  }
  EXPECT_LE(lane.backlog_ns.load(), 100'000 * kMs);
}

}  // namespace
}  // namespace weft::net

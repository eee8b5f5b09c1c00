#include "netplugin/arrival_meter.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::net {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kChunk = 20'000;  // bytes

/// A reader that waits looks every 10 us.
uint64_t Unseen(bool awaited) { return awaited ? 10'000 : ArrivalMeter::kUnknown; }

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
    meter_.Arrived(arrival, SentTick(told_ns - 7'777'777 * kMs), kChunk, Unseen(awaited), &lane);
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
    meter.Arrived(seen, SentTick(sent), kChunk, Unseen(awaited), &lane);
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
    meter.Arrived(kStart + i * 20 * kMs, SentTick(kStart + i * 4096), kChunk, Unseen(true), &lane);
    if (i == 20) meter.ArrivedUntimed(5 * kChunk);
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
    meter.Arrived(kStart + i * 10 * kMs, SentTick(kStart + i * 5 * kMs), kChunk, Unseen(i == 0), &lane);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, TheRouteMayChange) {
  Path path(0.001);
  for (uint64_t i = 0; i < 1000; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_EQ(path.seconds(), 0);
  path.delay_ns = 33 * kMs;  // for good: until that is the least delay, each looks as if it were due before its predecessor
  for (uint64_t i = 1000; i < 1400; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_GT(path.seconds(), 7);
  for (uint64_t i = 1400; i < 6000; ++i) path.Send(kStart + i * 21 * kMs);
  const double later = path.seconds();  // 97 s on, at 0.1 ms per second
  for (uint64_t i = 6000; i < 7000; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_EQ(path.seconds(), later);
}

TEST(ArrivalMeter, TheClocksMayDrift) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  // Half an hour of a sender whose clock is slow by 90 ppm, on an idle wire: it would be 160 ms late at the end.
  for (uint64_t i = 0; i < 90'000; ++i) {
    const uint64_t now = i * 20 * kMs;
    meter.Arrived(kStart + now, SentTick(kStart + now - now / 1'000'000 * 90), kChunk, Unseen(true), &lane);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, ArrivalsThatComeUnevenlyAreNoQueue) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  // A chunk every 16 us, 10 Gbit/s of a faster wire, and up to 90 us until its interrupt.
  uint64_t newest = 0, random = 1;
  for (uint64_t i = 0; i < 100'000; ++i) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const uint64_t sent = kStart + i * 16'000;
    newest = std::max(newest + 500, sent + (random >> 33) % 90'000);
    meter.Arrived(newest, SentTick(sent), kChunk, 50, &lane);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, AReaderThatStallsAtTheEndOfABurstDoesNotChangeTheRate) {
  Path path(0.02);  // a chunk takes 1 ms
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  for (uint64_t burst = 0; burst < 50; ++burst) {
    const uint64_t begin = kStart + burst * 100 * kMs;
    for (uint64_t i = 0; i < 20; ++i) {
      // The second half of the burst comes while the reader is away, and is found together.
      const uint64_t sent = begin + i * 4096, arrival = path.Send(sent), back = begin + 30 * kMs;
      const uint64_t unseen = i < 10 ? Unseen(true) : i == 10 ? back - arrival : ArrivalMeter::kUnknown;
      meter.Arrived(i < 10 ? arrival : back + i, SentTick(sent), kChunk, unseen, &lane);
    }
  }
  EXPECT_GT(lane.backlog_ns.load(), 50 * 7 * kMs);
  EXPECT_NEAR(static_cast<double>(lane.backlog_bytes.load()) / static_cast<double>(lane.backlog_ns.load()), 0.02, 0.002);
}

TEST(ArrivalMeter, ALongQueueIsMeasuredByAReaderThatLooksRarely) {
  Path path(0.02);  // a chunk takes 1 ms
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  uint64_t looked = 0;
  for (uint64_t i = 0; i < 2000; ++i) {  // 60 ms are queued all the time; somebody looks every 5 ms
    const uint64_t sent = kStart + (i < 60 ? 0 : (i - 59)) * kMs, arrival = path.Send(sent);
    const uint64_t seen = (arrival / (5 * kMs) + 1) * 5 * kMs;
    meter.Arrived(seen, SentTick(sent), kChunk, seen != looked ? 5 * kMs : ArrivalMeter::kUnknown, &lane);
    looked = seen;
  }
  EXPECT_GT(lane.backlog_ns.load(), 1700 * kMs);
  EXPECT_NEAR(static_cast<double>(lane.backlog_bytes.load()) / static_cast<double>(lane.backlog_ns.load()), 0.02, 0.001);
}

TEST(ArrivalMeter, AReaderThatLooksRarelySeesNoQueueOnAnIdleWire) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  uint64_t looked = 0;
  for (uint64_t i = 0; i < 2000; ++i) {  // a chunk every 4 ms, found up to 5 ms later
    const uint64_t sent = kStart + i * 4 * kMs, seen = (sent / (5 * kMs) + 1) * 5 * kMs;
    meter.Arrived(seen, SentTick(sent), kChunk, seen != looked ? 5 * kMs : ArrivalMeter::kUnknown, &lane);
    looked = seen;
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, CountingBeginsWhereAnArrivalIsKnownWell) {
  Path path(0.001);
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  meter.Arrived(path.Send(kStart - kMs * 100), SentTick(kStart - kMs * 100), kChunk, Unseen(true), &lane);
  for (uint64_t burst = 0; burst < 10; ++burst) {
    for (uint64_t i = 0; i < 6; ++i) {  // the reader is late for the first
      const uint64_t sent = kStart + burst * 200 * kMs, late = i == 0 ? 15 * kMs : 0;
      meter.Arrived(path.Send(sent) + late, SentTick(sent + i * 4096), kChunk, late + Unseen(true), &lane);
    }
  }
  EXPECT_NEAR(static_cast<double>(lane.backlog_ns.load()), 10 * 4 * 20.0 * kMs, 21.0 * kMs);
}

TEST(ArrivalMeter, AReaderThatHeldUpTheSenderKnowsNothingOfThePath) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  // Bursts of four that were given to the kernel at once; before the third the reader pauses for 50 ms and its window
  // closes.
  for (uint64_t burst = 0; burst < 50; ++burst) {
    const uint64_t begin = kStart + burst * 500 * kMs;
    for (uint64_t i = 0; i < 4; ++i) {
      if (i == 2) meter.Forget();
      meter.Arrived(begin + (i * 5 + (i >= 2 ? 50 : 0)) * kMs, SentTick(begin + i * 4096), kChunk, Unseen(true), &lane);
    }
  }
  EXPECT_LE(lane.backlog_ns.load(), 50 * 2 * 5 * kMs);
  EXPECT_GT(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, AnyNumberFromThePeerIsSafe) {
  ArrivalMeter meter;
  abi::LaneTelemetry lane{};
  uint32_t sent = 1;
  for (uint64_t i = 0; i < 100'000; ++i) {
    sent = sent * 1664525 + 1013904223;
    meter.Arrived(kStart + i * kMs, i % 5 == 0 ? 0x80000000u : sent | 1, kChunk, sent >> 7 << (i % 20), &lane);
  }
  EXPECT_LE(lane.backlog_ns.load(), 100'000 * kMs);
}

}  // namespace
}  // namespace weft::net

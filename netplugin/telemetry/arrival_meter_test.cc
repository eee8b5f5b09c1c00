#include "netplugin/telemetry/arrival_meter.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::net {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kChunk = 20'000;  // bytes
constexpr uint64_t kStart = 9'000'000 * kMs;

/// A path of `delay_ns` behind a link of `rate` bytes per nanosecond, and a reader.
class Path {
 public:
  explicit Path(double rate) : rate_(rate) {}

  /// A chunk that the kernel is given at `sent_ns` and says so. A reader that is away does not find its end alone.
  void Send(uint64_t sent_ns, bool away = false) { SendTold(sent_ns, sent_ns, away); }
  void SendTold(uint64_t sent_ns, uint64_t told_ns, bool away = false) {
    const uint64_t begin = std::max(sent_ns, free_ns_);
    free_ns_ = begin + static_cast<uint64_t>(kChunk / rate_);
    meter.Chunk(Tick(told_ns), begin + delay_ns, &lane);
    position_ += kChunk;
    if (!away) meter.Ended(position_, free_ns_ + delay_ns);
  }
  /// One without a time.
  void SendUntimed() {
    free_ns_ += static_cast<uint64_t>(kChunk / rate_);
    position_ += kChunk;
  }

  /// The peer's clock is hours behind this one.
  static uint32_t Tick(uint64_t told_ns) { return SentTick(told_ns - 7'777'777 * kMs); }
  double seconds() const { return static_cast<double>(lane.backlog_ns.load()) * 1e-9; }
  double rate() const { return static_cast<double>(lane.backlog_bytes.load()) / static_cast<double>(lane.backlog_ns.load()); }

  uint64_t delay_ns = 3 * kMs;
  abi::LaneTelemetry lane{};
  ArrivalMeter meter{1.0};

 private:
  double rate_;
  uint64_t free_ns_ = 0;
  uint64_t position_ = 0;
};

TEST(ArrivalMeter, AQueueShowsTheRateOfTheLink) {
  Path path(0.001);  // 1 MB/s: a chunk takes 20 ms
  for (uint64_t i = 0; i < 50; ++i) path.Send(kStart + i * 5 * kMs);
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  EXPECT_NEAR(path.seconds(), 48 * 0.02, 1e-6) << "from the first end, which the second chunk was due before, to the last that one proves";
}

TEST(ArrivalMeter, BytesOnTheWireCount) {
  Path path(0.001);
  path.meter = ArrivalMeter(1.25);
  for (uint64_t i = 0; i < 50; ++i) path.Send(kStart + i * 5 * kMs);
  EXPECT_NEAR(path.rate(), 0.00125, 1e-5);
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
  EXPECT_NEAR(path.seconds(), 20 * 2 * 0.02, 1e-6);
}

TEST(ArrivalMeter, ByteThatIsKnownWithinAChunkCounts) {
  // Two chunks at once on a link on which each takes 20 ms: the second was due long before half of the first had come.
  ArrivalMeter meter(1.0);
  abi::LaneTelemetry lane{};
  meter.Chunk(Path::Tick(kStart), kStart, &lane);
  meter.Ended(kChunk / 4, kStart + 5 * kMs);
  meter.Ended(kChunk / 2, kStart + 10 * kMs);
  meter.Chunk(Path::Tick(kStart + kMs), kStart + 20 * kMs, &lane);
  EXPECT_EQ(lane.backlog_ns.load(), 5 * kMs);
  EXPECT_EQ(lane.backlog_bytes.load(), kChunk / 4);
}

TEST(ArrivalMeter, AReaderThatPausesIsNotTakenForTheWire) {
  ArrivalMeter meter(1.0);
  abi::LaneTelemetry lane{};
  // A chunk every 5 ms on an idle wire; the reader looks every 50 ms, finds ten, and is told when the last of them came.
  for (uint64_t look = 0; look < 40; ++look) {
    const uint64_t last = kStart + (look * 10 + 9) * 5 * kMs;
    for (uint64_t i = 0; i < 10; ++i) meter.Chunk(Path::Tick(kStart + (look * 10 + i) * 5 * kMs), last, &lane);
    meter.Ended((look + 1) * 10 * kChunk, last);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, AReaderThatLooksRarelyMeasuresALongQueue) {
  Path path(0.001);
  for (uint64_t i = 0; i < 61; ++i) path.Send(kStart + i * kMs, i % 3 != 0);
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  EXPECT_NEAR(path.seconds(), 57 * 0.02, 1e-6);
}

TEST(ArrivalMeter, AReaderThatNeverFindsTheEndKnowsNothing) {
  Path path(0.001);
  for (uint64_t i = 0; i < 50; ++i) path.Send(kStart + i * 5 * kMs, true);
  EXPECT_EQ(path.seconds(), 0);
}

TEST(ArrivalMeter, WhatOneSystemCallTookIsNoQueue) {
  Path path(0.02);  // a chunk takes 1 ms
  // Four are given to the kernel by one call, and follow each other as it copies them.
  for (uint64_t i = 0; i < 50; ++i) {
    const uint64_t begin = kStart + i * 100 * kMs;
    for (uint64_t j = 0; j < 4; ++j) path.SendTold(begin + j * kMs, begin);
  }
  EXPECT_EQ(path.seconds(), 0);
}

TEST(ArrivalMeter, ChunksOfOneSystemCallThatTakeLongerStoodInAQueue) {
  Path path(0.001);
  for (uint64_t i = 0; i < 50; ++i) {
    for (uint64_t j = 0; j < 4; ++j) path.Send(kStart + i * 100 * kMs);
  }
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  EXPECT_GT(path.seconds(), 50 * 0.039);
}

TEST(ArrivalMeter, TheFirstMillisecondsOfASystemCallDoNotSpoilTheRest) {
  // Four chunks by one call, on a link on which each takes 20 ms; every packet is seen to come.
  ArrivalMeter meter(1.0);
  abi::LaneTelemetry lane{};
  for (uint64_t ms = 0; ms < 80; ++ms) {
    if (ms % 20 == 0) meter.Chunk(Path::Tick(kStart), kStart + ms * kMs, &lane);
    meter.Ended((ms + 1) * 1000, kStart + ms * kMs);
  }
  EXPECT_NEAR(static_cast<double>(lane.backlog_ns.load()), 53e6, 2e6) << "from 6 ms on to the last header";
  EXPECT_EQ(lane.backlog_bytes.load(), lane.backlog_ns.load() / 1000);
}

TEST(ArrivalMeter, ChunksWithoutATimeCountWhereTheyCame) {
  Path path(0.001);
  for (uint64_t i = 0; i < 50; ++i) {
    path.Send(kStart + i * 5 * kMs);
    if (i == 20) path.SendUntimed();
  }
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  EXPECT_NEAR(path.seconds(), 49 * 0.02, 1e-6);
}

TEST(ArrivalMeter, AQueueThatNeverEmptiesIsMeasuredOn) {
  Path path(0.001);
  for (uint64_t i = 0; i < 6000; ++i) path.Send(kStart + (i < 20 ? i * 5 : 100 + (i - 20) * 20) * kMs);  // two minutes
  EXPECT_GT(path.seconds(), 118);
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
}

TEST(ArrivalMeter, TheRouteMayChange) {
  Path path(0.001);
  for (uint64_t i = 0; i < 1000; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_EQ(path.seconds(), 0);
  path.delay_ns = 33 * kMs;  // for good: until that is the least delay, each looks as if it had stood in a queue
  for (uint64_t i = 1000; i < 1400; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_GT(path.seconds(), 7);
  for (uint64_t i = 1400; i < 20'000; ++i) path.Send(kStart + i * 21 * kMs);
  const double later = path.seconds();  // 390 s on, at 0.1 ms per second
  for (uint64_t i = 20'000; i < 21'000; ++i) path.Send(kStart + i * 21 * kMs);
  EXPECT_EQ(path.seconds(), later);
}

TEST(ArrivalMeter, TheClocksMayDrift) {
  ArrivalMeter meter(1.0);
  abi::LaneTelemetry lane{};
  // Half an hour of a sender whose clock is slow by 90 ppm, on an idle wire: it would be 160 ms late at the end.
  for (uint64_t i = 0; i < 90'000; ++i) {
    const uint64_t now = i * 20 * kMs;
    meter.Chunk(Path::Tick(kStart + now - now / 1'000'000 * 90), kStart + now, &lane);
    meter.Ended((i + 1) * kChunk, kStart + now + kMs);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, ArrivalsThatComeUnevenlyAreNoQueue) {
  ArrivalMeter meter(1.0);
  abi::LaneTelemetry lane{};
  // A chunk every 16 us, 10 Gbit/s of a faster wire, and up to 90 us until its interrupt.
  uint64_t newest = 0, random = 1;
  for (uint64_t i = 0; i < 100'000; ++i) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const uint64_t sent = kStart + i * 16'000;
    newest = std::max(newest + 500, sent + (random >> 33) % 90'000);
    meter.Chunk(Path::Tick(sent), newest, &lane);
    meter.Ended((i + 1) * kChunk, newest);
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u);
}

TEST(ArrivalMeter, AReaderThatHeldUpTheSenderKnowsNothingOfThePath) {
  ArrivalMeter meter(1.0);
  abi::LaneTelemetry lane{};
  // Bursts of four of which each takes 5 ms; before the third the reader pauses for 50 ms and its window closes.
  for (uint64_t burst = 0; burst < 50; ++burst) {
    const uint64_t begin = kStart + burst * 500 * kMs;
    for (uint64_t i = 0; i < 4; ++i) {
      if (i == 2) meter.Forget();
      const uint64_t at = begin + (i * 5 + (i >= 2 ? 50 : 0)) * kMs;
      meter.Chunk(Path::Tick(begin + i * 4096), at, &lane);
      meter.Ended((burst * 4 + i + 1) * kChunk, at + 5 * kMs);
    }
  }
  EXPECT_EQ(lane.backlog_ns.load(), 0u) << "no end is known on both sides of a proof";
}

TEST(ArrivalMeter, AClockThatIsSetBackIsSurvived) {
  Path path(0.001);
  for (uint64_t i = 0; i < 50; ++i) path.Send(kStart + i * 5 * kMs);
  const double before = path.seconds();
  path.meter.Ended(0, kStart - 1000 * kMs);
  EXPECT_EQ(path.seconds(), before);
  for (uint64_t i = 50; i < 100; ++i) path.Send(kStart + i * 5 * kMs);
  EXPECT_NEAR(path.rate(), 0.001, 1e-5);
  EXPECT_GT(path.seconds(), before + 40 * 0.02);
}

TEST(ArrivalMeter, AnyNumberFromThePeerIsSafe) {
  ArrivalMeter meter(1.0);
  abi::LaneTelemetry lane{};
  uint32_t sent = 1;
  for (uint64_t i = 0; i < 100'000; ++i) {
    sent = sent * 1664525 + 1013904223;
    meter.Chunk(i % 5 == 0 ? 0x80000000u : sent | 1, kStart + i * kMs, &lane);
    if (sent % 3 != 0) meter.Ended((i + 1) * kChunk, kStart + i * kMs + sent % 1000);
  }
  EXPECT_LE(lane.backlog_ns.load(), 100'001 * kMs);
}

}  // namespace
}  // namespace weft::net

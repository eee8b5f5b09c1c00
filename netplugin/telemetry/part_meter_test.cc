#include "netplugin/telemetry/part_meter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPart = 100'000;  // bytes on the wire
constexpr uint64_t kStart = 9'000'000 * kMs;

/// A path of 50 us behind a link of `rate` bytes per nanosecond, to a host whose clock shows something else.
class Path {
 public:
  explicit Path(double rate) : rate_(rate) {}

  void Send(uint64_t sent_ns, bool told = true) {
    free_ns_ = std::max(sent_ns, free_ns_) + static_cast<uint64_t>(kPart / rate_);
    ++ordinal_;
    if (told) meter.Came({ordinal_, sent_ns, SentTick(free_ns_ + 50'000 + ahead_ns), kPart, late_ns}, kPerByte, &lane);
  }
  void SetRate(double rate) { rate_ = rate; }
  double BacklogMs() const { return static_cast<double>(lane.backlog_ns.load()) / kMs; }
  /// Bytes per nanosecond.
  double Rate() const { return static_cast<double>(lane.backlog_bytes.load()) / static_cast<double>(lane.backlog_ns.load()); }

  static constexpr double kPerByte = 0.08;  // of a port of 100 Gbit/s
  PartMeter meter;
  abi::LaneTelemetry lane{};
  uint64_t late_ns = 0;
  uint64_t ahead_ns = 77'777 * kMs;  // the receiver's clock

 private:
  double rate_;
  uint64_t free_ns_ = 0;
  uint32_t ordinal_ = 0;
};

TEST(PartMeter, AFastPathHasNoBacklog) {
  Path path(12.5);
  for (uint64_t i = 0; i < 100; ++i) path.Send(kStart + i * kMs);
  EXPECT_EQ(path.lane.backlog_ns.load(), 0u);
}

TEST(PartMeter, ASlowPathGivesItsRateAlsoToPartsThatAreSentAlone) {
  Path path(12.5);
  path.Send(kStart);
  path.SetRate(0.005);  // 40 Mbit/s: 20 ms for a part
  for (uint64_t i = 1; i <= 10; ++i) path.Send(kStart + i * 100 * kMs);
  EXPECT_NEAR(path.Rate(), 0.005, 0.0001);
  EXPECT_NEAR(path.BacklogMs(), 200, 4);
}

TEST(PartMeter, PartsBehindEachOtherAreCountedOnce) {
  Path path(12.5);
  path.Send(kStart);
  path.SetRate(0.005);
  for (uint64_t burst = 1; burst <= 4; ++burst) {
    for (int i = 0; i < 5; ++i) path.Send(kStart + burst * 300 * kMs);
  }
  EXPECT_NEAR(path.Rate(), 0.005, 0.0001);
  EXPECT_NEAR(path.BacklogMs(), 400, 8);
}

TEST(PartMeter, NothingIsCountedBehindAPartThatNothingIsToldOf) {
  Path path(12.5);
  path.Send(kStart);
  path.SetRate(0.005);
  path.Send(kStart + 100 * kMs, /*told=*/false);
  path.Send(kStart + 100 * kMs);  // it had the other one before it
  EXPECT_EQ(path.lane.backlog_ns.load(), 0u);
  path.Send(kStart + 100 * kMs);
  EXPECT_NEAR(path.BacklogMs(), 20, 0.5);
}

TEST(PartMeter, ATimeThatAReaderMayBeLateForIsNone) {
  Path path(12.5);
  path.Send(kStart);
  path.late_ns = 6 * kMs;
  path.SetRate(0.005);
  path.Send(kStart + 100 * kMs);  // 20 ms
  EXPECT_EQ(path.lane.backlog_ns.load(), 0u);
  path.late_ns = 4 * kMs;
  path.Send(kStart + 200 * kMs);
  EXPECT_NEAR(path.BacklogMs(), 20, 0.5);
}

TEST(PartMeter, ClocksThatDriftShowNothing) {
  Path path(12.5);
  for (uint64_t i = 0; i < 10'000; ++i) {  // 100 s
    path.Send(kStart + i * 10 * kMs);
    path.ahead_ns += 900;  // 90 parts in a million
  }
  EXPECT_EQ(path.lane.backlog_ns.load(), 0u);
}

TEST(PartMeter, TheTickMayWrap) {
  Path path(12.5);
  path.ahead_ns = (uint64_t{1} << (32 + kTickShift)) - (kStart % (uint64_t{1} << (32 + kTickShift))) - 30 * kMs;
  for (uint64_t i = 0; i < 100; ++i) path.Send(kStart + i * kMs);
  EXPECT_EQ(path.lane.backlog_ns.load(), 0u);
  path.SetRate(0.005);
  path.Send(kStart + 200 * kMs);
  EXPECT_NEAR(path.BacklogMs(), 20, 0.5);
}

TEST(PartMeter, AnythingAPeerMayTellIsBorne) {
  Path path(12.5);
  uint64_t random = 1;
  for (uint32_t i = 1; i < 10'000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    path.meter.Came({i, kStart + i * kMs, static_cast<uint32_t>(random >> 32), kPart}, 0, &path.lane);
  }
  EXPECT_GE(path.lane.backlog_bytes.load(), kPart);
}

}  // namespace
}  // namespace weft::net

#include "agent/user_quotas.h"

#include <gmock/gmock.h>

#include "agent/telemetry_reader.h"
#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kHostile = 1001, kVictim = 1002;
constexpr size_t kMiB = 1 << 20;

TEST(UserQuotas, SegmentsAndTheirMemoryAreOfEachUser) {
  UserQuotas quotas({.segments = 2, .memory_mib = 3});
  EXPECT_TRUE(quotas.TakeSegment(kHostile, kMiB));
  const Status large = quotas.TakeSegment(kHostile, 2 * kMiB + 1);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(large.error().message(), HasSubstr("uid 1001 has 1 telemetry segments of 1048576 bytes together"));
  EXPECT_TRUE(quotas.TakeSegment(kHostile, 2 * kMiB)) << "what was refused counts nothing";
  EXPECT_FALSE(quotas.TakeSegment(kHostile, 0)) << "a third one";
  EXPECT_TRUE(quotas.TakeSegment(kVictim, 3 * kMiB));
  quotas.ReturnSegment(kHostile, 2 * kMiB);
  EXPECT_TRUE(quotas.TakeSegment(kHostile, 2 * kMiB));
}

TEST(UserQuotas, PlacesAreCountedOnceHoweverManyFlowsGoThere) {
  UserQuotas quotas({.destinations = 2});
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 1, "a 1"));
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 2, "a 1"));
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 3, "b 1"));
  EXPECT_FALSE(quotas.TakeDestination(kHostile, 4, "c 1"));
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 3, "b 1")) << "its lanes have changed";
  EXPECT_TRUE(quotas.TakeDestination(kVictim, 5, "c 1"));
  EXPECT_TRUE(quotas.ReturnDestination(kHostile, 1));
  EXPECT_FALSE(quotas.TakeDestination(kHostile, 4, "c 1")) << "flow 2 still goes to the first place";
  EXPECT_TRUE(quotas.ReturnDestination(kHostile, 2));
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 4, "c 1"));
}

// A flow that goes elsewhere: refused, it is still probed where it was, and its end gives that back.
TEST(UserQuotas, AFlowThatMovesKeepsItsPlaceUntilItHasAnother) {
  UserQuotas quotas({.destinations = 2});
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 1, "a 1"));
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 2, "a 1"));
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 3, "b 1"));
  EXPECT_FALSE(quotas.TakeDestination(kHostile, 1, "c 1")) << "flow 2 still goes to the first place";
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 3, "c 1")) << "the second place goes with it";
  EXPECT_TRUE(quotas.ReturnDestination(kHostile, 1)) << "it has closed";
  EXPECT_FALSE(quotas.ReturnDestination(kHostile, 1));
  EXPECT_TRUE(quotas.TakeDestination(kHostile, 2, "d 1")) << "alone at the first place since";
  EXPECT_FALSE(quotas.TakeDestination(kHostile, 4, "e 1"));
}

// Numbers of flows are the processes' own: one that names another user's flow speaks of nothing.
TEST(UserQuotas, ANumberIsOfWhoFirstNamesIt) {
  UserQuotas quotas;
  EXPECT_EQ(quotas.TakeFlow(kVictim, 7), FlowAnswer::kTaken);
  EXPECT_EQ(quotas.TakeFlow(kVictim, 7), FlowAnswer::kTaken) << "its other end is on this host too";
  EXPECT_EQ(quotas.TakeFlow(kHostile, 7), FlowAnswer::kAnothersFlow);
  quotas.ReturnFlow(kVictim, 7);
  EXPECT_EQ(quotas.TakeFlow(kHostile, 7), FlowAnswer::kAnothersFlow) << "one end is open still";
  quotas.ReturnFlow(kVictim, 7);
  EXPECT_EQ(quotas.TakeFlow(kHostile, 7), FlowAnswer::kTaken);
}

std::unique_ptr<TelemetryMap> Map(const TestSegment& segment) {
  auto map = TelemetryMap::Attach(segment.Share(), {::getpid(), ::getuid()});
  EXPECT_TRUE(map) << map.error().message();
  return std::move(*map);
}

// Two processes of one user and one of another: the second of the one finds nothing left, the other's has all of his.
TEST(UserQuotas, FlowsAreOfAUserAndNotOfAProcess) {
  UserQuotas quotas({.flows = 3});
  TestSegment first, second, other;
  const auto a = Map(first), b = Map(second), c = Map(other);
  TelemetryReader of_first(*a, &quotas, kHostile), of_second(*b, &quotas, kHostile), of_other(*c, &quotas, kVictim);
  for (uint32_t i = 0; i < 2; ++i) {
    first.Open(i, 10 + i);
    second.Open(i, 20 + i);
    other.Open(i, 30 + i);
  }
  for (TelemetryReader* reader : {&of_first, &of_second, &of_other}) reader->Sample();
  EXPECT_EQ(of_first.open_flows(true), 2);
  EXPECT_EQ(of_second.open_flows(true), 1);
  EXPECT_EQ(of_other.open_flows(true), 2);
  EXPECT_EQ(of_second.TakeTraffic().flows_refused, 1);
  of_second.Sample();
  EXPECT_EQ(of_second.TakeTraffic().flows_refused, 0) << "looked at once";
  first.segment->flows[1].state = static_cast<uint32_t>(abi::SlotState::kClosed);
  of_first.Sample();
  second.Open(5, 25);
  of_second.Sample();
  EXPECT_EQ(of_second.open_flows(true), 2) << "one of the first has closed";
  for (TelemetryReader* reader : {&of_first, &of_second, &of_other}) reader->Close();
}

// The other end of the victim's flow, as far as the segment says: neither it nor its end is told.
TEST(UserQuotas, WhoNamesAnothersFlowClosesNothing) {
  UserQuotas quotas;
  TestSegment his, hostile;
  const auto a = Map(his), b = Map(hostile);
  TelemetryReader of_his(*a, &quotas, kVictim), of_hostile(*b, &quotas, kHostile);
  his.Open(0, 10);
  of_his.Sample();
  hostile.Open(0, 10);
  of_hostile.Sample();
  EXPECT_EQ(of_hostile.open_flows(true), 0);
  EXPECT_EQ(of_hostile.TakeTraffic().flows_of_others, 1);
  hostile.segment->flows[0].state = static_cast<uint32_t>(abi::SlotState::kClosed);
  of_hostile.Sample();
  of_hostile.Close();
  v1::HostSample sample;
  of_hostile.Collect(&sample);
  EXPECT_EQ(sample.opened_size(), 0);
  EXPECT_EQ(sample.closed_size(), 0);
  of_his.Collect(&sample);
  ASSERT_EQ(sample.opened_size(), 1);
  EXPECT_EQ(sample.opened(0).user_id(), kVictim);
  EXPECT_EQ(sample.counters(0).user_id(), kVictim);
  of_his.Close();
}

}  // namespace
}  // namespace weft::agent

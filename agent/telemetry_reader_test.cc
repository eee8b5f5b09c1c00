#include "agent/telemetry_reader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;

class TelemetryReaderTest : public ::testing::Test {
 protected:
  TelemetryReaderTest() {
    auto map = TelemetryMap::Attach(segment_.Share(), {::getpid(), ::getuid()});
    EXPECT_TRUE(map) << map.error().message();
    map_ = std::move(*map);
    reader_ = std::make_unique<TelemetryReader>(*map_);
  }

  v1::HostSample Take() {
    reader_->Sample();
    v1::HostSample sample;
    reader_->Collect(&sample);
    return sample;
  }
  static void Close(abi::FlowSlot& slot) { slot.state = static_cast<uint32_t>(abi::SlotState::kClosed); }
  static void Burst(abi::FlowSlot& slot, uint64_t start_ns, uint64_t end_ns, uint64_t bytes) {
    const uint64_t i = slot.burst_count.load();
    slot.bursts[i % abi::kBurstRing].start_ns = start_ns;
    slot.bursts[i % abi::kBurstRing].end_ns = end_ns;
    slot.bursts[i % abi::kBurstRing].bytes = bytes;
    slot.burst_count.store(i + 1);
  }

  TestSegment segment_;
  std::unique_ptr<TelemetryMap> map_;
  std::unique_ptr<TelemetryReader> reader_;
};

TEST_F(TelemetryReaderTest, ALaneWithoutAnswerIsToldAndItsPathDoubted) {
  abi::FlowSlot& slot = segment_.Open(5, 0xABCD);
  EXPECT_EQ(Take().counters(0).lanes(0).silent_s(), 0);
  EXPECT_TRUE(reader_->TakeDoubtful().empty());
  slot.silent_ms[0] = 1500;
  const v1::HostSample sample = Take();
  ASSERT_EQ(sample.counters_size(), 1);
  EXPECT_EQ(sample.counters(0).lanes(0).silent_s(), 1.5);
  EXPECT_EQ(reader_->TakeDoubtful(), std::vector<uint64_t>{0xABCD});
  slot.lanes[0].state = static_cast<uint32_t>(abi::LaneState::kFailed);
  slot.silent_ms[0] = 1600;
  EXPECT_EQ(Take().counters(0).lanes(0).silent_s(), 1.6) << "one that was left says why";
  reader_->TakeDoubtful();
  slot.lanes[0].state = static_cast<uint32_t>(abi::LaneState::kActive);
  slot.silent_ms[0] = 0;
  Take();
  slot.lanes[0].retransmits = 50;
  Take();
  EXPECT_EQ(reader_->TakeDoubtful(), std::vector<uint64_t>{0xABCD}) << "much was sent again";
}

TEST_F(TelemetryReaderTest, AnEpochThatNoControllerComesToIsTheProcesssOwn) {
  abi::FlowSlot& slot = segment_.Open(5, 0xABCD);
  slot.policy_epoch = 7;
  segment_.segment->process.policy_epoch = uint64_t{1} << 60;
  Take();
  EXPECT_EQ(reader_->NewestEpoch(), 7);
}

TEST_F(TelemetryReaderTest, FlowOpensCountsAndCloses) {
  abi::FlowSlot& slot = segment_.Open(5, 0xABCD);
  slot.bytes = 1000;
  slot.wait_wire_ns = 1'500'000'000;
  slot.lanes[0].retransmits = 2;
  slot.lanes[0].rtt_us = 250;
  v1::HostSample sample = Take();
  ASSERT_EQ(sample.opened_size(), 1);
  const v1::FlowIdentity& identity = sample.opened(0);
  EXPECT_EQ(identity.flow(), 0xABCDu);
  EXPECT_EQ(identity.job_id(), "job-1");
  EXPECT_TRUE(identity.send());
  EXPECT_EQ(identity.rank(), 3);
  EXPECT_EQ(identity.world(), 8);
  EXPECT_EQ(identity.local_address(), "127.0.0.1");
  EXPECT_EQ(identity.peer_port(), 29500);
  ASSERT_EQ(sample.counters_size(), 1);
  EXPECT_EQ(sample.counters(0).bytes(), 1000);
  EXPECT_EQ(sample.counters(0).wait_wire_s(), 1.5);
  EXPECT_EQ(sample.counters(0).lanes(0).state(), "active");
  EXPECT_EQ(sample.counters(0).lanes(0).retransmits(), 2);
  EXPECT_EQ(sample.counters(0).lanes(0).rtt_s(), 250e-6);

  sample = Take();
  EXPECT_EQ(sample.opened_size() + sample.counters_size() + sample.closed_size(), 0) << "nothing has changed";

  slot.bytes = 1700;
  Close(slot);
  sample = Take();
  ASSERT_EQ(sample.counters_size(), 1);
  EXPECT_EQ(sample.counters(0).bytes(), 1700) << "the last bytes are not lost";
  EXPECT_THAT(sample.closed(), ElementsAre(0xABCDu));
  EXPECT_EQ(Take().closed_size(), 0);
}

TEST_F(TelemetryReaderTest, ReusedSlotIsAnotherFlow) {
  Close(segment_.Open(0, 1));
  Take();
  segment_.Open(0, 2);
  v1::HostSample sample = Take();
  ASSERT_EQ(sample.opened_size(), 1);
  EXPECT_EQ(sample.opened(0).flow(), 2u);
  // Closed and taken again between two looks.
  segment_.Open(0, 3);
  sample = Take();
  EXPECT_THAT(sample.closed(), ElementsAre(2u));
  EXPECT_EQ(sample.opened(0).flow(), 3u);
}

TEST_F(TelemetryReaderTest, ShortFlowIsReportedWhole) {
  abi::FlowSlot& slot = segment_.Open(0, 9);
  slot.bytes = 77;
  Close(slot);
  const v1::HostSample sample = Take();
  EXPECT_EQ(sample.opened_size(), 1);
  EXPECT_EQ(sample.counters(0).bytes(), 77);
  EXPECT_THAT(sample.closed(), ElementsAre(9u));
}

TEST_F(TelemetryReaderTest, SlotBeingWrittenIsLeftAlone) {
  abi::FlowSlot& slot = segment_.Open(0, 9);
  slot.generation.fetch_add(1);
  EXPECT_EQ(Take().opened_size(), 0);
  slot.generation.fetch_add(1);
  EXPECT_EQ(Take().opened_size(), 1);
}

TEST_F(TelemetryReaderTest, NonsenseIsCountedOnceAndLeftOut) {
  segment_.Open(0, 1).family = 9;
  segment_.Open(1, 2).direction = 5;
  abi::FlowSlot& good = segment_.Open(2, 3);
  good.bytes = ~0ull;
  good.lanes[0].state = 77;
  good.lanes[1].state = static_cast<uint32_t>(abi::LaneState::kActive);
  good.lanes[1].source_port = 70000;
  v1::HostSample sample = Take();
  ASSERT_EQ(sample.opened_size(), 1);
  EXPECT_EQ(sample.counters(0).bytes(), INT64_MAX);
  EXPECT_EQ(sample.counters(0).lanes_size(), 0);
  good.bytes = 5;  // runs backwards
  Take();
  const TrafficDelta traffic = reader_->TakeTraffic();
  EXPECT_EQ(traffic.slots_invalid, 2);
  EXPECT_EQ(traffic.bytes[0], INT64_MAX);
}

TEST_F(TelemetryReaderTest, SumsOfNonsenseStayAtTheLargestNumber) {
  for (uint32_t i = 0; i < 3; ++i) {
    abi::FlowSlot& slot = segment_.Open(i, i + 1);
    slot.bytes = ~0ull;
    for (uint32_t l = 0; l < abi::kMaxLanes; ++l) {
      slot.lanes[l].state = static_cast<uint32_t>(abi::LaneState::kActive);
      slot.lanes[l].source_port = 1000 + l;
      slot.lanes[l].wire_bytes = slot.lanes[l].retransmits = slot.lanes[l].backlog_bytes = ~0ull;
    }
  }
  Take();
  const TrafficDelta traffic = reader_->TakeTraffic();
  EXPECT_EQ(traffic.bytes[0], INT64_MAX);
  EXPECT_EQ(traffic.wire_bytes[0], INT64_MAX);
  EXPECT_EQ(traffic.retransmits, INT64_MAX);
}

TEST_F(TelemetryReaderTest, BurstsAddUpAlsoWhenTheRingOverran) {
  abi::FlowSlot& slot = segment_.Open(0, 1);
  for (uint64_t i = 0; i < 10; ++i) Burst(slot, i * 1000, i * 1000 + 500, 100);
  v1::HostSample sample = Take();
  EXPECT_EQ(sample.counters(0).bursts(), 10);
  EXPECT_EQ(sample.counters(0).burst_bytes(), 1000);
  EXPECT_NEAR(sample.counters(0).burst_busy_s(), 10 * 500e-9, 1e-15);
  for (uint64_t i = 10; i < 210; ++i) Burst(slot, i * 1000, i * 1000 + 500, 100);
  sample = Take();
  EXPECT_EQ(sample.counters(0).bursts(), 210);
  EXPECT_EQ(sample.counters(0).burst_bytes(), 21000) << "lost ones count like those that were read";
  EXPECT_EQ(reader_->TakeTraffic().bursts_lost, 200 - abi::kBurstRing + 1) << "entry i is safe up to i + ring - 1";
  Burst(slot, 500'000, 400'000, 1);  // ends before it starts
  Take();
  EXPECT_EQ(reader_->TakeTraffic().bursts_lost, 1);
}

TEST_F(TelemetryReaderTest, PeriodIsFoundInBursts) {
  abi::FlowSlot& slot = segment_.Open(0, 1);
  for (uint64_t i = 1; i <= 8; ++i) Burst(slot, i * 400'000'000, i * 400'000'000 + 50'000'000, 1);
  slot.gate_held_ns = 2'500'000'000;
  slot.gate_holds = 3;
  const v1::HostSample sample = Take();
  EXPECT_NEAR(sample.counters(0).period_s(), 0.4, 1e-9);
  EXPECT_NEAR(sample.counters(0).iteration_start_s(), 3.2, 1e-9);
  EXPECT_EQ(sample.counters(0).gate_held_s(), 2.5);
  EXPECT_EQ(sample.counters(0).gate_holds(), 3);
  EXPECT_EQ(reader_->TakeTraffic().gate_held_s, 2.5);
  EXPECT_NEAR(reader_->Period().count(), 0.4, 1e-9);
}

TEST_F(TelemetryReaderTest, SendFlowsAreHandedToTheProberWhenLanesChange) {
  abi::FlowSlot& slot = segment_.Open(0, 1);
  segment_.Open(1, 2, abi::Direction::kReceive);
  Take();
  std::vector<SendFlow> flows = reader_->TakeSendFlows();
  ASSERT_THAT(flows, SizeIs(1));
  EXPECT_EQ(flows[0].flow, 1u);
  EXPECT_THAT(flows[0].lanes, ElementsAre(41001));
  slot.bytes = 1;
  Take();
  EXPECT_THAT(reader_->TakeSendFlows(), SizeIs(0));
  slot.lanes[1].source_port = 20007;
  slot.lanes[1].state = static_cast<uint32_t>(abi::LaneState::kConnecting);
  Take();
  flows = reader_->TakeSendFlows();
  ASSERT_THAT(flows, SizeIs(1));
  EXPECT_THAT(flows[0].lanes, ElementsAre(41001, 20007));
  reader_->Close();
  EXPECT_THAT(reader_->TakeClosedSendFlows(), ElementsAre(1u));
}

TEST_F(TelemetryReaderTest, TellsWhatOpenSendFlowsHaveSent) {
  segment_.Open(0, 1).bytes = 500;
  segment_.Open(1, 2, abi::Direction::kReceive).bytes = 700;
  segment_.Open(2, 3);
  Take();
  EXPECT_THAT(reader_->SentBytes(), ElementsAre(Pair(1u, 500), Pair(3u, 0)));
}

TEST_F(TelemetryReaderTest, SnapshotTellsEverythingAgain) {
  segment_.Open(0, 1).bytes = 10;
  Take();
  v1::HostSample full;
  reader_->Snapshot(&full);
  EXPECT_EQ(full.opened_size(), 1);
  EXPECT_EQ(full.counters(0).bytes(), 10);
  EXPECT_EQ(Take().opened_size(), 0);
}

TEST_F(TelemetryReaderTest, NewestEpochIsThePluginsOrAFlows) {
  segment_.Open(0, 1).policy_epoch = 4;
  Take();
  EXPECT_EQ(reader_->NewestEpoch(), 4);
  segment_.segment->process.policy_epoch = 6;
  EXPECT_EQ(reader_->NewestEpoch(), 6);
}

TEST_F(TelemetryReaderTest, EveryFlowOfAFullSegmentIsRead) {
  for (uint32_t i = 0; i < abi::kMaxFlows; ++i) segment_.Open(i, i + 1).bytes = i;
  const v1::HostSample sample = Take();
  ASSERT_EQ(sample.opened_size(), 4096);
  ASSERT_EQ(sample.counters_size(), 4096);
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(sample.counters(i).bytes(), i);
  EXPECT_EQ(reader_->open_flows(true), 4096);
}

TEST_F(TelemetryReaderTest, SlotsThatWereNeverTakenAreNotTouched) {
  segment_.Open(0, 1);
  EXPECT_EQ(Take().opened_size(), 1);
  struct stat status{};
  ASSERT_EQ(::fstat(segment_.fd.get(), &status), 0);
  EXPECT_LT(status.st_blocks * 512, 64 << 10) << "reading a hole takes memory for it";
  segment_.Open(9, 10);
  EXPECT_EQ(Take().opened_size(), 1) << "those that are taken later are read as soon as the process says so";
}

TEST_F(TelemetryReaderTest, AHostileNumberOfSlotsIsBounded) {
  segment_.Open(0, 1);
  segment_.Open(5, 2);
  segment_.segment->process.slots_used = UINT32_MAX;
  segment_.segment->header.sections[1].entry_count = UINT32_MAX;  // after it was checked
  segment_.segment->header.version = 9;
  EXPECT_EQ(map_->slots_used(), abi::kMaxFlows);
  EXPECT_EQ(Take().opened_size(), 2);
  segment_.segment->process.slots_used = 1;
  const v1::HostSample sample = Take();
  EXPECT_EQ(sample.closed_size(), 0) << "a word taken back ends no flow";
  Close(segment_.segment->flows[5]);
  EXPECT_THAT(Take().closed(), ElementsAre(2u));
}

TEST(TelemetryReader, ASegmentOfAnOlderVersionIsReadToItsEnd) {
  for (const uint32_t version : {abi::kPreviousSegmentVersion, abi::kOldestSegmentVersion}) {
    TestSegment segment("job-1", F_SEAL_SHRINK | F_SEAL_GROW, sizeof(abi::TelemetrySegmentV2));
    segment.MakeOld(version);
    const auto map = TelemetryMap::Attach(segment.Share(), {::getpid(), ::getuid()});
    ASSERT_TRUE(map) << map.error().message();
    TelemetryReader reader(**map);
    segment.Open(0, 1);
    segment.Open(255, 2).bytes = 7;
    segment.segment->header.version = abi::kSegmentVersion;  // what it says afterwards changes nothing
    segment.segment->process.slots_used = 4096;              // nor does what lies there in a segment of that version
    reader.Sample();
    v1::HostSample sample;
    reader.Collect(&sample);
    ASSERT_EQ(sample.opened_size(), 2);
    EXPECT_EQ(sample.counters(1).bytes(), 7);
    reader.Close();
  }
}

}  // namespace
}  // namespace weft::agent

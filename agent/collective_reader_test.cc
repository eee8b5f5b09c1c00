#include "agent/collective_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace weft::agent {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kAllReduce = static_cast<uint32_t>(abi::Operation::kAllReduce);
constexpr uint32_t kPointToPoint = static_cast<uint32_t>(abi::Operation::kPointToPoint);

class CollectiveReaderTest : public ::testing::Test {
 protected:
  CollectiveReaderTest() {
    Open(first_, 99, 3, "dp\"0");
    Open(second_, 98, 1, "tp0");
    EXPECT_EQ(Told().delays_size(), 0) << "seen from here on";
  }

  static void Open(abi::CommunicatorSlot& slot, uint64_t comm, int rank, const char* name) {
    slot.comm = comm;
    slot.rank = rank;
    slot.ranks = 4;
    std::strcpy(slot.name, name);
    slot.generation.store(2);
    slot.state.store(static_cast<uint32_t>(abi::SlotState::kOpen));
  }

  /// The next operation of the process: nothing for so long, then one that takes so long.
  void Finish(abi::CommunicatorSlot& slot, uint64_t idle_ms, uint64_t took_ms, uint64_t bytes = 4096,
              uint32_t operation = kAllReduce) {
    const uint64_t number = slot.recent_count.load();
    abi::OperationRecord& record = slot.recent[number % abi::kRecentOperations];
    record.operation.store(operation);
    record.sequence.store(number + skipped_);
    record.bytes.store(bytes);
    now_ns_ += idle_ms * kMs;
    record.start_ns.store(now_ns_);
    record.waits_ns[static_cast<uint32_t>(abi::Wait::kReceive)].store(took_ms * kMs / 2);
    now_ns_ += took_ms * kMs;
    record.end_ns.store(now_ns_);
    slot.recent_count.store(number + 1);
  }

  v1::HostSample Told() {
    v1::HostSample sample;
    reader_.AppendDelays(&sample);
    return sample;
  }

  std::unique_ptr<abi::Observations> observations_ = std::make_unique<abi::Observations>();
  abi::CommunicatorSlot& first_ = observations_->communicators[5];
  abi::CommunicatorSlot& second_ = observations_->communicators[2];
  uint64_t now_ns_ = 1000 * kMs, skipped_ = 0;
  CollectiveReader reader_{observations_.get(), "job-1", 7};
};

TEST_F(CollectiveReaderTest, TellsOnceOfACollectiveThatTookMuchLongerThanTheSameDid) {
  for (int i = 0; i < 5; ++i) Finish(first_, 100, 40);
  Finish(first_, 100, 1040);
  const v1::HostSample sample = Told();
  ASSERT_EQ(sample.delays_size(), 1);
  const v1::CollectiveDelay& delay = sample.delays(0);
  EXPECT_EQ(delay.job_id(), "job-1");
  EXPECT_EQ(delay.comm(), 99u);
  EXPECT_EQ(delay.name(), "dp?0");
  EXPECT_EQ(delay.operation(), "allreduce");
  EXPECT_EQ(delay.sequence(), 5u);
  EXPECT_EQ(delay.rank(), 3);
  EXPECT_EQ(delay.ranks(), 4);
  EXPECT_EQ(delay.job_rank(), 7);
  EXPECT_DOUBLE_EQ(delay.waited_s(), 1.0);
  EXPECT_EQ(delay.late_s(), 0);
  EXPECT_DOUBLE_EQ(delay.receive_wait_s(), 0.52);
  EXPECT_EQ(Told().delays_size(), 0) << "told already";
}

TEST_F(CollectiveReaderTest, TellsOfACollectiveThatBeganMuchLaterThanUsual) {
  for (int i = 0; i < 6; ++i) Finish(first_, 100, 40);
  Finish(first_, 1100, 40);
  const v1::HostSample sample = Told();
  ASSERT_EQ(sample.delays_size(), 1);
  EXPECT_DOUBLE_EQ(sample.delays(0).late_s(), 1.0);
  EXPECT_EQ(sample.delays(0).waited_s(), 0);
}

TEST_F(CollectiveReaderTest, WhoWaitedInAnotherCommunicatorIsNotLate) {
  for (int i = 0; i < 6; ++i) {
    Finish(second_, 10, 10);
    Finish(first_, 10, 10);
  }
  Told();
  Finish(second_, 10, 1010);  // for somebody else
  EXPECT_EQ(Told().delays_size(), 1);
  Finish(first_, 10, 10);  // so late to the other: also where that is read later
  EXPECT_EQ(Told().delays_size(), 0);
}

TEST_F(CollectiveReaderTest, LongIterationsHideNoDelay) {
  for (int i = 0; i < 7; ++i) Finish(first_, 3000, 40);
  Finish(first_, 5900, 40);
  const v1::HostSample sample = Told();
  ASSERT_EQ(sample.delays_size(), 1);
  EXPECT_NEAR(sample.delays(0).late_s(), 2.9, 1e-9);
}

TEST_F(CollectiveReaderTest, ComputationBeforeTheFirstBucketIsUsual) {
  for (int iteration = 0; iteration < 8; ++iteration) {
    for (int bucket = 0; bucket < 4; ++bucket) Finish(first_, bucket == 0 ? 1000 : 1, 10);
  }
  EXPECT_EQ(Told().delays_size(), 0);
}

// More buckets than the ring holds three iterations of: the long gaps are remembered beyond it, for a minute.
TEST_F(CollectiveReaderTest, SoItIsWithManyBuckets) {
  int told = 0;
  for (int iteration = 0; iteration < 8; ++iteration) {
    for (int bucket = 0; bucket < 16; ++bucket) Finish(first_, bucket == 0 ? 1000 : 1, 10);
    const int now = Told().delays_size();
    if (iteration >= 4) told += now;
  }
  EXPECT_EQ(told, 0);
  now_ns_ += 2'000 * kMs;
  Finish(first_, 1000, 10);
  ASSERT_EQ(Told().delays_size(), 1) << "longer than that is late";
}

TEST_F(CollectiveReaderTest, WaitsInTwoCommunicatorsAtOnceExcuseOnce) {
  for (int i = 0; i < 6; ++i) {
    Finish(second_, 10, 10);
    Finish(first_, 10, 10);
  }
  Told();
  Finish(second_, 0, 500);
  now_ns_ += 500 * kMs;
  Finish(first_, 10, 10);
  const auto told = Told();
  ASSERT_EQ(told.delays_size(), 2);
  EXPECT_NEAR(told.delays(told.delays(0).late_known() && told.delays(0).late_s() > 0 ? 0 : 1).late_s(), 0.5, 0.1);
}

TEST_F(CollectiveReaderTest, SeveralShortWaitsElsewhereExcuseToo) {
  for (int i = 0; i < 6; ++i) {
    Finish(second_, 10, 10);
    Finish(first_, 10, 10);
  }
  Told();
  for (int i = 0; i < 6; ++i) Finish(second_, 0, 200);  // each less than is told
  Finish(first_, 10, 10);
  EXPECT_EQ(Told().delays_size(), 0);
}

TEST_F(CollectiveReaderTest, WhileTheProfilerWasOffNobodyWasIdle) {
  for (int i = 0; i < 6; ++i) Finish(first_, 100, 40);
  Told();
  now_ns_ += 60'000 * kMs;
  skipped_ = 7;  // numbers that nobody recorded
  Finish(first_, 100, 40);
  EXPECT_EQ(Told().delays_size(), 0);
}

TEST_F(CollectiveReaderTest, EntriesMayBeInAnotherOrderThanTheyBegan) {
  for (int i = 0; i < 8; ++i) Finish(first_, 100, 400);
  Told();
  Finish(first_, 1100, 400);
  Finish(first_, 100, 400);
  abi::OperationRecord &a = first_.recent[8], &b = first_.recent[9];
  for (auto field : {&abi::OperationRecord::sequence, &abi::OperationRecord::start_ns, &abi::OperationRecord::end_ns}) {
    const uint64_t kept = (a.*field).load();
    (a.*field).store((b.*field).load());
    (b.*field).store(kept);
  }
  const v1::HostSample sample = Told();
  ASSERT_EQ(sample.delays_size(), 1);
  EXPECT_EQ(sample.delays(0).sequence(), 8u);
  EXPECT_DOUBLE_EQ(sample.delays(0).late_s(), 1.0);
}

TEST_F(CollectiveReaderTest, WhatIsUsualIsNotADelay) {
  for (int i = 0; i < 20; ++i) Finish(first_, 500, 900);
  Finish(first_, 700, 1400);  // half a second more, but not twice as long
  for (int i = 0; i < 5; ++i) Finish(first_, 1, 1, 8);
  Finish(first_, 200, 200, 8);       // much longer, but short
  Finish(first_, 1, 1400, 1 << 20);  // the first of its size
  Finish(first_, 1, 5000, 4096, kPointToPoint);
  EXPECT_EQ(Told().delays_size(), 0);
}

TEST_F(CollectiveReaderTest, RingThatHasComeRoundIsReadFromWhatItHolds) {
  for (uint32_t i = 0; i < 3 * abi::kRecentOperations; ++i) Finish(first_, 1, i % 8 == 0 ? 2000 : 10);
  EXPECT_EQ(Told().delays_size(), static_cast<int>(abi::kRecentOperations) / 8);
}

TEST_F(CollectiveReaderTest, NonsenseIsPassedOver) {
  for (int i = 0; i < 5; ++i) Finish(first_, 10, 10);
  Finish(first_, 0, (~uint64_t{0} / 4) / kMs);
  Finish(first_, 0, 2000, 4096, 4'000'000'000);
  EXPECT_EQ(Told().delays_size(), 0);
  first_.recent_count.store(~uint64_t{0} - 3);
  Told();
  first_.recent_count.store(3);
  Told();
  first_.rank = -1;
  EXPECT_EQ(Told().delays_size(), 0) << "whose rank nobody knows";
  CollectiveReader none(nullptr, "job-1", -1);
  v1::HostSample sample;
  none.AppendDelays(&sample);
  EXPECT_EQ(sample.ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace weft::agent

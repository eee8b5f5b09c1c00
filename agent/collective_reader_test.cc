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
    slot_.comm = 99;
    slot_.rank = 3;
    std::strcpy(slot_.name, "dp\"0");
    slot_.generation.store(2);
    slot_.state.store(static_cast<uint32_t>(abi::SlotState::kOpen));
    EXPECT_EQ(Slow().slow_size(), 0) << "seen from here on";
  }

  void Finish(uint64_t took_ns, uint64_t bytes = 4096, uint32_t operation = kAllReduce) {
    const uint64_t number = slot_.recent_count.load();
    abi::OperationRecord& record = slot_.recent[number % abi::kRecentOperations];
    record.operation.store(operation);
    record.sequence.store(number);
    record.bytes.store(bytes);
    record.start_ns.store(1000 * kMs * (number + 1));
    record.waits_ns[static_cast<uint32_t>(abi::Wait::kReceive)].store(took_ns / 2);
    record.end_ns.store(1000 * kMs * (number + 1) + took_ns);
    slot_.recent_count.store(number + 1);
  }

  v1::HostSample Slow() {
    v1::HostSample sample;
    reader_.AppendSlow(&sample);
    return sample;
  }
  v1::HostSample Ranks() {
    v1::HostSample sample;
    reader_.AppendRanks(&sample);
    return sample;
  }

  std::unique_ptr<abi::Observations> observations_ = std::make_unique<abi::Observations>();
  abi::CommunicatorSlot& slot_ = observations_->communicators[5];
  CollectiveReader reader_{observations_.get(), "job-1", 7};
};

TEST_F(CollectiveReaderTest, TellsOnceWhatTookMuchLongerThanTheSameDid) {
  for (int i = 0; i < 4; ++i) Finish(40 * kMs);
  Finish(1040 * kMs);
  const v1::HostSample sample = Slow();
  ASSERT_EQ(sample.slow_size(), 1);
  const v1::SlowCollective& slow = sample.slow(0);
  EXPECT_EQ(slow.job_id(), "job-1");
  EXPECT_EQ(slow.comm(), 99u);
  EXPECT_EQ(slow.operation(), "allreduce");
  EXPECT_EQ(slow.sequence(), 4u);
  EXPECT_EQ(slow.rank(), 3);
  EXPECT_DOUBLE_EQ(slow.took_s(), 1.04);
  EXPECT_DOUBLE_EQ(slow.usual_s(), 0.04);
  EXPECT_DOUBLE_EQ(slow.receive_wait_s(), 0.52);
  EXPECT_EQ(Slow().slow_size(), 0) << "told already";
}

TEST_F(CollectiveReaderTest, WhatIsUsualIsNotSlow) {
  for (int i = 0; i < 20; ++i) Finish(900 * kMs);
  Finish(1400 * kMs);  // half a second more, but not twice as long
  for (int i = 0; i < 5; ++i) Finish(1 * kMs, 8);
  Finish(200 * kMs, 8);  // much longer, but short
  Finish(1400 * kMs, 1 << 20);  // the first of its size
  Finish(5000 * kMs, 4096, kPointToPoint);
  EXPECT_EQ(Slow().slow_size(), 0);
}

TEST_F(CollectiveReaderTest, RingThatHasComeRoundIsReadFromWhatItHolds) {
  for (uint32_t i = 0; i < 3 * abi::kRecentOperations; ++i) Finish(i % 8 == 0 ? 2000 * kMs : 10 * kMs);
  EXPECT_EQ(Slow().slow_size(), static_cast<int>(abi::kRecentOperations) / 8);
}

TEST_F(CollectiveReaderTest, RanksAreListedOnceTimedAndSeldomChange) {
  for (int i = 0; i < 3; ++i) Finish(33 * kMs);
  EXPECT_EQ(Ranks().communicator_ranks_size(), 0) << "too few";
  Finish(33 * kMs);
  const v1::HostSample first = Ranks();
  ASSERT_EQ(first.communicator_ranks_size(), 1);
  EXPECT_EQ(first.communicator_ranks(0).name(), "dp?0");
  EXPECT_EQ(first.communicator_ranks(0).rank(), 3);
  EXPECT_EQ(first.communicator_ranks(0).job_rank(), 7);
  EXPECT_DOUBLE_EQ(first.communicator_ranks(0).usual_s(), 0.03125);
  for (int i = 0; i < 30; ++i) Finish(55 * kMs);
  EXPECT_EQ(Ranks().SerializeAsString(), first.SerializeAsString());
  for (int i = 0; i < 30; ++i) Finish(80 * kMs);
  EXPECT_DOUBLE_EQ(Ranks().communicator_ranks(0).usual_s(), 0.0625);
}

TEST_F(CollectiveReaderTest, NonsenseIsPassedOver) {
  for (int i = 0; i < 4; ++i) Finish(10 * kMs);
  Finish(~uint64_t{0} / 2);
  Finish(2000 * kMs, 4096, 4'000'000'000);
  EXPECT_EQ(Slow().slow_size(), 0);
  slot_.recent_count.store(~uint64_t{0} - 3);
  Slow();
  Ranks();
  slot_.rank = -1;
  EXPECT_EQ(Ranks().communicator_ranks_size(), 0) << "whose rank nobody knows";
  CollectiveReader none(nullptr, "job-1", -1);
  v1::HostSample sample;
  none.AppendSlow(&sample);
  none.AppendRanks(&sample);
  EXPECT_EQ(sample.ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace weft::agent

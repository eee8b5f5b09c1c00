#include "runtime/bucket_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace weft::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// An all-reduce with ranks that all hold what this one holds, and a record of the buckets in order of arrival.
class EqualRanks {
 public:
  explicit EqualRanks(int ranks) : ranks_(ranks) {}

  BucketExchange::Reduce reduce() {
    return [this](std::span<float> data) -> Status {
      for (float& value : data) value *= static_cast<float>(ranks_);
      const std::lock_guard lock(mutex_);
      sizes_.push_back(data.size());
      arrived_.notify_all();
      return Ok();
    };
  }

  /// Blocks until `count` buckets were reduced; their sizes.
  std::vector<size_t> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return sizes_.size() >= count; });
    return sizes_;
  }

 private:
  int ranks_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<size_t> sizes_;
};

TEST(PlanBuckets, FillsUpToTheSize) {
  const std::vector<int64_t> elements = {2, 2, 3, 1};
  EXPECT_THAT(PlanBuckets(elements, Bytes(16)), ElementsAre(Bucket{0, 2, 0, 4}, Bucket{2, 2, 4, 4}));
}

TEST(PlanBuckets, ALargeParameterIsABucketOfItsOwn) {
  const std::vector<int64_t> elements = {1, 100, 1};
  EXPECT_THAT(PlanBuckets(elements, Bytes(16)),
              ElementsAre(Bucket{0, 1, 0, 1}, Bucket{1, 1, 1, 100}, Bucket{2, 1, 101, 1}));
}

TEST(PlanBuckets, OneBucketHoldsAllWhenLargeEnough) {
  const std::vector<int64_t> elements = {5, 6, 7};
  EXPECT_THAT(PlanBuckets(elements, Bytes(72)), ElementsAre(Bucket{0, 3, 0, 18}));
  EXPECT_EQ(PlanBuckets(elements, Bytes(71)).size(), 2u);
}

TEST(BucketExchange, EveryValueIsTheMeanOverTheRanks) {
  // Equal ranks: the mean is what each rank had, exactly, since 4 is a power of two.
  EqualRanks ranks(4);
  const std::vector<int64_t> elements = {3, 2};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(12), 4, memory, ranks.reduce());
  exchange.Begin();
  exchange.SetContribution(5.5f, false);
  for (size_t i = 0; i < 2; ++i) {
    std::fill(exchange.gradient(i).begin(), exchange.gradient(i).end(), 1.25f + static_cast<float>(i));
    exchange.GradientReady(i);
  }
  const auto agreed = exchange.Wait();
  ASSERT_TRUE(agreed) << agreed.error().message();
  EXPECT_EQ(agreed->loss, 5.5f);
  EXPECT_FALSE(agreed->stop);
  EXPECT_THAT(exchange.gradient(0), Each(1.25f));
  EXPECT_THAT(exchange.gradient(1), Each(2.25f));
}

TEST(BucketExchange, ABucketIsReducedWhileLaterGradientsAreStillMissing) {
  EqualRanks ranks(2);
  const std::vector<int64_t> elements = {4, 4, 4};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(16), 2, memory, ranks.reduce());
  exchange.Begin();
  exchange.SetContribution(0, false);
  exchange.GradientReady(0);
  EXPECT_THAT(ranks.WaitFor(1), ElementsAre(4));  // would never return if buckets waited for the last gradient
  exchange.GradientReady(1);
  exchange.GradientReady(2);
  EXPECT_TRUE(exchange.Wait());
}

TEST(BucketExchange, BucketsGoInTheirOrderWhateverTheOrderOfGradients) {
  EqualRanks ranks(2);
  const std::vector<int64_t> elements = {1, 2, 3};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(4), 2, memory, ranks.reduce());
  exchange.Begin();
  exchange.SetContribution(0, false);
  for (const size_t i : {2u, 1u, 0u}) exchange.GradientReady(i);
  ASSERT_TRUE(exchange.Wait());
  EXPECT_THAT(ranks.WaitFor(3), ElementsAre(1, 2, 3 + 2));  // loss and stop ride on the last
}

TEST(BucketExchange, ABucketIsReadyWithItsLastGradientAndThoseOfTheBucketsBefore) {
  const std::vector<int64_t> elements = {1, 1, 1};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(4), 1, memory, nullptr);
  const SystemClock clock;
  exchange.Begin();
  exchange.SetContribution(0, false);
  exchange.GradientReady(0);
  const Seconds first = clock.Now();
  exchange.GradientReady(2);  // waits for bucket 1
  const Seconds second = clock.Now();
  exchange.GradientReady(1);
  ASSERT_TRUE(exchange.Wait());
  ASSERT_EQ(exchange.ready().size(), 3u);
  EXPECT_LE(exchange.ready()[0], first);
  EXPECT_GE(exchange.ready()[1], second);
  EXPECT_EQ(exchange.ready()[2], exchange.ready()[1]);
}

TEST(BucketExchange, OneRankThatWishesToStopStopsAll) {
  // Seven other ranks contribute 0.
  const std::vector<int64_t> elements = {1};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(4), 8, memory, [](std::span<float>) { return Ok(); });
  exchange.Begin();
  exchange.SetContribution(8, true);
  exchange.GradientReady(0);
  const auto agreed = exchange.Wait();
  ASSERT_TRUE(agreed);
  EXPECT_TRUE(agreed->stop);
  EXPECT_EQ(agreed->loss, 1);
}

TEST(BucketExchange, GradientsAreZeroAtTheStartOfEachStep) {
  EqualRanks ranks(2);
  const std::vector<int64_t> elements = {2, 2};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(8), 2, memory, ranks.reduce());
  for (int step = 0; step < 100; ++step) {
    exchange.Begin();
    ASSERT_THAT(exchange.gradient(0), Each(0.0f));
    exchange.SetContribution(static_cast<float>(step), false);
    for (size_t i = 0; i < 2; ++i) {
      exchange.gradient(i)[0] += static_cast<float>(step);
      exchange.GradientReady(i);
    }
    const auto agreed = exchange.Wait();
    ASSERT_TRUE(agreed);
    ASSERT_EQ(agreed->loss, static_cast<float>(step));
    ASSERT_EQ(exchange.gradient(1)[0], static_cast<float>(step));
  }
}

TEST(BucketExchange, AFailedReductionEndsTheStepAndIsNamed) {
  int calls = 0;
  const auto fails = [&](std::span<float>) -> Status {
    return ++calls == 2 ? Status(Fail(Code::kUnavailable, "peer rank 3 is gone")) : Ok();
  };
  const std::vector<int64_t> elements = {1, 1, 1};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(4), 4, memory, fails);
  exchange.Begin();
  exchange.SetContribution(0, false);
  for (size_t i = 0; i < 3; ++i) exchange.GradientReady(i);
  const auto agreed = exchange.Wait();
  ASSERT_FALSE(agreed);
  EXPECT_EQ(agreed.error().code(), Code::kUnavailable);
  EXPECT_EQ(agreed.error().message(), "all-reduce of bucket 1: peer rank 3 is gone");
}

TEST(BucketExchange, WithoutAReductionTheValuesAreTheRanksOwn) {
  const std::vector<int64_t> elements = {2};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(8), 4, memory, nullptr);
  exchange.Begin();
  exchange.SetContribution(3, true);
  exchange.gradient(0)[1] = 7;
  exchange.GradientReady(0);
  const auto agreed = exchange.Wait();
  ASSERT_TRUE(agreed);
  EXPECT_EQ(agreed->loss, 3);
  EXPECT_EQ(exchange.gradient(0)[1], 7);
}

TEST(BucketExchange, EndsWhileAStepIsIncomplete) {
  EqualRanks ranks(2);
  const std::vector<int64_t> elements = {1, 1};
  std::vector<float> memory(BucketExchange::MemoryElements(elements), -1.0f);
  BucketExchange exchange(elements, Bytes(4), 2, memory, ranks.reduce());
  exchange.Begin();
  exchange.GradientReady(0);
}  // the destructor returns

}  // namespace
}  // namespace weft::runtime

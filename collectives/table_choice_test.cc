#include "collectives/table_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "collectives/testing/ranks.h"

namespace weft::collectives {
namespace {

using planner::Algorithm;
using planner::AlgorithmSpec;
using planner::Collective;
using testing::RunRanks;
using ::testing::HasSubstr;

AlgorithmSpec Chosen(const std::string& table, int world, int64_t bytes, Collective collective = Collective::kAllReduce) {
  const auto choice = TableChoice::Parse(table, world);
  EXPECT_TRUE(choice) << choice.error().message();
  return choice ? choice->For(collective, Bytes(bytes)) : AlgorithmSpec{};
}

TEST(TableChoice, FirstEntryThatFitsDecidesAndTheRestIsTheRing) {
  const std::string table = "1;4:allreduce:0-65535:halving-doubling:-:0;4:allreduce:65536-1048575:hierarchical.2:-:0";
  EXPECT_EQ(Chosen(table, 4, 1).algorithm, Algorithm::kHalvingDoubling);
  EXPECT_EQ(Chosen(table, 4, 65535).algorithm, Algorithm::kHalvingDoubling);
  EXPECT_EQ(Chosen(table, 4, 65536), (AlgorithmSpec{Algorithm::kHierarchical, 2}));
  EXPECT_EQ(Chosen(table, 4, 1 << 20), AlgorithmSpec{});
  EXPECT_EQ(Chosen(table, 8, 1), AlgorithmSpec{}) << "another communicator's";
  EXPECT_EQ(Chosen(table, 4, 1, Collective::kBroadcast), AlgorithmSpec{});
  EXPECT_EQ(Chosen("", 4, 1), AlgorithmSpec{});
}

TEST(TableChoice, EntriesThatOnlyNcclCanRunArePassedOver) {
  EXPECT_EQ(Chosen("1;*:allreduce:0-:nvls:-:0;*:allreduce:0-:tree:ll:0", 4, 1).algorithm, Algorithm::kTree);
  EXPECT_EQ(Chosen("1;4x2:allreduce:0-:tree:ll:0", 4, 1), AlgorithmSpec{}) << "how many nodes there are nobody knows";
}

TEST(TableChoice, AnEntryForACollectiveThatItsAlgorithmDoesNotDoIsPassedOver) {
  const std::string table = "1;*:allgather:0-:tree:ll:0;*:allgather:0-:halving-doubling:-:0;*:allreduce:0-:tree:-:0";
  EXPECT_EQ(Chosen(table, 4, 1, Collective::kAllGather).algorithm, Algorithm::kHalvingDoubling);
  EXPECT_EQ(Chosen(table, 4, 1).algorithm, Algorithm::kTree);
  EXPECT_EQ(Chosen("1;*:alltoall:0-:ps.2:-:0", 4, 1, Collective::kAllToAll), AlgorithmSpec{});
}

TEST(TableChoice, MistakesAreNamedWithTheirPlace) {
  const auto garbled = TableChoice::Parse("1;4:allreduce:0-:star:-:0", 4);
  ASSERT_FALSE(garbled);
  EXPECT_EQ(garbled.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(garbled.error().message(), HasSubstr("WEFT_COLLECTIVES: offset "));
  const auto odd = TableChoice::Parse("1;*:allreduce:0-65535:ring:-:0;*:allreduce:0-:torus.3:-:0", 4);
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(odd.error().message(), HasSubstr("WEFT_COLLECTIVES: entry 2: "));
}

/// What every rank holds after an all-reduce of `count` floats whose sums depend on the order of additions.
std::vector<std::vector<float>> Sums(const std::string& table, int ranks, size_t count) {
  std::vector<std::vector<float>> sums(static_cast<size_t>(ranks));
  std::mutex mutex;
  RunRanks(ranks, [&](Communicator& communicator) {
    std::vector<float> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = 1.0f / static_cast<float>(1 + i % 977 + 31 * static_cast<size_t>(communicator.rank().value()));
    const Status status = communicator.AllReduce(data);
    ASSERT_TRUE(status) << status.error().message();
    const std::lock_guard lock(mutex);
    sums[static_cast<size_t>(communicator.rank().value())] = std::move(data);
  }, {.communicator = {.slice = Bytes(4 << 10), .table = table}});
  return sums;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(TableChoice, CommunicatorRunsTheTablesAlgorithmWithTheSameBitsOnAllRanks) {
  constexpr size_t kCount = 10'007;
  const auto ring = Sums("", 4, kCount);
  EXPECT_TRUE(SameBits(ring[0], Sums("1;4:allreduce:0-:ring:-:0", 4, kCount)[0]));
  EXPECT_TRUE(SameBits(ring[0], Sums("1;4:allreduce:0-4096:tree:-:0", 4, kCount)[0])) << "larger than the entry's sizes";
  for (const std::string algorithm : {"tree", "halving-doubling", "hierarchical.2", "direct", "torus.2", "ps.2"}) {
    const std::string table = "1;4:allreduce:0-:" + algorithm + ":-:0";
    const auto sums = Sums(table, 4, kCount);
    for (const auto& rank : sums) EXPECT_TRUE(SameBits(rank, sums[0])) << algorithm;
    EXPECT_TRUE(SameBits(sums[0], Sums(table, 4, kCount)[0])) << algorithm << ": another run, other bits";
    for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(sums[0][i], ring[0][i], 1e-5f) << algorithm << " at " << i;
  }
}

// Four numbers in four parts: a ring adds each part in another order than halving-doubling, which adds neighbours first.
TEST(TableChoice, TheTablesAlgorithmAddsInItsOwnOrder) {
  EXPECT_FALSE(SameBits(Sums("", 4, 1000)[0], Sums("1;4:allreduce:0-:halving-doubling:-:0", 4, 1000)[0]));
}

}  // namespace
}  // namespace weft::collectives

#include "collectives/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "collectives/program.h"
#include "collectives/testing/ranks.h"
#include "planner/collectives/ring.h"

namespace weft::collectives {
namespace {

using planner::BufferKind;
using planner::Collective;
using planner::Schedule;
using planner::StepKind;
using testing::RanksOptions;
using testing::RunRanks;
using ::testing::HasSubstr;

int32_t ValueOf(int rank, int64_t position) {
  return static_cast<int32_t>((position * 7919 + rank * 104729 + position / 13) % 30011);
}

/// What `rank` puts in, and what it must get out, written down from the meaning of each collective alone.
struct Expectation {
  std::vector<int32_t> input;
  std::vector<int32_t> output;
};

Expectation Expected(Collective collective, int ranks, int rank, int64_t count) {
  const auto begin = [&](int r) { return ChunkBegin(r, count, ranks); };
  const auto sum = [&](int64_t position) {
    int32_t total = 0;
    for (int r = 0; r < ranks; ++r) total += ValueOf(r, position);
    return total;
  };
  Expectation result;
  int64_t from = 0, to = count;
  if (collective == Collective::kAllGather) from = begin(rank), to = begin(rank + 1);
  for (int64_t i = from; i < to; ++i) result.input.push_back(ValueOf(rank, i));
  from = 0, to = count;
  if (collective == Collective::kReduceScatter) from = begin(rank), to = begin(rank + 1);
  if (collective == Collective::kSendRecv && rank == 0) to = 0;
  for (int64_t i = from; i < to; ++i) {
    switch (collective) {
      case Collective::kAllReduce:
      case Collective::kReduceScatter: result.output.push_back(sum(i)); break;
      case Collective::kBroadcast:
      case Collective::kSendRecv: result.output.push_back(ValueOf(0, i)); break;
      case Collective::kAllGather: {
        int owner = 0;
        while (begin(owner + 1) <= i) ++owner;
        result.output.push_back(ValueOf(owner, i));
        break;
      }
      case Collective::kAllToAll: {
        const int64_t block = count / ranks;
        result.output.push_back(ValueOf(static_cast<int>(i / block), rank * block + i % block));
        break;
      }
    }
  }
  return result;
}

void RunAndCompare(Communicator& communicator, const Schedule& schedule, int64_t count) {
  const int rank = communicator.rank().value();
  const auto expected = Expected(schedule.collective, communicator.world(), rank, count);
  std::vector<int32_t> output(expected.output.size(), -1);
  const auto status =
      communicator.Run(schedule, DataType::kInt32, count, expected.input.data(), output.data());
  ASSERT_TRUE(status) << status.error().message();
  ASSERT_TRUE(output == expected.output) << planner::CollectiveName(schedule.collective) << " of " << count
                                         << " at rank " << rank << " of " << communicator.world();
}

class AllCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllCollectives, ::testing::Values(1, 2, 3, 4, 5));

TEST_P(AllCollectives, EveryElementIsRightAtOddSizes) {
  const int ranks = GetParam();
  RunRanks(ranks, [&](Communicator& communicator) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                        Collective::kAllToAll, Collective::kBroadcast, Collective::kSendRecv}) {
      if (collective == Collective::kSendRecv && ranks != 2) continue;
      const auto schedule = planner::RingSchedule(collective, ranks);
      ASSERT_TRUE(schedule) << schedule.error().message();
      for (const int64_t count : {0, 1, 3, 100003, 1}) {
        RunAndCompare(communicator, *schedule, collective == Collective::kAllToAll ? count * ranks : count);
      }
    }
  });
}

TEST(Communicator, AMillionOddElementsAreRightInSmallAndLargeSlices) {
  for (const int64_t slice : {4100, 512 << 10}) {
    RunRanks(3, [&](Communicator& communicator) {
      RunAndCompare(communicator, *planner::RingSchedule(Collective::kAllReduce, 3), 1000003);
      RunAndCompare(communicator, *planner::RingSchedule(Collective::kReduceScatter, 3), 1000003);
      RunAndCompare(communicator, *planner::RingSchedule(Collective::kBroadcast, 3, RankId(0)), 1000003);
    }, {.communicator = {.slice = Bytes(slice)}});
  }
}

TEST(Communicator, SlicesOfOneElementWork) {
  RunRanks(4, [&](Communicator& communicator) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
      RunAndCompare(communicator, *planner::RingSchedule(collective, 4), 203);
    }
  }, {.communicator = {.slice = Bytes(4)}});
}

TEST(Communicator, EveryTableVersionCarriesAnAllReduce) {
  for (int version = 6; version <= 12; ++version) {
    RunRanks(2, [&](Communicator& communicator) {
      RunAndCompare(communicator, *planner::RingSchedule(Collective::kAllReduce, 2), 5001);
    }, {.net_version = version, .communicator = {.slice = Bytes(1024)}});
  }
}

#ifdef WEFT_NET_PLUGIN
TEST(Communicator, OurOwnPluginCarriesEveryCollectiveThroughEveryTable) {
  for (const int version : {8, 9, 10, 11}) {
    RunRanks(3, [&](Communicator& communicator) {
      for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                          Collective::kAllToAll, Collective::kBroadcast}) {
        RunAndCompare(communicator, *planner::RingSchedule(collective, 3), 30003);
      }
    }, {.plugin = WEFT_NET_PLUGIN, .net_version = version, .communicator = {.slice = Bytes(16 << 10)}});
  }
}
#endif

TEST(Communicator, SumsOfFloatsAreBitIdenticalFromRunToRun) {
  std::vector<std::vector<float>> results(2);
  for (auto& result : results) {
    RunRanks(4, [&](Communicator& communicator) {
      std::vector<float> data(10007);
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = 1.0f / static_cast<float>(ValueOf(communicator.rank().value(), static_cast<int64_t>(i)) + 1);
      }
      ASSERT_TRUE(communicator.AllReduce(data));
      if (communicator.rank() == RankId(3)) result = data;
    }, {.communicator = {.slice = Bytes(1000)}});
  }
  ASSERT_EQ(results[0].size(), 10007u);
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)), 0);
}

TEST(Communicator, AllReduceAndBroadcastWorkInPlaceAndCountTheirBytes) {
  RunRanks(4, [](Communicator& communicator) {
    const int rank = communicator.rank().value();
    std::vector<float> data(4000, static_cast<float>(rank + 1));
    ASSERT_TRUE(communicator.AllReduce(data));
    EXPECT_EQ(data, std::vector<float>(4000, 10.0f));
    // 2 (n-1)/n of the buffer.
    EXPECT_EQ(communicator.bytes_sent(), Bytes(4000 * 4 * 3 / 2));
    for (int root = 0; root < 4; ++root) {
      data.assign(777, static_cast<float>(rank));
      ASSERT_TRUE(communicator.Broadcast(data, RankId(root)));
      EXPECT_EQ(data, std::vector<float>(777, static_cast<float>(root)));
    }
    ASSERT_TRUE(communicator.Barrier());
    communicator.Forget(data.data(), Bytes(777 * 4));
  });
}

TEST(Communicator, AllToAllMayOverlapItsInput) {
  RunRanks(4, [](Communicator& communicator) {
    const auto expected = Expected(Collective::kAllToAll, 4, communicator.rank().value(), 400);
    std::vector<int32_t> data = expected.input;
    ASSERT_TRUE(communicator.Run(*planner::RingSchedule(Collective::kAllToAll, 4), DataType::kInt32, 400, data.data(),
                                 data.data()));
    EXPECT_EQ(data, expected.output);
  });
}

// Recursive doubling, written by hand: in round k each rank swaps its sum with the rank whose number differs in bit k.
Schedule RecursiveDoubling(int ranks) {
  Schedule schedule{.collective = Collective::kAllReduce, .algorithm = "recursive doubling", .chunk_count = 1};
  schedule.ranks.resize(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    auto& steps = schedule.ranks[static_cast<size_t>(rank)];
    steps.push_back(
        {.kind = StepKind::kCopy, .source = {BufferKind::kInput, 0}, .destination = {BufferKind::kOutput, 0}});
    StepId whole(0);
    int32_t round = 0;
    for (int bit = 1; bit < ranks; bit <<= 1, ++round) {
      const int32_t at = static_cast<int32_t>(steps.size());
      const RankId peer(rank ^ bit);
      steps.push_back({.kind = StepKind::kSend, .peer = peer, .source = {BufferKind::kOutput, 0}, .needs = {whole}});
      steps.push_back({.kind = StepKind::kRecv, .peer = peer, .destination = {BufferKind::kScratch, round}});
      steps.push_back({.kind = StepKind::kReduce, .source = {BufferKind::kScratch, round},
                       .destination = {BufferKind::kOutput, 0}, .needs = {StepId(at), StepId(at + 1)}});
      whole = StepId(at + 2);
    }
    schedule.scratch_chunks = round;
  }
  return schedule;
}

TEST(Communicator, AnotherAlgorithmNeedsNoNewCode) {
  const Schedule schedule = RecursiveDoubling(4);
  ASSERT_TRUE(planner::ValidateSchedule(schedule));
  RunRanks(4, [&](Communicator& communicator) {
    RunAndCompare(communicator, schedule, 3);
    RunAndCompare(communicator, schedule, 50021);
    RunAndCompare(communicator, *planner::RingSchedule(Collective::kAllReduce, 4), 50021);  // connects more pairs
  }, {.communicator = {.slice = Bytes(4096)}});
}

TEST(Communicator, ATwoRankExchangeWorksInBothListOrders) {
  Schedule swap{.collective = Collective::kAllToAll, .algorithm = "swap", .chunk_count = 2};
  swap.ranks.resize(2);
  for (int rank = 0; rank < 2; ++rank) {  // the receive stands before the send: order between pairs is no order
    swap.ranks[static_cast<size_t>(rank)] = {
        {.kind = StepKind::kRecv, .peer = RankId(1 - rank), .destination = {BufferKind::kOutput, 1 - rank}},
        {.kind = StepKind::kSend, .peer = RankId(1 - rank), .source = {BufferKind::kInput, 1 - rank}},
        {.kind = StepKind::kCopy, .source = {BufferKind::kInput, rank}, .destination = {BufferKind::kOutput, rank}}};
  }
  RunRanks(2, [&](Communicator& communicator) { RunAndCompare(communicator, swap, 200000); });
}

TEST(Communicator, AWrongCallLeavesItUsable) {
  RunRanks(2, [](Communicator& communicator) {
    std::vector<int32_t> data(8);
    const auto odd = communicator.Run(*planner::RingSchedule(Collective::kAllToAll, 2), DataType::kInt32, 3,
                                      data.data(), data.data());
    ASSERT_FALSE(odd);
    EXPECT_EQ(odd.error().code(), Code::kInvalidArgument);
    const auto other = communicator.Run(*planner::RingSchedule(Collective::kAllReduce, 3), DataType::kInt32, 3,
                                        data.data(), data.data());
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().message(), HasSubstr("for 3 ranks on a communicator of 2"));
    const auto none = communicator.Run(*planner::RingSchedule(Collective::kAllReduce, 2), DataType::kInt32, 3, nullptr,
                                       data.data());
    ASSERT_FALSE(none);
    EXPECT_THAT(none.error().message(), HasSubstr("has no input"));
    EXPECT_TRUE(communicator.Barrier());
  });
}

TEST(Communicator, ARankThatDoesNotTakePartIsADeadlineThatNamesIt) {
  std::atomic<bool> over = false;
  RunRanks(2, [&](Communicator& communicator) {
    ASSERT_TRUE(communicator.Barrier());
    if (communicator.rank() == RankId(1)) {
      over.wait(false);
      EXPECT_FALSE(communicator.Barrier());  // told by rank 0
      return;
    }
    std::vector<float> data(100);
    const auto status = communicator.AllReduce(data);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(status.error().message(), HasSubstr("no progress for 0.1 s"));
    EXPECT_THAT(status.error().message(), HasSubstr("200 bytes from rank 1"));
    EXPECT_EQ(communicator.Barrier().error().message(), status.error().message());
    over = true;
    over.notify_all();
  }, {.communicator = {.stall_timeout = Seconds(0.1)}});
}

/// The exit status of a process that runs `body` as one rank: 0 when nothing in it failed.
pid_t ForkRank(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  return child;
}

// Four processes; rank 2 dies in the middle. Every other rank names it, also rank 0, which has no connection to it.
TEST(Communicator, ARankThatDiesIsNamedByAllOthers) {
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 4; ++rank) {
    children.push_back(ForkRank([&, rank] {
      auto plugin = NetPlugin::Load(WEFT_LOOPBACK_PLUGIN);
      auto bootstrap = Bootstrap::Join({.rank = RankId(rank), .world = 4, .address = rendezvous->address,
                                        .timeout = Seconds(20),
                                        .listener = rank == 0 ? rendezvous->listener.release() : -1});
      ASSERT_TRUE(plugin && bootstrap);
      auto communicator = Communicator::Create(**plugin, **bootstrap, {});
      ASSERT_TRUE(communicator);
      std::vector<float> data(100000);
      ASSERT_TRUE((*communicator)->AllReduce(data));
      if (rank == 2) _exit(0);
      const auto status = (*communicator)->AllReduce(data);
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code(), Code::kUnavailable) << status.error().message();
      EXPECT_THAT(status.error().message(), HasSubstr("rank 2"));
    }));
  }
  rendezvous->listener.reset();
  for (int rank = 0; rank < 4; ++rank) {
    int status = -1;
    ASSERT_EQ(waitpid(children[static_cast<size_t>(rank)], &status, 0), children[static_cast<size_t>(rank)]);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " status " << status;
  }
}

TEST(Communicator, OptionsOutOfRangeAreRefused) {
  auto plugin = NetPlugin::Load(WEFT_LOOPBACK_PLUGIN);
  auto bootstrap = Bootstrap::Join({});
  ASSERT_TRUE(plugin && bootstrap);
  const auto device = Communicator::Create(**plugin, **bootstrap, {.device = 7});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(device.error().message(), HasSubstr("device 7 of net plugin \"loopback12\""));
  EXPECT_FALSE(Communicator::Create(**plugin, **bootstrap, {.slice = Bytes(3)}));
}

// Doubles: 2^40 + rank is exact in them and not in floats. The largest of negative numbers is no sum's neutral element.
TEST(Communicator, SumsDoublesAndTakesTheLargest) {
  RunRanks(3, [](Communicator& communicator) {
    const Schedule ring = *planner::RingSchedule(Collective::kAllReduce, 3);
    const double rank = communicator.rank().value();
    std::vector<double> data(1001, 1099511627776.0 + rank), least(1001, -5.0 - rank);
    ASSERT_TRUE(communicator.Run(ring, DataType::kFloat64, 1001, data.data(), data.data()));
    EXPECT_EQ(data, std::vector<double>(1001, 3 * 1099511627776.0 + 3));
    ASSERT_TRUE(communicator.Run(ring, DataType::kFloat64, 1001, least.data(), least.data(), ReduceOperation::kLargest));
    EXPECT_EQ(least, std::vector<double>(1001, -5.0));
  });
}

// Odd numbers of bytes, which no type of several bytes has.
TEST(Communicator, MovesBytesAndDoesNotSumThem) {
  RunRanks(3, [](Communicator& communicator) {
    const int rank = communicator.rank().value();
    std::vector<uint8_t> mine(3 * 7), theirs(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<uint8_t>(100 * rank + static_cast<int>(i));
    ASSERT_TRUE(
        communicator.Run(*planner::RingSchedule(Collective::kAllToAll, 3), DataType::kByte, 21, mine.data(), theirs.data()));
    for (size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_EQ(theirs[i], static_cast<uint8_t>(100 * static_cast<int>(i / 7) + 7 * rank + static_cast<int>(i % 7)));
    }
    const Status sum =
        communicator.Run(*planner::RingSchedule(Collective::kAllReduce, 3), DataType::kByte, 21, mine.data(), theirs.data());
    ASSERT_FALSE(sum);
    EXPECT_THAT(sum.error().message(), HasSubstr("bytes are not summed"));
  });
}

// Ranks 0 and 2, 1 and 3; then 3 and 1 in the other order, while 0 and 2 stand by. Each group sums its own.
TEST(Communicator, GroupsOfAJobsRanksTalkAmongThemselves) {
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous) << rendezvous.error().message();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank, listener = rank == 0 ? rendezvous->listener.release() : -1] {
      auto all = Bootstrap::Join({.rank = RankId(rank),
                                  .world = 4,
                                  .address = rendezvous->address,
                                  .timeout = Seconds(20),
                                  .listener = listener});
      ASSERT_TRUE(all) << all.error().message();
      auto plugin = NetPlugin::Load(WEFT_LOOPBACK_PLUGIN);
      ASSERT_TRUE(plugin) << plugin.error().message();
      const auto sum_over = [&](std::vector<int> members) {
        const auto group = Bootstrap::Of(**all, members);
        auto communicator = Communicator::Create(**plugin, *group, {});
        EXPECT_TRUE((*communicator)->ConnectAll());
        EXPECT_EQ(members[static_cast<size_t>((*communicator)->rank().value())], rank);
        std::vector<float> data(100, static_cast<float>(1 << rank));
        EXPECT_TRUE((*communicator)->AllReduce(data));  // connected: the bootstrap is not asked again
        EXPECT_GT((*communicator)->bytes_sent().count(), 0);
        return data[99];
      };
      EXPECT_EQ(sum_over(rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}), rank % 2 == 0 ? 5.0f : 10.0f);
      if (rank % 2 == 1) {
        EXPECT_EQ(sum_over({3, 1}), 10.0f);
      } else {
        EXPECT_TRUE((*all)->AllGather({}));
      }
    });
  }
}

}  // namespace
}  // namespace weft::collectives

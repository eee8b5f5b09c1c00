#include "controller/stragglers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core.h"

namespace weft::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Ranks = google::protobuf::RepeatedPtrField<v1::CommunicatorRank>;

void AddRank(Ranks& ranks, uint64_t comm, int rank, int job_rank, double usual_s = 0.25) {
  v1::CommunicatorRank* added = ranks.Add();
  added->set_job_id("job");
  added->set_comm(comm);
  added->set_name(fmt::format("group{}", comm));
  added->set_rank(rank);
  added->set_job_rank(job_rank);
  added->set_operation("allreduce");
  added->set_usual_s(usual_s);
}

v1::SlowCollective SlowOne(uint64_t comm, int rank, double took_s, uint64_t sequence = 49, double wait_s = 0) {
  v1::SlowCollective slow;
  slow.set_job_id("job");
  slow.set_comm(comm);
  slow.set_operation("allreduce");
  slow.set_sequence(sequence);
  slow.set_rank(rank);
  slow.set_took_s(took_s);
  slow.set_usual_s(0.3);
  slow.set_receive_wait_s(wait_s);
  return slow;
}

std::string HostOf(int job_rank) { return fmt::format("h{}", job_rank); }

class StragglerFinderTest : public ::testing::Test {
 protected:
  /// One communicator over all ranks, each on a host of its own.
  void OneGroup(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      Ranks list;
      AddRank(list, 7, rank, rank);
      finder_.SetRanks(HostOf(rank), list);
    }
  }
  void Waits(int rank, double took_s, uint64_t sequence = 49, double wait_s = 0, double now_s = 10) {
    finder_.Add(HostOf(rank), SlowOne(7, rank, took_s, sequence, wait_s), now_s);
  }
  std::vector<std::string> Named(double now_s) {
    std::vector<std::string> reasons;
    for (const Straggler& straggler : finder_.Take(now_s)) reasons.push_back(straggler.reason);
    return reasons;
  }

  StragglerFinder finder_;
};

TEST_F(StragglerFinderTest, NamesWhoDidNotWait) {
  OneGroup(4);
  for (const int rank : {0, 1, 3}) Waits(rank, 1.3);
  EXPECT_THAT(Named(11.9), IsEmpty()) << "others may still report";
  EXPECT_THAT(Named(12), ElementsAre("rank 2 (rank 2 of the job, h2) came 1.00 s late to allreduce number 49 of communicator "
                                     "group7 0x7: 3 of 4 ranks waited"));
  EXPECT_THAT(Named(20), IsEmpty()) << "once";
}

TEST_F(StragglerFinderTest, NobodyIsNamedWhereAllWaitedOrMostDidNot) {
  OneGroup(4);
  for (const int rank : {0, 1, 2, 3}) Waits(rank, 1.3, 50);
  Waits(0, 1.3, 51);
  EXPECT_THAT(Named(20), IsEmpty());
}

TEST_F(StragglerFinderTest, WhoseGpuCameLateHasLeastWaitedForWhatItReceives) {
  OneGroup(4);
  for (const int rank : {0, 1, 3}) Waits(rank, 1.3, 49, 2.1);
  Waits(2, 1.3, 49, 0.02);
  EXPECT_THAT(Named(12), ElementsAre(HasSubstr("rank 2 (")));
}

TEST_F(StragglerFinderTest, WhoTakesNoPartInTheNetworkIsNotLate) {
  OneGroup(4);
  Ranks list;
  AddRank(list, 7, 2, 2, 0.0001);  // through at once, as all its neighbours are on its own host
  finder_.SetRanks("h2", list);
  for (const int rank : {0, 1, 3}) Waits(rank, 1.3);
  EXPECT_THAT(Named(12), IsEmpty());
}

TEST_F(StragglerFinderTest, WhoWaitedForSomebodyElseIsNotBlamed) {
  // Ranks 0 and 1 are one group, 1 and 2 another. Rank 0 comes late, so rank 1 comes late to the other.
  for (int rank = 0; rank < 3; ++rank) {
    Ranks list;
    if (rank < 2) AddRank(list, 7, rank, rank);
    if (rank > 0) AddRank(list, 8, rank - 1, rank);
    finder_.SetRanks(HostOf(rank), list);
  }
  finder_.Add("h1", SlowOne(7, 1, 1.3), 10);
  finder_.Add("h2", SlowOne(8, 1, 1.3), 10.5);
  EXPECT_THAT(Named(13), ElementsAre(HasSubstr("rank 0 (rank 0 of the job, h0)")));
}

TEST_F(StragglerFinderTest, OneDelayIsOneLineAndRepeatedOnesAreToldLessAndLessOften) {
  OneGroup(4);
  int told = 0;
  for (int second = 0; second < 640; ++second) {
    for (const int rank : {0, 1, 3}) {
      for (const uint64_t bucket : {0, 1, 2}) Waits(rank, 1.3, static_cast<uint64_t>(3 * second) + bucket, 0, second);
    }
    told += static_cast<int>(Named(second).size());
  }
  EXPECT_EQ(told, 7) << "2, 12, 32, 72, 152, 312 and 632 s after the first";
  EXPECT_THAT(Named(700), IsEmpty());
  for (const int rank : {0, 1, 3}) Waits(rank, 1.3, 9999, 0, 5000);
  EXPECT_THAT(Named(5003), SizeIs(1)) << "it had kept up for an hour";
}

TEST_F(StragglerFinderTest, NonsenseIsCountedAndForgottenHostsAreNotCompared) {
  OneGroup(4);
  finder_.Add("h1", SlowOne(7, 0, 1.3), 10);  // another host's rank
  finder_.Add("h0", SlowOne(6, 0, 1.3), 10);  // a communicator that nobody listed
  finder_.Add("h0", SlowOne(7, 0, 1e300), 10);
  finder_.Add("h0", SlowOne(7, 0, 0.1), 10);  // less than usual
  Ranks list;
  AddRank(list, 7, 0, 0);  // that h0 has
  AddRank(list, 7, -4, 0);
  finder_.SetRanks("h9", list);
  EXPECT_EQ(finder_.ignored(), 6);
  finder_.ForgetHost("h2");
  for (const int rank : {0, 1, 3}) Waits(rank, 1.3);
  EXPECT_THAT(Named(12), IsEmpty()) << "the rank that was late is gone";
}

TEST_F(StragglerFinderTest, WhatIsKeptIsBounded) {
  OneGroup(2);
  for (uint64_t sequence = 0; sequence < 3 * StragglerFinder::kMostOpen; ++sequence) Waits(0, 1.3, sequence);
  EXPECT_EQ(finder_.ignored(), static_cast<int64_t>(2 * StragglerFinder::kMostOpen));
  Named(12);
  Waits(0, 1.3, 1'000'000, 0, 13);
  EXPECT_EQ(finder_.ignored(), static_cast<int64_t>(2 * StragglerFinder::kMostOpen)) << "there is room again";
}

// From agents' messages to a decision, which `weft explain` prints.
TEST(Stragglers, AreDecisionsOfTheirJob) {
  Core core(CoreOptions{});
  const auto handle = [&](double time_s, auto body) { core.Handle({.time = Seconds(time_s), .body = std::move(body)}); };
  for (int rank = 0; rank < 3; ++rank) {
    HostRegistered registered;
    registered.message.set_host(HostOf(rank));
    registered.message.add_interfaces()->add_addresses(fmt::format("10.0.0.{}", rank));
    handle(1, registered);
    SampleReceived sample{.host = HostOf(rank), .sample = {}};
    sample.sample.set_time_s(5);
    AddRank(*sample.sample.mutable_communicator_ranks(), 7, rank, rank);
    sample.sample.set_communicator_ranks_changed(true);
    v1::FlowIdentity* flow = sample.sample.add_opened();
    flow->set_flow(static_cast<uint64_t>(rank + 1));
    flow->set_job_id("job");
    flow->set_send(true);
    flow->set_local_address(fmt::format("10.0.0.{}", rank));
    flow->set_peer_address(fmt::format("10.0.0.{}", (rank + 1) % 3));
    handle(2, sample);
  }
  for (const int rank : {0, 2}) {
    SampleReceived sample{.host = HostOf(rank), .sample = {}};
    sample.sample.set_time_s(6);
    *sample.sample.add_slow() = SlowOne(7, rank, 2.3);
    handle(3, sample);
  }
  for (double now = 3; now < 7; now += 0.1) handle(now, Tick{});
  int told = 0;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() != "straggler") continue;
    ++told;
    EXPECT_EQ(decision.job_id(), "job");
    EXPECT_THAT(decision.reason(), HasSubstr("rank 1 (rank 1 of the job, h1) came 2.00 s late to allreduce number 49"));
    EXPECT_LT(decision.time_s(), 6.5);
  }
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace weft::controller

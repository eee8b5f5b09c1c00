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

struct Said {
  int rank = 0;
  double waited_s = 0, late_s = 0, receive_wait_s = 0;
};

v1::CollectiveDelay Delay(const Said& said, uint64_t sequence = 49) {
  v1::CollectiveDelay delay;
  delay.set_job_id("job");
  delay.set_comm(7);
  delay.set_name("world0");
  delay.set_operation("allreduce");
  delay.set_sequence(sequence);
  delay.set_rank(said.rank);
  delay.set_ranks(4);
  delay.set_job_rank(said.rank);
  delay.set_waited_s(said.waited_s);
  delay.set_late_s(said.late_s);
  delay.set_late_known(true);
  delay.set_receive_wait_s(said.receive_wait_s);
  return delay;
}

std::string HostOf(int rank) { return fmt::format("h{}", rank); }

class StragglerFinderTest : public ::testing::Test {
 protected:
  void Say(const std::vector<Said>& said, uint64_t sequence = 49, double now_s = 10) {
    for (const Said& each : said) finder_.Add(HostOf(each.rank), Delay(each, sequence), now_s);
  }
  std::vector<std::string> Named(double now_s) {
    std::vector<std::string> reasons;
    for (const Straggler& straggler : finder_.Take(now_s)) reasons.push_back(straggler.reason);
    return reasons;
  }

  StragglerFinder finder_{2};
};

TEST_F(StragglerFinderTest, NamesWhoBeganLateWhileOthersWaited) {
  Say({{0, 1.0}, {1, 1.1}, {2, 0, 1.0}, {3, 0.9}});
  EXPECT_THAT(Named(11.9), IsEmpty()) << "others may still report";
  EXPECT_THAT(Named(12), ElementsAre("rank 2 (rank 2 of the job, h2) came 1.00 s late to allreduce number 49 of communicator "
                                     "world0 0x7: 3 of 4 ranks waited"));
  EXPECT_THAT(Named(20), IsEmpty()) << "once";
  Say({{1, 0, 1.0}}, 49, 21);
  EXPECT_THAT(Named(30), IsEmpty()) << "after the verdict";
}

TEST_F(StragglerFinderTest, NobodyIsNamedForSilence) {
  Say({{0, 1.0}, {1, 1.0}, {3, 1.0}});
  EXPECT_THAT(Named(20), IsEmpty());
}

TEST_F(StragglerFinderTest, NobodyIsNamedWhereNobodyWaitedOrMostWereLate) {
  Say({{0, 0, 30}, {1, 0, 30}, {2, 0, 30}, {3, 0, 30}}, 50);  // a checkpoint
  Say({{0, 1.0}, {1, 0, 1.0}, {2, 0, 1.0}}, 51);
  Say({{0, 1.0}, {1, 1.0}, {2, 1.0}, {3, 1.0}}, 52);  // a slow network
  EXPECT_THAT(Named(20), IsEmpty());
}

TEST_F(StragglerFinderTest, AfterAPauseOfAllItCountsByHowMuchMore) {
  Say({{0, 1.0, 30}, {1, 0, 31}, {2, 1.0, 30}, {3, 0, 30.1}});
  EXPECT_THAT(Named(12), ElementsAre(HasSubstr("rank 1 (rank 1 of the job, h1) came 1.00 s late")));
}

TEST_F(StragglerFinderTest, ACommonPauseThatSomeDoNotKnowOfAccusesNobody) {
  for (const int rank : {0, 1, 3}) {
    v1::CollectiveDelay delay = Delay({rank, 1.0, 0});
    delay.set_late_known(rank == 1);
    delay.set_late_s(rank == 1 ? 30 : 0);
    finder_.Add(HostOf(rank), delay, 10);
  }
  Say({{2, 0.1, 30.2}});  // with the others, and less than they
  EXPECT_THAT(Named(12), IsEmpty());
}

TEST_F(StragglerFinderTest, WhereNobodyWhoWaitedKnowsOfAPauseNobodyIsNamed) {
  for (const int rank : {0, 1, 3}) {
    v1::CollectiveDelay delay = Delay({rank, 1.0, 0});
    delay.set_late_known(false);
    finder_.Add(HostOf(rank), delay, 10);
  }
  Say({{2, 0.1, 30.2}});
  EXPECT_THAT(Named(12), IsEmpty());
}

TEST_F(StragglerFinderTest, WhoseGpuCameLateHasLeastWaitedForWhatItReceives) {
  Say({{0, 1.0, 0, 2.1}, {1, 1.0, 0, 2.0}, {2, 1.0, 0, 0.02}, {3, 1.0, 0, 1.9}});
  EXPECT_THAT(Named(12), ElementsAre(HasSubstr("rank 2 (rank 2 of the job, h2) came 1.00 s late to allreduce number 49 of communicator "
                                               "world0 0x7: 3 of 4 ranks waited")));
}

TEST_F(StragglerFinderTest, RepeatedDelaysAreToldLessAndLessOften) {
  int told = 0;
  for (int second = 0; second < 640; ++second) {
    Say({{0, 1.0}, {2, 0, 1.0}}, static_cast<uint64_t>(second), second);
    told += static_cast<int>(Named(second).size());
  }
  EXPECT_EQ(told, 7) << "2, 12, 32, 72, 152, 312 and 632 s after the first";
  Named(700);
  Say({{0, 1.0}, {2, 0, 1.0}}, 9999, 5000);
  EXPECT_THAT(Named(5003), SizeIs(1)) << "it had kept up for an hour";
}

TEST_F(StragglerFinderTest, JobThatBlamesEverybodyHasSoManyLinesAMinute) {
  int told = 0;
  for (int rank = 1; rank < 400; ++rank) {
    Say({{0, 1.0}, {rank, 0, 1.0}}, static_cast<uint64_t>(rank), rank * 0.1);
    told += static_cast<int>(Named(rank * 0.1).size());
  }
  EXPECT_EQ(told, StragglerFinder::kMostLinesAMinute);
}

TEST_F(StragglerFinderTest, NonsenseIsCountedAndCannotBeShown) {
  Say({{-1, 1.0}, {0, 1e300}, {1, -1.0}, {2, 0, 0}});
  EXPECT_EQ(finder_.ignored(), 4);
  finder_.Add("h9", Delay({0, 1.0}), 10);
  finder_.Add("h8", Delay({0, 0, 5.0}), 10);  // a rank that another host has
  EXPECT_EQ(finder_.ignored(), 5);
  v1::CollectiveDelay delay = Delay({1, 0, 1.0});
  delay.set_operation("all\x1b[2Jreduce");
  v1::CollectiveDelay waits = delay;
  waits.set_rank(2);
  waits.set_waited_s(1);
  waits.set_late_s(0);
  waits.set_name("\n\n");
  finder_.Add("h2", waits, 10);
  finder_.Add("h1", delay, 10);
  EXPECT_THAT(Named(12), ElementsAre(HasSubstr("all?[2Jreduce number 49 of communicator ?? 0x7")));
}

TEST_F(StragglerFinderTest, WhatIsKeptIsBounded) {
  for (uint64_t sequence = 0; sequence < 3 * StragglerFinder::kMostOpen; ++sequence) Say({{0, 1.0}}, sequence);
  EXPECT_EQ(finder_.ignored(), static_cast<int64_t>(2 * StragglerFinder::kMostOpen));
  Named(12);
  Say({{0, 1.0}}, 1'000'000, 13);
  EXPECT_EQ(finder_.ignored(), static_cast<int64_t>(2 * StragglerFinder::kMostOpen)) << "there is room again";
}

class CoreStragglersTest : public ::testing::Test {
 protected:
  CoreStragglersTest() {
    for (int rank = 0; rank < 3; ++rank) {
      HostRegistered registered;
      registered.message.set_host(HostOf(rank));
      registered.message.add_interfaces()->add_addresses(fmt::format("10.0.0.{}", rank));
      Handle(1, registered);
      SampleReceived sample{.host = HostOf(rank), .sample = {}};
      v1::FlowIdentity* flow = sample.sample.add_opened();
      flow->set_flow(static_cast<uint64_t>(rank + 1));
      flow->set_job_id("job");
      flow->set_send(true);
      flow->set_local_address(fmt::format("10.0.0.{}", rank));
      flow->set_peer_address(fmt::format("10.0.0.{}", (rank + 1) % 3));
      sample.sample.set_time_s(5);
      Handle(2, sample);
    }
  }

  template <class Body>
  void Handle(double time_s, Body body) {
    core_.Handle({.time = Seconds(time_s), .body = std::move(body)});
  }
  void Say(double time_s, const std::vector<Said>& said, uint64_t sequence) {
    for (const Said& each : said) {
      SampleReceived sample{.host = HostOf(each.rank), .sample = {}};
      sample.sample.set_time_s(time_s + 3);
      *sample.sample.add_delays() = Delay(each, sequence);
      Handle(time_s, sample);
    }
  }
  std::vector<v1::Decision> Stragglers() const {
    std::vector<v1::Decision> found;
    for (const v1::Decision& decision : core_.decisions()) {
      if (decision.kind() == "straggler") found.push_back(decision);
    }
    return found;
  }

  Core core_{CoreOptions{}};
};

// From agents' messages to a decision, which `weft explain` prints.
TEST_F(CoreStragglersTest, AreDecisionsOfTheirJob) {
  Say(3, {{0, 2.0}, {1, 0, 2.0}, {2, 2.0}}, 49);
  for (double now = 3; now < 7; now += 0.1) Handle(now, Tick{});
  ASSERT_THAT(Stragglers(), SizeIs(1));
  EXPECT_EQ(Stragglers()[0].job_id(), "job");
  EXPECT_THAT(Stragglers()[0].reason(), HasSubstr("rank 1 (rank 1 of the job, h1) came 2.00 s late to allreduce number 49"));
  EXPECT_LT(Stragglers()[0].time_s(), 6.5);
}

TEST_F(CoreStragglersTest, DoNotDriveOutOtherDecisions) {
  Handle(2.5, ModeSet{v1::MODE_OBSERVE});
  const size_t before = core_.decisions().size();
  ASSERT_GT(before, 0u);
  double now = 3;
  for (int i = 0; i < 1500; ++i, now += 11) {  // somebody else every time
    for (Said said : {Said{0, 2.0}, Said{1, 0, 2.0}}) {
      SampleReceived sample{.host = HostOf(said.rank), .sample = {}};
      sample.sample.set_time_s(now + 3);
      v1::CollectiveDelay delay = Delay(said, static_cast<uint64_t>(i));
      delay.set_job_rank(i);
      *sample.sample.add_delays() = delay;
      Handle(now, sample);
    }
    Handle(now + 5, Tick{});
  }
  EXPECT_GT(Stragglers().size(), 500u);
  EXPECT_LE(core_.decisions().size(), 1000u);
  EXPECT_GE(core_.decisions().size() - Stragglers().size(), before);
}

}  // namespace
}  // namespace weft::controller

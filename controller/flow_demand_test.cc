#include "controller/flow_demand.h"

#include <gtest/gtest.h>

#include "controller/flow_table.h"

namespace weft::controller {
namespace {

class DemandSharesTest : public ::testing::Test {
 protected:
  DemandSharesTest() {
    fabric_.SetHost("h1", std::vector<std::string>{"a1", "b1"});
    fabric_.SetHost("h2", std::vector<std::string>{"a2"});
  }

  void Open(uint64_t id, const std::string& host, const std::string& address, const std::string& job = "j") {
    v1::FlowIdentity identity;
    identity.set_flow(id);
    identity.set_job_id(job);
    identity.set_send(true);
    identity.set_local_address(address);
    identity.set_peer_address("a9");
    table_.Open(host, identity, /*fresh=*/true, 0);
    host_of_[id] = host;
  }

  /// The flow sends `bytes` evenly in (from, to].
  void Carry(uint64_t id, double bytes, double from_s, double to_s, double period_s = 0) {
    v1::FlowCounters counters;
    counters.set_flow(id);
    counters.set_send(true);
    counters.set_period_s(period_s);
    v1::LaneCounters* lane = counters.add_lanes();
    lane->set_source_port(40000);
    lane->set_state("active");
    lane->set_weight(1);
    lane->set_wire_bytes(static_cast<int64_t>(sent_[id] += bytes));
    table_.Count(host_of_.at(id), counters, from_s, to_s);
  }

  double Share(uint64_t id, double now_s) { return DemandShares(table_, Seconds(now_s), {}).at(id); }

  FabricView fabric_{LinkRates{}};
  FlowTable table_{0.1, &fabric_};
  std::map<uint64_t, std::string> host_of_;
  std::map<uint64_t, double> sent_;
};

TEST_F(DemandSharesTest, JobThatNeverSentIsIdleInTheEndToo) {
  Open(1, "h1", "a1");
  EXPECT_DOUBLE_EQ(Share(1, 29), 1);
  EXPECT_DOUBLE_EQ(Share(1, 31), kTraceOfDemand);
}

TEST_F(DemandSharesTest, BeforeAnythingIsSeenANicsFlowsShareIt) {
  Open(1, "h1", "a1");
  Open(2, "h1", "a1");
  Open(3, "h1", "b1");
  Open(4, "h2", "a2", "other");
  EXPECT_DOUBLE_EQ(Share(1, 0.1), 0.5);
  EXPECT_DOUBLE_EQ(Share(2, 0.1), 0.5);
  EXPECT_DOUBLE_EQ(Share(3, 0.1), 1);
  EXPECT_DOUBLE_EQ(Share(4, 0.1), 1);
}

TEST_F(DemandSharesTest, WhatCarriesNothingWeighsNothing) {
  for (uint64_t id = 1; id <= 6; ++id) Open(id, "h1", "a1");
  Carry(1, 1e6, 0, 0.2);
  EXPECT_DOUBLE_EQ(Share(1, 0.3), 1);
  EXPECT_DOUBLE_EQ(Share(2, 0.3), 1.0 / 6) << "another agent may have more to tell";
  Carry(1, 1e6, 0.2, 1.4);
  EXPECT_DOUBLE_EQ(Share(1, 1.5), 1);
  EXPECT_DOUBLE_EQ(Share(2, 1.5), kTraceOfDemand);
}

TEST_F(DemandSharesTest, SharesAreOfTheBusiestNic) {
  Open(1, "h1", "a1");
  Open(2, "h1", "a1");
  Open(3, "h2", "a2");
  for (const double from : {0.0, 2.0}) {
    Carry(1, 3e6, from, from + 0.2);
    Carry(2, 1e6, from, from + 0.2);
    Carry(3, 2e6, from, from + 0.2);
  }
  EXPECT_DOUBLE_EQ(Share(1, 2.3), 0.75);
  EXPECT_DOUBLE_EQ(Share(2, 2.3), 0.25);
  EXPECT_DOUBLE_EQ(Share(3, 2.3), 0.5);
}

TEST_F(DemandSharesTest, AFlowThatBeginsToSendCountsWithinASecond) {
  Open(1, "h1", "a1");
  Open(2, "h2", "a2");
  for (int i = 0; i < 100; ++i) Carry(1, 1e6, i * 0.2, (i + 1) * 0.2);
  EXPECT_DOUBLE_EQ(Share(2, 20), kTraceOfDemand);
  for (int i = 100; i < 104; ++i) {
    Carry(1, 1e6, i * 0.2, (i + 1) * 0.2);
    Carry(2, 1e6, i * 0.2, (i + 1) * 0.2);
  }
  EXPECT_GT(Share(2, 20.8), 0.4);
  EXPECT_DOUBLE_EQ(Share(1, 20.8), 1);
}

TEST_F(DemandSharesTest, AFlowThatStopsWeighsNothingAfterASecondOfItsJobsTime) {
  Open(1, "h1", "a1");
  Open(2, "h2", "a2");
  Carry(1, 1e6, 0, 0.2);
  Carry(2, 1e6, 0, 0.2);
  EXPECT_DOUBLE_EQ(Share(2, 15), 1) << "the whole job computes: its time stands still";
  Carry(1, 1e6, 15, 15.2);
  EXPECT_DOUBLE_EQ(Share(2, 15.3), kTraceOfDemand);
}

TEST_F(DemandSharesTest, OtherPhasesOfAKnownIterationAreNotForgotten) {
  Open(1, "h1", "a1");
  Open(2, "h2", "a2");
  Carry(2, 1e6, 0, 0.2, 4);
  for (int i = 1; i < 19; ++i) Carry(1, 1e5, i * 0.2, (i + 1) * 0.2, 4);
  EXPECT_GT(Share(2, 3.9), 0.4) << "3.6 s silent, in a period of 4 s";
  EXPECT_DOUBLE_EQ(Share(1, 3.9), 1);
}

TEST_F(DemandSharesTest, AJobThatFallsSilentWeighsNothing) {
  Open(1, "h1", "a1");
  Carry(1, 1e6, 0, 0.2);
  EXPECT_DOUBLE_EQ(Share(1, 29), 1);
  EXPECT_DOUBLE_EQ(Share(1, 31), kTraceOfDemand);
}

TEST(FadingBytes, HalvesAndAdds) {
  FadingBytes bytes(2);
  EXPECT_EQ(bytes.At(5), 0);
  bytes.Add(8, 1);
  EXPECT_DOUBLE_EQ(bytes.At(1), 8);
  EXPECT_DOUBLE_EQ(bytes.At(3), 4);
  bytes.Add(1, 5);
  EXPECT_DOUBLE_EQ(bytes.At(5), 3);
  bytes.Add(1, 4);  // late: counts as now
  EXPECT_DOUBLE_EQ(bytes.At(5), 4);
}

}  // namespace
}  // namespace weft::controller

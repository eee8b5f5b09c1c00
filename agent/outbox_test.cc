#include "agent/outbox.h"

#include <gmock/gmock.h>

namespace weft::agent {
namespace {

using ::testing::ElementsAre;

v1::HostSample Sample(double time, uint64_t flow, int64_t bytes) {
  v1::HostSample sample;
  sample.set_time_s(time);
  v1::FlowCounters* counters = sample.add_counters();
  counters->set_flow(flow);
  counters->set_bytes(bytes);
  return sample;
}

TEST(Outbox, NewerCountersReplaceOlderAndEventsStay) {
  Outbox outbox;
  v1::HostSample first = Sample(1, 7, 100);
  first.add_opened()->set_flow(7);
  EXPECT_FALSE(outbox.Add(std::move(first)));
  v1::HostSample second = Sample(2, 7, 300);
  *second.add_counters() = Sample(2, 8, 5).counters(0);
  second.add_closed(9);
  second.add_applied()->set_epoch(4);
  EXPECT_TRUE(outbox.Add(std::move(second)));
  EXPECT_EQ(outbox.events(), 2u);
  const v1::HostSample sent = outbox.Take().sample();
  EXPECT_EQ(sent.time_s(), 2);
  EXPECT_EQ(sent.opened(0).flow(), 7u);
  ASSERT_EQ(sent.counters_size(), 2);
  EXPECT_EQ(sent.counters(0).bytes(), 300);
  EXPECT_THAT(sent.closed(), ElementsAre(9u));
  EXPECT_EQ(sent.applied(0).epoch(), 4);
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, SendAndReceiveOfOneFlowAreTwo) {
  Outbox outbox;
  v1::HostSample both = Sample(1, 7, 100);
  *both.add_counters() = both.counters(0);
  both.mutable_counters(1)->set_send(true);
  outbox.Add(std::move(both));
  EXPECT_EQ(outbox.Take().sample().counters_size(), 2);
}

TEST(Outbox, NewestPathReportOfAFlowGoesAfterTheSample) {
  Outbox outbox;
  v1::PathReport report;
  report.set_flow(1);
  report.set_hop_count(1);
  outbox.Add(report);
  report.set_hop_count(3);
  outbox.Add(report);
  outbox.Add(Sample(1, 1, 1));
  EXPECT_TRUE(outbox.Take().has_sample());
  EXPECT_EQ(outbox.Take().paths().hop_count(), 3);
  EXPECT_TRUE(outbox.empty());
}

TEST(OutboxTest, StallsAreKeptShortagesAreTheNewestAndARegistrationGoesFirst) {
  Outbox outbox;
  for (int64_t i = 1; i <= 2; ++i) {
    v1::HostSample sample;
    sample.add_stalls()->set_flow(static_cast<uint64_t>(i));
    v1::Shortage* shortage = sample.add_shortages();
    shortage->set_job_id("a");
    shortage->set_flows_dropped(i);
    v1::StrategyNews* news = sample.add_strategies();
    news->set_job_id("a");
    news->set_epoch(i);
    outbox.Add(std::move(sample));
  }
  v1::Register registration;
  registration.set_host("h1");
  outbox.Add(registration);
  EXPECT_EQ(outbox.Take().register_host().host(), "h1");
  const v1::AgentMessage message = outbox.Take();
  EXPECT_EQ(message.sample().stalls_size(), 2);
  ASSERT_EQ(message.sample().shortages_size(), 1);
  EXPECT_EQ(message.sample().shortages(0).flows_dropped(), 2);
  ASSERT_EQ(message.sample().strategies_size(), 1);
  EXPECT_EQ(message.sample().strategies(0).epoch(), 2);
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, ASampleThatNoMessageHoldsGoesInSeveral) {
  Outbox outbox;
  v1::HostSample large;
  constexpr int kFlows = 8 * 4096;  // of eight processes
  for (int i = 0; i < kFlows; ++i) {
    large.add_opened()->set_flow(static_cast<uint64_t>(i + 1));
    v1::FlowCounters* counters = large.add_counters();
    counters->set_flow(static_cast<uint64_t>(i + 1));
    for (int lane = 0; lane < 8; ++lane) {
      v1::LaneCounters* to = counters->add_lanes();
      to->set_source_port(50'000 + lane);
      to->set_state("connecting");
      to->set_bytes(INT64_MAX);
      to->set_wire_bytes(INT64_MAX);
      to->set_rtt_s(0.1);
      to->set_backlog_bytes(INT64_MAX);
    }
  }
  large.set_time_s(5);
  large.add_closed(77);
  outbox.Add(std::move(large));
  v1::HostSample whole = outbox.Take().sample();
  EXPECT_TRUE(whole.more());
  outbox.Add(Sample(6, 1, 1));  // news meanwhile
  int messages = 1;
  while (whole.more()) {
    const v1::AgentMessage message = outbox.Take();
    ASSERT_TRUE(message.has_sample());
    EXPECT_LT(message.ByteSizeLong(), size_t{4} << 20) << "the least that gRPC takes";
    EXPECT_EQ(message.sample().time_s(), 5);
    EXPECT_EQ(message.sample().closed_size(), message.sample().more() ? 0 : 1) << "what has ended comes after what has begun";
    whole.set_more(message.sample().more());
    whole.MergeFrom(message.sample());
    ++messages;
  }
  EXPECT_GT(messages, 4);
  ASSERT_EQ(whole.opened_size(), kFlows);
  ASSERT_EQ(whole.counters_size(), kFlows);
  for (int i = 0; i < kFlows; ++i) ASSERT_EQ(whole.counters(i).flow(), static_cast<uint64_t>(i + 1));
  EXPECT_EQ(outbox.Take().sample().time_s(), 6);
  EXPECT_TRUE(outbox.empty());
}

}  // namespace
}  // namespace weft::agent

// What the controller keeps of owners who come and go: it is bounded, and what is dropped changes what nobody is planned with.
#include <gmock/gmock.h>

#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "controller/bad_links.h"
#include "controller/link_monitor.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

constexpr double kLine = 100e6;
constexpr double kSlot = 0.2;
constexpr uint64_t kFlow = 7;
constexpr int32_t kPort = 40'001;
constexpr Owner kMany = 1000;

/// One way from h1 to h2, of four links at 100 Mbit/s, on which nobody sends.
class LinkEstimates : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string host : {"h1", "h2"}) fabric_.SetHost(host, std::vector<std::string>{"addr-" + host});
    links_ = fabric_.AddPath("h1", std::vector<std::string>{"leaf1", "spine1", "leaf2"}, "h2");
    ASSERT_EQ(links_.size(), 4u);
  }
  std::vector<CapacityChange> Evaluate(double now_s) { return monitor_.Evaluate(table_, ++slot_, Seconds(now_s)); }
  double Of(LinkId link) const { return monitor_.Available(link).value(); }
  /// A flow of uid 7 with one lane, whose way was probed.
  void Open() {
    v1::FlowIdentity identity;
    identity.set_flow(kFlow);
    identity.set_job_id("job");
    identity.set_send(true);
    identity.set_user_id(7);
    identity.set_local_address("addr-h1");
    identity.set_peer_address("addr-h2");
    table_.Open("h1", identity, /*fresh=*/true, 0);
    v1::PathReport report;
    report.set_flow(kFlow);
    report.set_local_address("addr-h1");
    report.set_peer_address("addr-h2");
    v1::Path* path = report.add_paths();
    path->set_source_port(kPort);
    path->set_complete(true);
    for (const char* hop : {"leaf1", "spine1", "leaf2"}) path->add_hops(hop);
    table_.AddPaths("h1", report, 0);
  }
  /// In the slot that ends at `to_s` the lane sends at `rate_bps`, and its next bytes wait all the time; both ends say so. Or they do not
  /// wait, and the other end says nothing.
  void SendFor(double to_s, double rate_bps, bool waits = true) {
    sent_ += static_cast<int64_t>(rate_bps * kSlot / 8);
    for (const bool send : {true, false}) {
      if (!send && !waits) continue;
      v1::FlowCounters counters;
      counters.set_flow(kFlow);
      counters.set_send(send);
      v1::LaneCounters* lane = counters.add_lanes();
      lane->set_source_port(kPort);
      lane->set_state("active");
      if (send) lane->set_wire_bytes(sent_);
      if (!send) lane->set_backlog_s(to_s), lane->set_backlog_bytes(sent_);
      table_.Count(send ? "h1" : "h2", counters, to_s - kSlot, to_s);
    }
  }
  /// His lane finds that both links between switches give 10 of 100 Mbit/s, in three windows of 0.4 s and more. When that was.
  double FindSlow() {
    Open();
    double now_s = 0;
    for (int slot = 1; slot <= 20; ++slot) SendFor(now_s += kSlot, 10e6);
    while (slot_ < 18) Evaluate(now_s);
    EXPECT_NEAR(Of(links_[1]), 10e6, 1e6);
    EXPECT_NEAR(Of(links_[2]), 10e6, 1e6);
    return now_s;
  }

  FabricView fabric_{LinkRates{.line_rate = BitsPerSecond(kLine), .overrides = {}}};
  FlowTable table_{kSlot, &fabric_};
  LinkMonitor monitor_{LinkMonitorOptions(), &fabric_};
  std::vector<LinkId> links_;
  int64_t slot_ = 0, sent_ = 0;
};

TEST_F(LinkEstimates, OfALinkSoManyOwnersHaveOneAndTheirLeastAreKept) {
  // Owner n finds that the link gives (n + 1) / 2000 of its rate, and 2 % at least: the second least is 2 %.
  for (Owner owner = 0; owner < kMany; ++owner) {
    monitor_.Hold(links_[1], owner, Badness::kLossy, static_cast<double>(owner + 1) / 2000, "loses segments");
  }
  EXPECT_EQ(monitor_.estimates(), static_cast<size_t>(kMany));
  Evaluate(1);
  EXPECT_EQ(monitor_.estimates(), LinkMonitor::kMostOwners);
  EXPECT_EQ(Of(links_[1]), 0.02 * kLine);
  EXPECT_EQ(monitor_.Available(links_[1], kMany - 1).value(), 0.02 * kLine) << "who has none is planned with what all are";
}

TEST_F(LinkEstimates, OneThatSaysNoMoreThanANewOneWouldIsDropped) {
  for (const LinkId link : links_) monitor_.Hold(link, 7, Badness::kLossy, 0.25, "loses segments");
  Evaluate(1);
  EXPECT_EQ(monitor_.estimates(), 4u) << "a link that is held to be bad stays so, whoever has gone";
  for (const LinkId link : links_) monitor_.Hold(link, 7, Badness::kLossy, 1, "is as before");
  Evaluate(2);
  EXPECT_EQ(monitor_.estimates(), 0u);
  for (const LinkId link : links_) EXPECT_EQ(Of(link), kLine);
}

TEST_F(LinkEstimates, WhatAnOwnerHasFoundIsDroppedSomeTimeAfterHisLastFlow) {
  const double found_s = FindSlow();
  table_.Close("h1", kFlow);
  EXPECT_TRUE(Evaluate(found_s + 479).empty()) << "he may come again";
  EXPECT_NEAR(Of(links_[1]), 10e6, 1e6);
  const auto changes = Evaluate(found_s + 481);
  ASSERT_EQ(changes.size(), 2u);
  for (const CapacityChange& change : changes) {
    EXPECT_TRUE(change.for_all);
    EXPECT_EQ(change.after.value(), kLine);
    EXPECT_THAT(change.reason, HasSubstr("has no flows any more, and it was not seen for 480 s"));
  }
  EXPECT_EQ(Of(links_[1]), kLine);
  EXPECT_EQ(monitor_.estimates(), 0u);
}

TEST_F(LinkEstimates, WhatAnOwnerHasFoundStaysWhileHeHasAFlowHoweverQuiet) {
  const double found_s = FindSlow();
  EXPECT_TRUE(Evaluate(found_s + 10'000).empty());
  EXPECT_NEAR(Of(links_[1]), 10e6, 1e6);
  EXPECT_EQ(monitor_.estimates(), 2u);
}

TEST_F(LinkEstimates, ALinkGivesWhatItCarries) {
  double now_s = FindSlow();
  while (slot_ < 19) Evaluate(now_s);
  std::vector<CapacityChange> told;
  for (int slot = 1; slot <= 15; ++slot) {
    SendFor(now_s += kSlot, 30e6, /*waits=*/false);
    for (const CapacityChange& change : Evaluate(now_s)) told.push_back(change);
    if (slot == 6) EXPECT_NEAR(Of(links_[1]), 10e6, 1e6) << "so few bytes may have been queued before";
  }
  EXPECT_NEAR(Of(links_[1]), 30e6, 1e3);
  EXPECT_NEAR(Of(links_[2]), 30e6, 1e3);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[0].reason, HasSubstr("carried 30 Mbit/s, planned with"));
  EXPECT_EQ(monitor_.Available(links_[1], kMany).value(), Of(links_[1]));
}

TEST_F(LinkEstimates, NoneIsBelowWhatWasCarriedWhateverIsSaid) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  Open();
  slot_ = -1;
  double now_s = 0, rate = 50e6, lowered_s = 0;
  bool waits = true;
  std::deque<double> sent;  // of the newest slots that were judged
  int lowered = 0, checked = 0;
  for (int slot = 1; slot <= 20'000; ++slot) {
    if (share(random) < 0.05) rate = kLine * share(random) * share(random), waits = share(random) < 0.7;
    SendFor(now_s += kSlot, rate, waits);
    sent.push_back(rate);
    if (sent.size() > 15) sent.pop_front();
    for (const CapacityChange& change : Evaluate(now_s)) {
      if (change.link != links_[1] || change.after >= change.before) continue;
      lowered_s = now_s;
      ++lowered;
    }
    monitor_.Recover(Seconds(now_s));
    if (now_s - lowered_s < 3.1) continue;
    const double mean = std::accumulate(sent.begin(), sent.end(), 0.0) / static_cast<double>(sent.size());
    ASSERT_GE(Of(links_[1]), 0.99 * std::min(mean, kLine)) << "after " << now_s << " s";
    ++checked;
  }
  EXPECT_GT(lowered, 20);
  EXPECT_GT(checked, 5'000);
}

std::map<LinkWitness, LinkEvidence> Against(LinkId link, Owner from, Owner to) {
  std::map<LinkWitness, LinkEvidence> evidence;
  for (Owner owner = from; owner < to; ++owner) evidence[{link, owner}] = {.lanes = 1, .text = "a lane"};
  return evidence;
}

TEST(BadLinks, OfALinkSoManyOwnersAreKnown) {
  const LinkId link(1), other(2);
  BadLinks links(Seconds(30));
  EXPECT_EQ(links.Take(Against(link, 0, kMany), Seconds(0)).size(), BadLinks::kMostOwners);
  EXPECT_EQ(links.known(), BadLinks::kMostOwners);
  EXPECT_TRUE(links.Take(Against(link, 5000, 5001), Seconds(1)).empty()) << "all places are of owners for whom it is bad";
  EXPECT_EQ(links.Take(Against(other, 5000, 5001), Seconds(1)).size(), 1u) << "each link has its own";
  // For 30 s nothing has spoken against the first link: good again for all, and whoever comes takes a place.
  EXPECT_EQ(links.Take({}, Seconds(30)).size(), BadLinks::kMostOwners);
  const auto verdicts = links.Take(Against(link, 5000, 5001), Seconds(30.5));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].owner, 5000);
  EXPECT_TRUE(verdicts[0].bad);
  EXPECT_EQ(links.known(), BadLinks::kMostOwners + 1);
}

TEST(BadLinks, WhatNothingHasSpokenAgainstForAnHourIsForgotten) {
  const LinkId link(1);
  BadLinks links(Seconds(30));
  links.Take(Against(link, 0, 10), Seconds(0));
  EXPECT_EQ(links.Take({}, Seconds(40)).size(), 10u);
  links.Take({}, Seconds(3600));
  EXPECT_EQ(links.known(), 10u) << "until then the next time is longer";
  links.Take({}, Seconds(3601));
  EXPECT_EQ(links.known(), 0u);
}

}  // namespace
}  // namespace weft::controller

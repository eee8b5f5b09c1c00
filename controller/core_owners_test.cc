// Whose word counts for whom: tenants who say of their own flows what is not so, against a simulated cluster.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using ::testing::HasSubstr;

constexpr uint32_t kVictim = 1001, kForger = 1002, kThird = 1003;
constexpr double kLine = 100e6;
constexpr double kPromise = 3;  // seconds after which a link that gives less is found
constexpr double kBurst = 0.96;  // 12 MB at 100 Mbit/s, behind 0.4 s of compute

CoreOptions Options() {
  CoreOptions options;
  options.mode = v1::MODE_ENFORCE;
  options.rates.line_rate = BitsPerSecond(kLine);
  options.monitor.lossy_links = true;
  return options;
}

/// Two leaves with two hosts each and two spines; one job of each user from the first leaf to the second.
class CoreOwners : public ::testing::Test {
 protected:
  /// Jobs a (h1 to h3) and b (h2 to h4), each on a spine of its own once planned.
  void Start(std::map<std::string, uint32_t> users) {
    users_ = std::move(users);
    cluster_.retouch = [this](v1::HostSample& sample) { Retouch(sample); };
    cluster_.RegisterAll();
    cluster_.Run(0.5);
    cluster_.Start({.id = "a", .ring = {"h1", "h3"}}, 0);
    cluster_.Start({.id = "b", .ring = {"h2", "h4"}}, 1);
    cluster_.Run(0.3);
    cluster_.Probe("a");
    cluster_.Probe("b");
    cluster_.Run(8);
    ASSERT_NE(SpineOf("a", "h1"), SpineOf("b", "h2"));
  }
  void Retouch(v1::HostSample& sample) {
    for (v1::FlowIdentity& identity : *sample.mutable_opened()) {
      job_of_[identity.flow()] = identity.job_id();
      identity.set_user_id(users_.at(identity.job_id()));
    }
    for (v1::FlowCounters& counters : *sample.mutable_counters()) {
      const std::string& job = job_of_.at(counters.flow());
      counters.set_user_id(users_.at(job));
      if (forge_ && job == "b") forge_(counters);
    }
  }
  /// Says that bytes wait all the time, and that 1 Mbit/s arrives.
  void ForgeBacklog(v1::FlowCounters& counters) const {
    if (counters.send()) return;
    for (v1::LaneCounters& lane : *counters.mutable_lanes()) {
      lane.set_backlog_s(cluster_.now());
      lane.set_backlog_bytes(static_cast<int64_t>(cluster_.now() * 1e6 / 8));
    }
  }
  size_t SpineOf(const std::string& job, const std::string& host) const {
    const std::vector<double> shares = cluster_.Shares(job, host);
    return static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
  }
  std::string SpineName(const std::string& job, const std::string& host) const {
    return fmt::format("spine{}", SpineOf(job, host) + 1);
  }
  double Available(const std::string& from, const std::string& to) const {
    for (const v1::LinkStatus& link : core_.Links()) {
      if (link.from() == from && link.to() == to) return link.available_bps();
    }
    return -1;
  }
  /// Says of what b sends that nothing is acknowledged, and that it is sent again and again.
  void ForgeSilenceAndLoss(v1::FlowCounters& counters) {
    if (!counters.send()) return;
    again_ += 500;
    for (v1::LaneCounters& lane : *counters.mutable_lanes()) {
      lane.set_silent_s(5);
      lane.set_retransmits(again_);
    }
  }
  double LeastAvailable() const {
    double least = 1e300;
    for (const v1::LinkStatus& link : core_.Links()) least = std::min(least, link.available_bps());
    return least;
  }
  std::string CapacityReasons() const {
    std::string text;
    for (const v1::Decision& decision : core_.decisions()) {
      if (decision.kind() == "capacity") text += decision.reason() + "\n";
    }
    return text;
  }

  Core core_{Options()};
  FakeCluster cluster_{core_, 2, 2, 2};
  std::map<std::string, uint32_t> users_;
  std::map<uint64_t, std::string> job_of_;
  std::function<void(v1::FlowCounters&)> forge_;
  int64_t again_ = 0;
};

TEST_F(CoreOwners, AForgedBacklogLowersTheForgersOwnLinksOnly) {
  Start({{"a", kVictim}, {"b", kForger}});
  const std::vector<double> before = cluster_.Shares("a", "h1"), back = cluster_.Shares("a", "h3");
  forge_ = [this](v1::FlowCounters& counters) { ForgeBacklog(counters); };
  cluster_.Run(30);
  EXPECT_THAT(CapacityReasons(), HasSubstr("for flows of uid 1002 from now on"));
  EXPECT_THAT(CapacityReasons(), ::testing::Not(HasSubstr("uid 1001")));
  EXPECT_EQ(LeastAvailable(), kLine);
  EXPECT_EQ(cluster_.Shares("a", "h1"), before);
  EXPECT_EQ(cluster_.Shares("a", "h3"), back);
}

// The forger's flow says that it sends a hundred times what it does: on the victim's links it is no load that would explain that they give less.
TEST_F(CoreOwners, WhoClaimsMoreThanTheNicSentIsDoubtedAndSaidSo) {
  Start({{"a", kVictim}, {"b", kForger}});
  cluster_.Run(10);
  const auto claims = [this] {
    std::vector<std::string> reasons;
    for (const v1::Decision& decision : core_.decisions()) {
      if (decision.kind() == "claims") reasons.push_back(decision.reason());
    }
    return reasons;
  };
  EXPECT_THAT(claims(), ::testing::IsEmpty()) << "nobody has lied";
  forge_ = [](v1::FlowCounters& counters) {
    for (v1::LaneCounters& lane : *counters.mutable_lanes()) lane.set_wire_bytes(100 * lane.wire_bytes());
  };
  cluster_.Run(20);
  ASSERT_THAT(claims(), ::testing::SizeIs(2)) << "one of each of b's hosts";
  for (const std::string& reason : claims()) EXPECT_THAT(reason, HasSubstr("flows of uid 1002 on host h"));
  EXPECT_THAT(claims().front(), HasSubstr("what they say counts for nobody else"));
  forge_ = nullptr;
  cluster_.Run(90);
  EXPECT_THAT(claims().back(), HasSubstr("believed again"));
}

TEST_F(CoreOwners, WhereAllJobsAreOfOneUserHisWordIsEnough) {
  Start({{"a", kVictim}, {"b", kVictim}});
  const std::string spine = SpineName("b", "h2");
  forge_ = [this](v1::FlowCounters& counters) { ForgeBacklog(counters); };
  double least = kLine;  // what was carried soon disproves him
  for (double run = 0; run < kBurst + kPromise; run += 0.2) {
    cluster_.Run(0.2);
    least = std::min(least, Available("leaf1", spine));
  }
  EXPECT_LT(least, 10e6);
  EXPECT_THAT(CapacityReasons(), ::testing::Not(HasSubstr("uid")));
}

TEST_F(CoreOwners, ForgedSilenceAndLossTakeNoLinkFromOthers) {
  Start({{"a", kVictim}, {"b", kForger}});
  const std::vector<double> before = cluster_.Shares("a", "h1"), back = cluster_.Shares("a", "h3");
  forge_ = [this](v1::FlowCounters& counters) { ForgeSilenceAndLoss(counters); };
  cluster_.Run(20);
  EXPECT_THAT(CapacityReasons(), HasSubstr("answers nobody")) << "it is heard";
  EXPECT_THAT(CapacityReasons(), HasSubstr("for flows of uid 1002 from now on"));
  EXPECT_THAT(CapacityReasons(), ::testing::Not(HasSubstr("uid 1001")));
  EXPECT_EQ(LeastAvailable(), kLine);
  EXPECT_EQ(cluster_.Shares("a", "h1"), before);
  EXPECT_EQ(cluster_.Shares("a", "h3"), back);
}

// What the test above has without effect on others, from him whose flows all are: without this it would hold of evidence that counts for
// nobody.
TEST_F(CoreOwners, TheSameSilenceAndLossCountWhereAllFlowsAreHis) {
  Start({{"a", kVictim}, {"b", kVictim}});
  const std::string spine = SpineName("b", "h2");
  forge_ = [this](v1::FlowCounters& counters) { ForgeSilenceAndLoss(counters); };
  cluster_.Run(kPromise);
  EXPECT_LT(Available("leaf1", spine), 0.05 * kLine) << CapacityReasons();
  EXPECT_THAT(CapacityReasons(), HasSubstr("answers nobody"));
  EXPECT_THAT(CapacityReasons(), ::testing::Not(HasSubstr("uid")));
}

// 50 of 100 Mbit/s: half of what was planned for that way stays on it, and the rest takes the other.
TEST_F(CoreOwners, ALinkThatIsSlowIsFoundByTheOnlyOneWhoUsesIt) {
  Start({{"a", kVictim}, {"b", kForger}});
  const size_t spine = SpineOf("a", "h1");
  const std::vector<double> others = cluster_.Shares("b", "h2");
  cluster_.SetRate("leaf1", SpineName("a", "h1"), 50e6);
  cluster_.Run(kBurst + kPromise);
  EXPECT_THAT(CapacityReasons(), HasSubstr("for flows of uid 1001 from now on"));
  EXPECT_LT(cluster_.Shares("a", "h1")[spine], 0.7);
  EXPECT_EQ(cluster_.Shares("b", "h2"), others);
  EXPECT_EQ(LeastAvailable(), kLine) << "nobody else has said so";
}

TEST_F(CoreOwners, WhatTwoUsersFindCountsForAll) {
  Start({{"a", kVictim}, {"b", kForger}, {"c", kThird}});
  cluster_.Start({.id = "c", .ring = {"h1", "h4"}}, static_cast<int>(SpineOf("a", "h1")));
  cluster_.Run(0.3);
  cluster_.Probe("c");
  cluster_.Run(8);
  for (const char* spine : {"spine1", "spine2"}) cluster_.SetRate("leaf1", spine, 40e6);
  cluster_.Run(30);
  EXPECT_LT(std::min(Available("leaf1", "spine1"), Available("leaf1", "spine2")), 70e6) << CapacityReasons();
}

TEST_F(CoreOwners, NobodySpeaksForAnothersFlow) {
  Start({{"a", kVictim}, {"b", kForger}});
  const int64_t ignored = core_.ignored();
  uint64_t flow = 0;
  for (const auto& [id, job] : job_of_) {
    if (job == "a") flow = std::max(flow, id);
  }
  // A process of the forger's on the receiving host, which knows the number of the victim's flow.
  cluster_.retouch = [this, flow](v1::HostSample& sample) {
    Retouch(sample);
    for (v1::FlowCounters& counters : *sample.mutable_counters()) {
      if (counters.send() || counters.flow() != flow) continue;
      v1::FlowCounters forged = counters;
      forged.set_user_id(kForger);
      ForgeBacklog(forged);
      *sample.add_counters() = forged;
      break;
    }
  };
  cluster_.Run(20);
  EXPECT_GT(core_.ignored(), ignored);
  EXPECT_EQ(LeastAvailable(), kLine);
  EXPECT_EQ(CapacityReasons(), "");
}

}  // namespace
}  // namespace weft::controller

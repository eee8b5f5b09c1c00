// What receivers say of their lanes' waits, as it lands in the lanes of the senders' flows.
#include "controller/flow_table.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft::controller {
namespace {

constexpr double kSlot = 0.25;  // binary fractions: what is spread over slots adds up exactly
constexpr double kInterval = 0.5;
constexpr uint64_t kFlow = 7;
constexpr int32_t kPort = 40001;

using Credit = std::pair<double, double>;  // seconds of backlog, bytes delivered in them
const Credit kNothing{0, 0};

void AddLane(v1::FlowCounters& counters, int32_t port, double backlog_s, int64_t backlog_bytes) {
  v1::LaneCounters* lane = counters.add_lanes();
  lane->set_source_port(port);
  lane->set_state("active");
  lane->set_backlog_s(backlog_s);
  lane->set_backlog_bytes(backlog_bytes);
}

/// One flow from h1 to h2, whose agents sample in turns; h3 has no part in it.
struct Hosts {
  Hosts() {
    for (const std::string host : {"h1", "h2", "h3"}) Register(host);
  }

  void Register(const std::string& host) { fabric.SetHost(host, std::vector<std::string>{"addr-" + host}); }

  Change Open(const std::string& peer = "h2") {
    v1::FlowIdentity identity;
    identity.set_flow(kFlow);
    identity.set_job_id("job");
    identity.set_send(true);
    identity.set_local_address("addr-h1");
    identity.set_peer_address("addr-" + peer);
    return table.Open("h1", identity, true, now_s);
  }

  /// The sender's agent lists these lanes; nothing was sent.
  void ListLanes(const std::vector<int32_t>& ports) {
    v1::FlowCounters counters;
    counters.set_flow(kFlow);
    counters.set_send(true);
    for (const int32_t port : ports) AddLane(counters, port, 0, 0);
    table.Count("h1", counters, now_s - kInterval, now_s);
  }

  void Start() {
    Open();
    ListLanes({kPort});
  }

  Credit Total(int32_t port = kPort) {
    const SendFlow* flow = table.Find(kFlow);
    if (flow == nullptr || !flow->lanes.contains(port)) return kNothing;
    const Lane& lane = flow->lanes.at(port);
    return {lane.backlog.Sum(0, 1000), lane.delivered.Sum(0, 1000)};
  }

  void Count(v1::FlowCounters counters, const std::string& host = "h2") {
    counters.set_flow(kFlow);
    EXPECT_EQ(table.Count(host, counters, now_s, now_s + kInterval), Change::kNone);
    now_s += kInterval;
  }

  /// What the newest sample of `host`, with these counters of kPort, added to the sender's lane.
  Credit Report(double backlog_s, int64_t backlog_bytes, const std::string& host = "h2") {
    const Credit before = Total();
    v1::FlowCounters counters;
    AddLane(counters, kPort, backlog_s, backlog_bytes);
    Count(counters, host);
    const Credit after = Total();
    return {after.first - before.first, after.second - before.second};
  }

  FabricView fabric{LinkRates{}};
  FlowTable table{kSlot, &fabric};
  double now_s = 1;
};

TEST(FlowTable, ArrivalsSinceTheFirstReportAreSpreadOverTheSlotsOfTheirSample) {
  Hosts hosts;
  hosts.Start();
  EXPECT_EQ(hosts.Report(3, 9000), kNothing);  // the base line: since when they count is not known
  EXPECT_EQ(hosts.Report(3.25, 11000), Credit(0.25, 2000));
  const Lane& lane = hosts.table.Find(kFlow)->lanes.at(kPort);
  for (const int64_t slot : {6, 7}) {  // of (1.5 s, 2 s]
    EXPECT_EQ(lane.backlog.At(slot), 0.125) << slot;
    EXPECT_EQ(lane.delivered.At(slot), 1000) << slot;
  }
  EXPECT_EQ(hosts.Report(3.25, 11000), kNothing);
  EXPECT_EQ(hosts.Report(3.75, 12000), Credit(0.5, 1000));
  EXPECT_EQ(hosts.table.ignored(), 0);
}

TEST(FlowTable, EveryLaneHasItsOwnBacklog) {
  Hosts hosts;
  hosts.Open();
  hosts.ListLanes({kPort, kPort + 1});
  for (const int64_t report : {0, 1}) {
    v1::FlowCounters counters;
    AddLane(counters, kPort, 0.125 * static_cast<double>(report), 1000 * report);
    AddLane(counters, kPort + 1, 2 + 0.25 * static_cast<double>(report), 5000 + 4000 * report);
    hosts.Count(counters);
  }
  EXPECT_EQ(hosts.Total(kPort), Credit(0.125, 1000));
  EXPECT_EQ(hosts.Total(kPort + 1), Credit(0.25, 4000));
}

/// Over RDMA the sender measures its path; what the receiver says of the lane, nothing, does not set it back.
TEST(FlowTable, ASendersOwnMeasureCountsAndItsReceiversDoesNotThen) {
  Hosts hosts;
  hosts.Start();
  const auto sender_says = [&](double backlog_s, int64_t bytes) {
    const Credit before = hosts.Total();
    v1::FlowCounters counters;
    counters.set_send(true);
    AddLane(counters, kPort, backlog_s, bytes);
    hosts.Count(counters, "h1");
    return Credit(hosts.Total().first - before.first, hosts.Total().second - before.second);
  };
  EXPECT_EQ(hosts.Report(0, 0), kNothing);
  EXPECT_EQ(sender_says(1, 1000), kNothing);  // since when is not known
  EXPECT_EQ(hosts.Report(0, 0), kNothing);
  EXPECT_EQ(sender_says(1.25, 3000), Credit(0.25, 2000));
  EXPECT_EQ(hosts.Report(7, 9000), kNothing);
  EXPECT_EQ(sender_says(1.5, 4000), Credit(0.25, 1000));
  EXPECT_EQ(sender_says(2.5, 8000), Credit(0.5, 2000)) << "it has been told of a second at once, in a sample of half a second";
  EXPECT_EQ(sender_says(2.5, 8000), Credit(0.5, 2000)) << "and the rest";
  EXPECT_EQ(sender_says(2.5, 8000), kNothing);
}

TEST(FlowTable, NothingElseThatAReceiverSaysCounts) {
  Hosts hosts;
  hosts.Start();
  for (const int64_t report : {0, 1}) {
    v1::FlowCounters counters;
    AddLane(counters, kPort, 0, 0);
    counters.mutable_lanes(0)->set_wire_bytes(6000 * report);
    counters.mutable_lanes(0)->set_state("failed");
    counters.set_period_s(1);
    hosts.Count(counters);
  }
  const SendFlow& flow = *hosts.table.Find(kFlow);
  EXPECT_EQ(flow.wire_bytes, 0);
  EXPECT_EQ(flow.period_s, 0);
  EXPECT_EQ(flow.lanes.at(kPort).carried.Sum(0, 1000), 0);
  EXPECT_TRUE(flow.lanes.at(kPort).active);
}

TEST(FlowTable, OnlyTheFlowsPeerSpeaksOfItsArrivals) {
  Hosts hosts;
  hosts.Start();
  EXPECT_EQ(hosts.Report(0.5, 500, "h3"), kNothing);
  EXPECT_EQ(hosts.table.ignored(), 1);
  EXPECT_EQ(hosts.Report(1, 1000), kNothing);  // the base line still: h3 gave none
  for (const std::string stranger : {"h1", "h3", "h9"}) {
    const int64_t ignored = hosts.table.ignored();
    EXPECT_EQ(hosts.Report(1.5, 50000, stranger), kNothing) << stranger;
    EXPECT_EQ(hosts.table.ignored(), ignored + 1) << stranger;
  }
  EXPECT_EQ(hosts.Report(1.25, 3000), Credit(0.25, 2000));
}

TEST(FlowTable, ReceiverMaySpeakBeforeTheSender) {
  Hosts hosts;
  v1::FlowIdentity end;  // the receiver's, which is not the one that is kept
  end.set_flow(kFlow);
  end.set_local_address("addr-h2");
  end.set_peer_address("addr-h1");
  EXPECT_EQ(hosts.table.Open("h2", end, true, hosts.now_s), Change::kNone);
  EXPECT_EQ(hosts.Report(1, 1000), kNothing);
  EXPECT_TRUE(hosts.table.flows().empty());
  EXPECT_EQ(hosts.Open(), Change::kFlows);
  EXPECT_EQ(hosts.Report(1.25, 2000), kNothing);  // no lane is known yet
  EXPECT_TRUE(hosts.table.Find(kFlow)->lanes.empty());
  hosts.ListLanes({kPort});
  EXPECT_EQ(hosts.Report(1.5, 3000), kNothing);
  EXPECT_EQ(hosts.Report(1.75, 4000), Credit(0.25, 1000));
  EXPECT_EQ(hosts.table.ignored(), 0);
}

TEST(FlowTable, ArrivalsCountFromWhenThePeersAddressIsKnown) {
  Hosts hosts;
  hosts.Open("h4");
  hosts.ListLanes({kPort});
  EXPECT_EQ(hosts.Report(1, 1000, "h4"), kNothing);
  EXPECT_EQ(hosts.Report(1.25, 2000, "h4"), kNothing);
  EXPECT_EQ(hosts.table.ignored(), 0);
  hosts.Register("h4");
  EXPECT_EQ(hosts.Report(1.5, 3000, "h4"), kNothing);
  EXPECT_EQ(hosts.Report(1.75, 4000, "h4"), Credit(0.25, 1000));
}

// A wait is counted when it ends. Of one that began before its sample only the sample's part is credited, at the rate
// of the whole: 8000 bytes in 2 s are 2000 bytes in the 0.5 s that the sample covers. The rest is not made up for.
TEST(FlowTable, WaitLongerThanItsSampleIsCreditedForTheSampleOnly) {
  Hosts hosts;
  hosts.Start();
  hosts.Report(1, 1000);
  EXPECT_EQ(hosts.Report(3, 9000), Credit(0.5, 2000));
  EXPECT_EQ(hosts.Report(3, 9000), kNothing);
  EXPECT_EQ(hosts.Report(3.5, 12000), Credit(0.5, 3000));  // as long as the sample: all of it
}

TEST(FlowTable, CounterThatWentBackGivesANewBaseLine) {
  constexpr double kSeconds[] = {1, 1, 2.5};
  constexpr int64_t kBytes[] = {100, 10000, 100};
  for (size_t i = 0; i < std::size(kSeconds); ++i) {  // both, only the time, only the bytes
    Hosts hosts;
    hosts.Start();
    hosts.Report(2, 8000);
    EXPECT_EQ(hosts.Report(2.25, 9000), Credit(0.25, 1000));
    EXPECT_EQ(hosts.Report(kSeconds[i], kBytes[i]), kNothing) << i;
    EXPECT_EQ(hosts.Report(kSeconds[i] + 0.25, kBytes[i] + 700), Credit(0.25, 700)) << i;
  }
}

TEST(FlowTable, CounterThatIsNoneIsIgnoredAndNoBaseLine) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<double, int64_t>> nonsense = {
      {std::numeric_limits<double>::quiet_NaN(), 1500}, {kInfinity, 1500}, {-kInfinity, 1500}, {-1, 1500}, {1.25, -1}};
  for (const auto& [seconds, bytes] : nonsense) {
    Hosts hosts;
    hosts.Start();
    EXPECT_EQ(hosts.Report(seconds, bytes), kNothing) << seconds << ' ' << bytes;
    EXPECT_EQ(hosts.Report(1, 1000), kNothing) << seconds << ' ' << bytes;  // the first that is one
    EXPECT_EQ(hosts.Report(seconds, bytes), kNothing) << seconds << ' ' << bytes;
    EXPECT_EQ(hosts.table.ignored(), 2) << seconds << ' ' << bytes;
    EXPECT_EQ(hosts.Report(1.25, 2000), Credit(0.25, 1000)) << seconds << ' ' << bytes;
  }
}

TEST(FlowTable, MoreBytesThanAnyHostSendsAreNotCredited) {
  Hosts hosts;
  hosts.Start();
  hosts.Report(1, 1000);
  const auto before = hosts.table.ignored();
  EXPECT_EQ(hosts.Report(1.25, int64_t{1} << 62), kNothing);
  EXPECT_EQ(hosts.table.ignored(), before + 1);
  EXPECT_EQ(hosts.Report(1.5, (int64_t{1} << 62) + 4096), Credit(0.25, 4096));
}

// The plugin adds to one counter after the other, and the agent reads them likewise. A report from in between may have
// the time of an arrival without its bytes: it is credited at once, and they with the time of the next arrival.
TEST(FlowTable, BytesThatComeAReportAfterTheirTimeAreCreditedWithTheNext) {
  Hosts hosts;
  hosts.Start();
  hosts.Report(1, 1000);
  EXPECT_EQ(hosts.Report(1.25, 1000), Credit(0.25, 0));
  EXPECT_EQ(hosts.Report(1.5, 5000), Credit(0.25, 4000));
}

// The other way round: bytes without time are no rate, and credited with the next report's.
TEST(FlowTable, BytesThatComeAReportBeforeTheirTimeAreNotCreditedAlone) {
  Hosts hosts;
  hosts.Start();
  hosts.Report(1, 1000);
  EXPECT_EQ(hosts.Report(1, 3000), kNothing);
  EXPECT_EQ(hosts.Report(1.25, 7000), Credit(0.25, 6000));
  EXPECT_EQ(hosts.Report(1.5, 8000), Credit(0.25, 1000));
}

TEST(FlowTable, ArrivalsFromAnUnknownSourcePortAreIgnored) {
  Hosts hosts;
  hosts.Start();
  for (const int64_t report : {0, 1}) {
    v1::FlowCounters counters;
    for (const int32_t port : {kPort + 1, 0, -1, 70000, kPort}) {
      AddLane(counters, port, 1 + 0.25 * static_cast<double>(report), 1000 + 1000 * report);
    }
    hosts.Count(counters);
  }
  EXPECT_EQ(hosts.table.Find(kFlow)->lanes.size(), 1u);
  EXPECT_EQ(hosts.Total(), Credit(0.25, 1000));
  hosts.ListLanes({kPort, kPort + 1});
  EXPECT_EQ(hosts.Total(kPort + 1), kNothing);
}

// The receiver's counters begin at 0 with a new connection, which may have waited already when they are read.
TEST(FlowTable, LaneOpenedAnewFromTheSamePortStartsFromANewBaseLine) {
  Hosts hosts;
  hosts.Start();
  hosts.Report(4, 8000);
  EXPECT_EQ(hosts.Report(4.25, 9000), Credit(0.25, 1000));
  hosts.ListLanes({});
  hosts.ListLanes({kPort});
  EXPECT_EQ(hosts.Report(0.125, 600), kNothing);
  EXPECT_EQ(hosts.Report(0.375, 1600), Credit(0.25, 1000));
}

TEST(FlowTable, FlowOpenedAnewStartsFromANewBaseLine) {
  Hosts hosts;
  hosts.Start();
  hosts.Report(1, 1000);
  EXPECT_EQ(hosts.Report(1.25, 2000), Credit(0.25, 1000));
  EXPECT_EQ(hosts.table.Close("h2", kFlow), Change::kNone);  // its receive end: the sender's stands
  EXPECT_EQ(hosts.Report(1.5, 3000), Credit(0.25, 1000));
  EXPECT_EQ(hosts.table.Close("h1", kFlow), Change::kFlows);
  EXPECT_EQ(hosts.Report(1.75, 4000), kNothing);
  EXPECT_TRUE(hosts.table.flows().empty());
  hosts.Start();
  EXPECT_EQ(hosts.Total(), kNothing);
  EXPECT_EQ(hosts.Report(2, 5000), kNothing);  // larger than the old flow's last: still only a base line
  EXPECT_EQ(hosts.Report(2.25, 6000), Credit(0.25, 1000));
}

v1::PathReport ReportOf(uint64_t flow, const std::string& spine) {
  v1::PathReport report;
  report.set_flow(flow);
  report.set_local_address("addr-h1");
  report.set_peer_address("addr-h2");
  v1::Path* path = report.add_paths();
  path->set_source_port(kPort);
  path->set_complete(true);
  for (const std::string& hop : {std::string("leaf1"), spine, std::string("leaf2")}) path->add_hops(hop);
  return report;
}

TEST(FlowTable, ALinkLeavesWhenEveryPathOverItHasGoneElsewhere) {
  Hosts hosts;
  hosts.Open();
  hosts.table.AddPaths("h1", ReportOf(kFlow, "spine1"), 1);
  v1::FlowIdentity other = hosts.table.Find(kFlow)->identity;
  other.set_flow(8);
  hosts.table.Open("h1", other, true, 1);
  hosts.table.AddPaths("h1", ReportOf(8, "spine1"), 1);
  const LinkId up = hosts.table.Find(kFlow)->probed.at(kPort).links[1];
  EXPECT_TRUE(hosts.table.TakeLeftLinks().empty());
  hosts.table.AddPaths("h1", ReportOf(kFlow, "spine2"), 2);
  const std::set<LinkId> left = hosts.table.TakeLeftLinks();
  EXPECT_TRUE(left.contains(up));
  EXPECT_FALSE(hosts.fabric.IsGone(up)) << "another flow's path still crosses it";
  EXPECT_EQ(hosts.table.CrossedBy(left).at("h1"), std::vector<uint64_t>{8}) << "which had better be probed again";
  hosts.table.AddPaths("h1", ReportOf(8, "spine2"), 3);
  EXPECT_TRUE(hosts.fabric.IsGone(up));
  std::vector<LinkId> ids;
  EXPECT_EQ(hosts.fabric.Present(&ids).links().size(), hosts.fabric.topology().links().size() - 2);
  hosts.table.AddPaths("h1", ReportOf(8, "spine1"), 4);
  EXPECT_FALSE(hosts.fabric.IsGone(up)) << "seen again";
}

TEST(FlowTable, AFlowThatEndsTakesNoLinkAlong) {
  Hosts hosts;
  hosts.Open();
  hosts.table.AddPaths("h1", ReportOf(kFlow, "spine1"), 1);
  const LinkId up = hosts.table.Find(kFlow)->probed.at(kPort).links[1];
  hosts.table.Close("h1", kFlow);
  EXPECT_FALSE(hosts.fabric.IsGone(up));
}

TEST(FabricView, AnAddressStaysWithAHostThatHoldsIt) {
  FabricView fabric{LinkRates{}};
  const auto held = [](const std::string&) { return true; };
  const std::vector<std::string> first{"10.0.0.1", "172.17.0.1"}, second{"10.0.0.2", "172.17.0.1"};
  EXPECT_TRUE(fabric.SetHost("h1", first, held));
  EXPECT_TRUE(fabric.SetHost("h2", second, held));
  EXPECT_EQ(*fabric.HostOf("172.17.0.1"), "h1");
  EXPECT_FALSE(fabric.SetHost("h2", second, held)) << "nothing has changed hands";
  EXPECT_TRUE(fabric.SetHost("h1", std::vector<std::string>{"10.0.0.1"}, held));
  EXPECT_EQ(*fabric.HostOf("172.17.0.1"), "h2") << "given up, and claimed before";
  EXPECT_FALSE(fabric.SetHost("h1", first, held));
  EXPECT_TRUE(fabric.LeaveHost("h2", held)) << "an address that moves to another host when this one dies";
  EXPECT_EQ(*fabric.HostOf("172.17.0.1"), "h1");
  EXPECT_EQ(*fabric.HostOf("10.0.0.2"), "h2") << "nobody else claims it";
  EXPECT_FALSE(fabric.LeaveHost("h1", held));
}

}  // namespace
}  // namespace weft::controller

// Facts about a real fabric. Needs root; see require_fabric.h.
#include "testbed/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>

#include <algorithm>
#include <set>

#include "testbed/fabric_sockets.h"
#include "testbed/pidfd.h"
#include "testbed/process.h"
#include "testbed/require_fabric.h"

namespace weft::testbed {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class FabricTest : public ::testing::Test {
 protected:
  void SetUp() override { WEFT_REQUIRE_FABRIC(); }

  static std::unique_ptr<Fabric> Build(const FabricOptions& options = {}) {
    auto fabric = Fabric::Create(options);
    EXPECT_TRUE(fabric.has_value()) << fabric.error().message();
    return fabric ? std::move(*fabric) : nullptr;
  }
};

/// How many of the plan's namespaces and root devices exist.
size_t PartsOf(const FabricPlan& plan) {
  size_t parts = 0;
  for (const std::string& name : plan.Namespaces()) parts += NamespaceExists(name) ? 1 : 0;
  for (const FabricHost& host : plan.hosts) parts += ::if_nametoindex(plan.BridgePort(host).c_str()) != 0 ? 1 : 0;
  return parts + (::if_nametoindex(plan.bridge.c_str()) != 0 ? 1 : 0);
}

std::string SpineOf(const Fabric& fabric, const FlowTuple& flow) {
  const auto path = fabric.PathOf(flow);
  EXPECT_TRUE(path.has_value()) << path.error().message();
  return path && path->size() == 5 ? (*path)[2] : "";
}

std::set<std::string> SpinesOver(const Fabric& fabric, const std::string& from, const std::string& to, int ports) {
  std::set<std::string> spines;
  for (int i = 0; i < ports; ++i) spines.insert(SpineOf(fabric, {from, to, static_cast<uint16_t>(41000 + i), 5000}));
  return spines;
}

int64_t SentOver(Fabric& fabric, const std::string& from, const std::string& to,
                 int64_t LinkCounters::*field = &LinkCounters::bytes) {
  const auto counters = fabric.ReadCounters();
  EXPECT_TRUE(counters.has_value()) << counters.error().message();
  const std::vector<FabricLink> links = fabric.links();
  for (size_t i = 0; counters && i < links.size(); ++i) {
    if (links[i].from == from && links[i].to == to) return (*counters)[i].*field;
  }
  ADD_FAILURE() << "no link from " << from << " to " << to;
  return 0;
}

TEST_F(FabricTest, UpAndDownLeaveNothingBehind) {
  FabricPlan plan;
  {
    const auto fabric = Build();
    ASSERT_TRUE(fabric);
    plan = fabric->plan();
    EXPECT_EQ(PartsOf(plan), 12U + 8 + 1);  // namespaces, management ports, bridge
    EXPECT_TRUE(StateStore().Read(fabric->id()).has_value());
  }
  EXPECT_EQ(PartsOf(plan), 0U);
  EXPECT_FALSE(StateStore().Read(plan.options.id).has_value());
}

TEST_F(FabricTest, TwoStandSideBySide) {
  const auto one = Build({.hosts_per_leaf = 1});
  const auto two = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(one && two);
  EXPECT_NE(one->id(), two->id());
  EXPECT_NE(one->mgmt_gateway(), two->mgmt_gateway());
  for (const Fabric* fabric : {one.get(), two.get()}) {
    EXPECT_EQ(KnockAt(fabric->hosts()[0].netns, fabric->hosts()[1].data_address), ECONNREFUSED);
    EXPECT_EQ(KnockAt("", fabric->hosts()[1].mgmt_address), ECONNREFUSED);  // from this machine's own namespace
    EXPECT_EQ(KnockAt(fabric->hosts()[0].netns, fabric->mgmt_gateway()), ECONNREFUSED);
  }
  const auto again = Fabric::Create({.id = two->id()});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(again.error().message(), HasSubstr("\"" + two->id() + "\" exists already"));
}

TEST_F(FabricTest, EveryHostReachesEveryOther) {
  const auto fabric = Build({.hosts_per_leaf = 2});
  ASSERT_TRUE(fabric);
  for (const FabricHost& from : fabric->hosts()) {
    for (const FabricHost& to : fabric->hosts()) {
      EXPECT_EQ(KnockAt(from.netns, to.data_address), ECONNREFUSED) << from.name << " to " << to.name;
    }
  }
}

TEST_F(FabricTest, TcpGoesWhereGroundTruthSays) {
  const auto fabric = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(fabric);
  constexpr size_t kBytes = 100'000;
  std::set<std::string> spines;
  for (uint16_t port = 41001; port <= 41012; ++port) {
    const std::string spine = SpineOf(*fabric, {"h1", "h2", port, 6000});
    spines.insert(spine);
    const int64_t before = SentOver(*fabric, "leaf1", spine);
    ASSERT_EQ(SendOverTcp(fabric->hosts()[0].netns, port, fabric->hosts()[1].netns, fabric->hosts()[1].data_address,
                          6000, kBytes), kBytes);
    EXPECT_GT(SentOver(*fabric, "leaf1", spine) - before, int64_t{kBytes}) << "source port " << port;
  }
  // Twelve fair draws from two spines are all alike once in 2048 runs; 64 more settle it.
  if (spines.size() == 1) spines = SpinesOver(*fabric, "h1", "h2", 64);
  EXPECT_EQ(spines, (std::set<std::string>{"spine1", "spine2"}));
}

TEST_F(FabricTest, TheSameSeedDrawsTheSamePaths) {
  const auto one = Build({.hosts_per_leaf = 1, .hash_seed = 4711});
  const auto two = Build({.hosts_per_leaf = 1, .hash_seed = 4711});
  ASSERT_TRUE(one && two);
  for (uint16_t port = 41000; port < 41016; ++port) {
    EXPECT_EQ(SpineOf(*one, {"h1", "h2", port, 5000}), SpineOf(*two, {"h1", "h2", port, 5000})) << port;
  }
}

TEST_F(FabricTest, EachSwitchAnswersFromOneAddress) {
  const auto fabric = Build({.hosts_per_leaf = 2});
  ASSERT_TRUE(fabric);
  const auto identity = [&](const std::string& spine) { return spine == "spine1" ? "10.255.2.1" : "10.255.2.2"; };
  // From two hosts of leaf 1, then the way back: leaf1, a spine and leaf2 each see several ingress ports.
  for (const auto& [from, to] : {std::pair(0, 2), std::pair(1, 2), std::pair(2, 0), std::pair(3, 1)}) {
    const FabricHost& source = fabric->hosts()[static_cast<size_t>(from)];
    const FabricHost& target = fabric->hosts()[static_cast<size_t>(to)];
    const bool forward = source.leaf == "leaf1";
    EXPECT_EQ(WhoAnswers(source.netns, 42000, target.data_address, 4791, 1), forward ? "10.255.1.1" : "10.255.1.2");
    EXPECT_EQ(WhoAnswers(source.netns, 42000, target.data_address, 4791, 2),
              identity(SpineOf(*fabric, {source.name, target.name, 42000, 4791, "udp"})));
    EXPECT_EQ(WhoAnswers(source.netns, 42000, target.data_address, 4791, 3), forward ? "10.255.1.2" : "10.255.1.1");
  }
}

TEST_F(FabricTest, MarkedPacketsGoToThePriorityClass) {
  const auto fabric = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(fabric);
  const FabricHost& h1 = fabric->hosts()[0];
  const auto priority = [&] { return SentOver(*fabric, "h1", "leaf1", &LinkCounters::priority_bytes); };
  const sockaddr_in peer = Endpoint(fabric->hosts()[1].data_address, 9);
  const auto send = [&](int traffic_class) {
    const UniqueFd fd = OpenSocket(h1.netns, SOCK_DGRAM, 0);
    ::setsockopt(fd.get(), IPPROTO_IP, IP_TOS, &traffic_class, sizeof(traffic_class));
    const std::vector<char> data(1000);
    ASSERT_EQ(::sendto(fd.get(), data.data(), data.size(), 0, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)),
              1000);
  };
  ASSERT_EQ(KnockAt(h1.netns, fabric->hosts()[1].data_address), ECONNREFUSED);  // neighbours are known from here on
  send(0x00);
  EXPECT_EQ(priority(), 0);
  send(0x68);
  EXPECT_EQ(priority(), 1000 + 8 + 20 + 14);  // UDP, IPv4 and Ethernet headers
  send(0x6a);                                 // with an ECN mark: the same class
  EXPECT_EQ(priority(), 2 * 1042);
}

TEST_F(FabricTest, FairPortsCountEachByteOnce) {
  const auto fabric = Build({.hosts_per_leaf = 1, .fair = true});
  ASSERT_TRUE(fabric);
  const FabricHost& h1 = fabric->hosts()[0];
  const sockaddr_in peer = Endpoint(fabric->hosts()[1].data_address, 9);
  const UniqueFd fd = OpenSocket(h1.netns, SOCK_DGRAM, 0);
  const int traffic_class = 0x68;
  ::setsockopt(fd.get(), IPPROTO_IP, IP_TOS, &traffic_class, sizeof(traffic_class));
  ASSERT_EQ(KnockAt(h1.netns, fabric->hosts()[1].data_address), ECONNREFUSED);  // neighbours are known from here on
  const int64_t before = SentOver(*fabric, "h1", "leaf1", &LinkCounters::bytes);
  const std::vector<char> data(1000);
  ASSERT_EQ(::sendto(fd.get(), data.data(), data.size(), 0, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)), 1000);
  EXPECT_EQ(SentOver(*fabric, "h1", "leaf1", &LinkCounters::bytes) - before, 1042);  // UDP, IPv4 and Ethernet headers
  EXPECT_EQ(SentOver(*fabric, "h1", "leaf1", &LinkCounters::priority_bytes), 1042);
}

TEST_F(FabricTest, PortsHoldTheirRateAndANewOne) {
  const auto fabric = Build({.hosts_per_leaf = 1, .link_rate = MegabitsPerSecond(100)});
  ASSERT_TRUE(fabric);
  const FabricHost& h1 = fabric->hosts()[0];
  const FabricHost& h2 = fabric->hosts()[1];
  const auto once = [&](BitsPerSecond rate) {
    // Bytes per second of the receiver's own clock, from its JSON: the only number after "bits_per_second" in
    // "sum_received". A full stream carries 1448 payload bytes in a frame of 1514.
    auto server = Spawn({.argv = {"iperf3", "-s", "-1", "--forceflush"}, .netns = h2.netns, .out = Output::Pipe()});
    EXPECT_TRUE(server.has_value());
    for (auto line = server->out_lines()->Next(Seconds(20)); line && *line; line = server->out_lines()->Next(Seconds(20))) {
      if ((*line)->find("listening") != std::string::npos) break;
    }
    const auto client = CheckCommand({.argv = {"iperf3", "-c", h2.data_address, "-t", "1", "-J"}, .netns = h1.netns},
                                     Seconds(30));
    EXPECT_TRUE(client.has_value()) << client.error().message();
    const size_t sum = client->find("\"sum_received\"");
    const size_t value = client->find("\"bits_per_second\":", sum);
    if (sum == std::string::npos || value == std::string::npos) return 0.0;
    return std::atof(client->c_str() + value + 18) / rate.value();
  };
  // A busy machine can only slow a stream. So every stream must keep to the rate, and one of five must fill it.
  const auto ratio_to = [&](BitsPerSecond rate, double filled, double most) {
    double best = 0;
    for (int i = 0; i < 5 && best <= filled; ++i) {
      const double ratio = once(rate);
      EXPECT_LE(ratio, most);
      best = std::max(best, ratio);
    }
    return best;
  };
  const int64_t before = SentOver(*fabric, "h1", "leaf1");
  EXPECT_GT(ratio_to(MegabitsPerSecond(100), 0.90, 1.0), 0.90);
  EXPECT_GT(SentOver(*fabric, "h1", "leaf1") - before, 10'000'000);

  ASSERT_TRUE(fabric->SetCableRate("h2", "leaf2", MegabitsPerSecond(20)).has_value());
  EXPECT_EQ(fabric->links()[3].rate, MegabitsPerSecond(20));
  // One second at 20 Mbit/s has a start and an end, and 64 KiB of burst.
  EXPECT_GT(ratio_to(MegabitsPerSecond(20), 0.85, 1.05), 0.85);
}

TEST_F(FabricTest, CountersCountFramesOfFullSegments) {
  const auto fabric = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(fabric);
  constexpr size_t kBytes = 4'000'000;
  ASSERT_EQ(SendOverTcp(fabric->hosts()[0].netns, 41000, fabric->hosts()[1].netns, fabric->hosts()[1].data_address,
                        6000, kBytes), kBytes);
  // Every full segment: 1448 payload, 12 timestamps, 20 TCP, 20 IPv4, 14 Ethernet.
  const double expected = static_cast<double>(kBytes) * 1514 / 1448;
  EXPECT_NEAR(static_cast<double>(SentOver(*fabric, "leaf2", "h2")) / expected, 1, 0.01);
  EXPECT_NEAR(static_cast<double>(SentOver(*fabric, "leaf2", "h2", &LinkCounters::packets)) / (kBytes / 1448.0), 1, 0.05);
}

TEST_F(FabricTest, ADownCableIsRoutedAroundAndComesBack) {
  const auto fabric = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(fabric);
  const std::string h1 = fabric->hosts()[0].netns;
  const std::string to = fabric->hosts()[1].data_address;
  ASSERT_TRUE(fabric->SetLinkDown("leaf1", "spine1").has_value());
  EXPECT_EQ(SpinesOver(*fabric, "h1", "h2", 12), std::set<std::string>{"spine2"});
  EXPECT_EQ(SpinesOver(*fabric, "h2", "h1", 12), std::set<std::string>{"spine2"});  // the far leaf knows
  EXPECT_EQ(KnockAt(h1, to), ECONNREFUSED);
  ASSERT_TRUE(fabric->SetLinkUp("spine1", "leaf1").has_value());
  EXPECT_EQ(SpinesOver(*fabric, "h2", "h1", 24).size(), 2U);
  EXPECT_EQ(SpinesOver(*fabric, "h1", "h2", 24).size(), 2U);

  ASSERT_TRUE(fabric->SetLinkDown("leaf1", "spine1", Rerouting::kStatic).has_value());
  EXPECT_EQ(SpinesOver(*fabric, "h1", "h2", 12), std::set<std::string>{"spine2"});
  EXPECT_EQ(SpinesOver(*fabric, "h2", "h1", 24).size(), 2U);  // the far leaf does not know
  ASSERT_TRUE(fabric->SetLinkUp("leaf1", "spine1").has_value());

  ASSERT_TRUE(fabric->SetLinkDown("h1", "leaf1").has_value());
  EXPECT_EQ(KnockAt(h1, to), ENETUNREACH);
  ASSERT_TRUE(fabric->SetLinkUp("h1", "leaf1").has_value());
  EXPECT_EQ(KnockAt(h1, to), ECONNREFUSED);

  const auto none = fabric->SetLinkDown("h1", "spine1");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_THAT(none.error().message(), HasSubstr("no cable from \"h1\" to \"spine1\""));
}

TEST_F(FabricTest, SpawnedProcessesLiveInTheirNamespaceAndDieWithIt) {
  auto fabric = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(fabric);
  const std::string h1 = fabric->hosts()[0].netns;
  EXPECT_EQ(CheckCommand({.argv = {"ls", "/sys/class/net"}, .netns = h1}).value(), "eth0\nlo\nmgmt0\n");
  auto deaf = Spawn({.argv = {"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 100; done"},
                     .netns = h1,
                     .out = Output::Pipe()});
  ASSERT_TRUE(deaf.has_value()) << deaf.error().message();
  EXPECT_EQ(deaf->out_lines()->Next(Seconds(20)).value(), "ready");
  EXPECT_THAT(ProcessesIn(std::vector{h1}), Contains(deaf->pid()));
  fabric.reset();
  EXPECT_EQ(deaf->Wait(Seconds(20)).value().signal, SIGKILL);
}

TEST_F(FabricTest, AnAdoptedFabricStaysUpAndCanBeRemoved) {
  const auto owner = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(owner);
  {
    const auto adopted = Fabric::Adopt(owner->id());
    ASSERT_TRUE(adopted.has_value()) << adopted.error().message();
    EXPECT_EQ((*adopted)->hosts()[1].data_address, owner->hosts()[1].data_address);
    EXPECT_TRUE((*adopted)->ReadCounters().has_value());
  }
  EXPECT_EQ(PartsOf(owner->plan()), 6U + 2 + 1);
  ASSERT_TRUE(Fabric::Remove(owner->id()).has_value());
  EXPECT_EQ(PartsOf(owner->plan()), 0U);
  const auto none = Fabric::Adopt(owner->id());
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kNotFound);
}

TEST_F(FabricTest, WhatADeadOwnerLeftIsCleaned) {
  const auto fabric = Build({.hosts_per_leaf = 1});
  ASSERT_TRUE(fabric);
  ASSERT_TRUE(fabric->LeaveUp().has_value());
  EXPECT_THAT(Fabric::CleanStale().value(), Not(Contains(fabric->id())));  // nobody's fabrics stay
  {
    const StateStore store;
    const auto lock = store.Lock();
    FabricState state = store.Read(fabric->id()).value();
    state.owner = Owner{.pid = ::getpid(), .start_ticks = 1};  // an earlier process of this pid
    ASSERT_TRUE(store.Write(state).has_value());
  }
  ASSERT_TRUE(Fabric::CleanStale().has_value());  // or another process's Create was faster: the same
  EXPECT_EQ(PartsOf(fabric->plan()), 0U);
  EXPECT_FALSE(StateStore().Read(fabric->id()).has_value());
}

class TestbedProgram : public FabricTest {
 protected:
  /// A fabric's name that no concurrent run of this test has.
  static std::string Id(char test) {
    std::string id(1, test);
    return id += std::to_string(::getpid());
  }
  static CommandOutput Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), WEFT_TESTBED_PROGRAM);
    const auto output = RunCommand({.argv = arguments}, Seconds(30));
    EXPECT_TRUE(output.has_value()) << output.error().message();
    return output.value_or(CommandOutput{});
  }
  /// `up --hold`, waited for until it is up.
  static Process Hold(const std::string& id) {
    auto process = Spawn({.argv = {WEFT_TESTBED_PROGRAM, "up", "--hold", "--hosts-per-leaf", "1", "--id", id},
                          .out = Output::Null(),
                          .err = Output::Pipe()});
    EXPECT_TRUE(process.has_value()) << process.error().message();
    EXPECT_THAT(process->err_lines()->Next(Seconds(30)).value().value(), HasSubstr("is up until"));
    return std::move(*process);
  }
};

TEST_F(TestbedProgram, UpListExecDown) {
  const std::string id = Id('u');
  EXPECT_EQ(Run({"up", "--id", id, "--hosts-per-leaf", "1", "--rate", "50Mbit/s"}).status.ToString(), "exit status 0");
  EXPECT_THAT(Run({"list"}).out, HasSubstr(id));
  EXPECT_THAT(Run({"exec", id, "h2", "--", "ip", "-brief", "address"}).out, HasSubstr("10.2.1.2/24"));
  EXPECT_EQ(Run({"exec", id, "h2", "--", "sh", "-c", "exit 42"}).status.code, 42);
  const CommandOutput wrong = Run({"exec", id, "h3", "--", "true"});
  EXPECT_EQ(wrong.status.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("has no node \"h3\"; it has h1 to h2"));
  EXPECT_EQ(Run({"down", id}).status.code, 0);
  const CommandOutput again = Run({"down", id});
  EXPECT_EQ(again.status.code, 2);
  EXPECT_THAT(again.err, HasSubstr("no fabric \"" + id + "\""));
}

TEST_F(TestbedProgram, WrongUsageIsOneLineAndStatusTwo) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {{{}, "subcommand is required"},
               {{"up", "--rate", "100"}, "rate"},
               {{"up", "--leaves", "0"}, "leaves 0, must be 1 to 64"},
               {{"up", "--id", "A"}, "fabric id \"A\""},
               {{"exec", "none", "h1", "--", "true"}, "no fabric \"none\""}};
  for (const auto& one : cases) {
    const CommandOutput output = Run(one.arguments);
    EXPECT_EQ(output.status.code, 2) << one.message;
    EXPECT_THAT(output.err, HasSubstr(one.message));
    EXPECT_EQ(output.out, "");
  }
}

TEST_F(TestbedProgram, HoldEndsCleanlyBySignal) {
  const std::string id = Id('h');
  Process process = Hold(id);
  const FabricPlan plan = Fabric::Adopt(id).value()->plan();
  process.Kill(SIGINT);
  EXPECT_EQ(process.Wait(Seconds(30)).value().ToString(), "exit status 0");
  EXPECT_EQ(PartsOf(plan), 0U);
}

TEST_F(TestbedProgram, KillingTheOwnerTakesTheFabricDown) {
  const std::string id = Id('k');
  Process process = Hold(id);
  const FabricPlan plan = Fabric::Adopt(id).value()->plan();
  auto inside = Spawn({.argv = {"sleep", "1000"}, .netns = plan.hosts[0].netns});
  ASSERT_TRUE(inside.has_value()) << inside.error().message();
  process.Kill(SIGKILL);
  // The reaper holds the store's lock from before it ends what is inside until all is gone.
  EXPECT_NE(inside->Wait(Seconds(30)).value().signal, 0);
  ASSERT_TRUE(StateStore().Lock().has_value());
  EXPECT_EQ(PartsOf(plan), 0U);
}

}  // namespace
}  // namespace weft::testbed

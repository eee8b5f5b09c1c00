// The parts of the plugin that need no connection: environment, devices, policy entries, telemetry slots.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "netplugin/devices.h"
#include "netplugin/environment.h"
#include "netplugin/log.h"
#include "netplugin/policy/policy.h"
#include "netplugin/tcp/tcp_info.h"
#include "netplugin/tcp/wire.h"
#include "netplugin/telemetry/telemetry.h"
#include "netplugin/testing/log_capture.h"

namespace weft::net {
namespace {

class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    for (const EnvironmentVariable& variable : kEnvironmentVariables) unsetenv(variable.name);
    for (const char* name : {"RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) unsetenv(name);
  }
};

constexpr uint64_t kSecond = 1'000'000'000;

TEST(UnansweredFor, CountsFromTheLastAnswerAndOnlyWhatWasSentAgain) {
  uint64_t since = 0;
  const auto at = [&](uint64_t s, uint64_t silent_s, bool in_flight, bool unanswered) {
    return UnansweredFor({.time_ns = s * kSecond, .silent_ns = silent_s * kSecond, .in_flight = in_flight, .unanswered = unanswered}, &since);
  };
  EXPECT_EQ(at(100, 90, false, false), 0u) << "idle for long";
  EXPECT_EQ(at(101, 91, true, false), 0u) << "on its way";
  EXPECT_EQ(at(102, 92, true, true), 2 * kSecond) << "since it last had nothing in flight, not since the last answer, an idle time ago";
  EXPECT_EQ(at(103, 93, true, true), 3 * kSecond);
  EXPECT_EQ(at(104, 0, true, false), 0u) << "an answer";
  EXPECT_EQ(at(106, 2, true, true), 2 * kSecond) << "since that answer";
  EXPECT_EQ(at(107, 3, false, false), 0u);
  uint64_t fresh = 0;
  EXPECT_EQ(UnansweredFor({.time_ns = 5 * kSecond, .silent_ns = 5 * kSecond, .in_flight = true, .unanswered = true}, &fresh), 0u)
      << "the first look knows nothing of before";
}

TEST_F(EnvironmentTest, DefaultsHoldWhenNothingIsSet) {
  const Environment environment = ReadEnvironment();
  EXPECT_EQ(environment.rank, -1);
  EXPECT_EQ(environment.world, -1);
  EXPECT_EQ(environment.run_dir, "/run/weft");
  EXPECT_EQ(environment.chunk_bytes, 131072u);
  EXPECT_EQ(environment.unsent_bytes, 262144u);
  EXPECT_TRUE(environment.problems.empty());
}

TEST_F(EnvironmentTest, OwnNamesWinOverTheLaunchersNames) {
  setenv("RANK", "1", 1);
  setenv("SLURM_NTASKS", "8", 1);
  EXPECT_EQ(ReadEnvironment().rank, 1);
  EXPECT_EQ(ReadEnvironment().world, 8);
  setenv("WEFT_RANK", "2", 1);
  EXPECT_EQ(ReadEnvironment().rank, 2);
  unsetenv("RANK");
  unsetenv("SLURM_NTASKS");
}

TEST_F(EnvironmentTest, AValueOutOfRangeIsNamedAndTheDefaultStays) {
  setenv("WEFT_CHUNK_BYTES", "1k", 1);
  setenv("WEFT_RANK", "-3", 1);
  setenv("WEFT_JOB_ID", std::string(64, 'x').c_str(), 1);
  setenv("NCCL_SOCKET_FAMILY", "ipv4", 1);
  const Environment environment = ReadEnvironment();
  EXPECT_EQ(environment.chunk_bytes, 131072u);
  EXPECT_EQ(environment.rank, -1);
  EXPECT_EQ(environment.job_id, "");
  ASSERT_EQ(environment.problems.size(), 4u);
  EXPECT_EQ(environment.problems[2],
            "WEFT_CHUNK_BYTES=\"1k\": must be a whole number from 4096 to 16777216; using 131072");
}

TEST_F(EnvironmentTest, EveryVariableAndDefaultIsInTheDocumentation) {
  std::ifstream file(WEFT_SOURCE_DIR "/docs/netplugin.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  for (const EnvironmentVariable& variable : kEnvironmentVariables) {
    const std::string row = std::string("| `").append(variable.name).append("` | ").append(variable.standard);
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
  const size_t begin = text.find("\n## Environment\n"), end = text.find("\n## ", begin + 1);
  size_t rows = 0;
  for (size_t at = text.find("\n| `", begin); at < end; at = text.find("\n| `", at + 1)) ++rows;
  EXPECT_EQ(rows, std::size(kEnvironmentVariables)) << "rows of the documentation that kEnvironmentVariables lacks";
}

TEST(Devices, FilterSpeaksNcclsSyntax) {
  const struct {
    const char *filter, *name;
    bool matches;
  } cases[] = {
      {"", "eth0", true},         {"eth", "eth0", true},         {"eth", "ib0", false},     {"ib,eth", "eth0", true},
      {"=eth", "eth0", false},    {"=eth0", "eth0", true},       {"=eth0", "eth01", false}, {"^eth", "eth0", false},
      {"^eth", "ib0", true},      {"^=eth0,=lo", "eth1", true},  {"^docker,lo", "lo", false}, {"eth0:4000", "eth0", true},
      {"lo", "lo", true},         {"=", "eth0", false},          {",,", "eth0", false},
  };
  for (const auto& c : cases) EXPECT_EQ(MatchesFilter(c.filter, c.name), c.matches) << c.filter << " " << c.name;
}

Interface Make(const char* name, int family, bool loopback = false) {
  Interface result{name, loopback, {}};
  result.address.family = family;
  return result;
}

TEST(Devices, RealInterfacesComeBeforeBridgesBeforeLoopback) {
  const std::vector<Interface> all = {Make("lo", AF_INET, true), Make("docker0", AF_INET), Make("eth0", AF_INET6),
                                      Make("eth0", AF_INET), Make("ib0", AF_INET6)};
  Environment environment;
  std::vector<Interface> chosen = ChooseInterfaces(all, environment);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].name, "eth0");
  EXPECT_EQ(chosen[0].address.family, AF_INET) << "one device per interface, IPv4 first";
  EXPECT_EQ(chosen[1].name, "ib0");
  environment.interfaces = "^eth,ib";
  chosen = ChooseInterfaces(all, environment);
  ASSERT_EQ(chosen.size(), 1u);
  EXPECT_EQ(chosen[0].name, "docker0");
  environment.interfaces = "^eth,ib,docker";
  EXPECT_EQ(ChooseInterfaces(all, environment)[0].name, "lo") << "if nothing else";
  environment.interfaces = "=lo";
  EXPECT_EQ(ChooseInterfaces(all, environment)[0].name, "lo") << "or if asked for";
  environment.interfaces = "";
  environment.family = AF_INET6;
  EXPECT_EQ(ChooseInterfaces(all, environment)[0].address.family, AF_INET6);
  environment.interfaces = "none";
  EXPECT_TRUE(ChooseInterfaces(all, environment).empty());
}

TEST(Devices, WhatIsNotUsedIsNamedWithTheReason) {
  std::vector<Interface> all = {Make("lo", 0, true), Make("eth0", 0), Make("eth1", 0), Make("eth2", 0), Make("ib0", 0),
                                Make("lo", AF_INET, true), Make("eth0", AF_INET), Make("docker0", AF_INET)};
  all[2].up = all[2].carrier = false;
  all[3].carrier = false;
  Environment environment;
  using Texts = std::vector<std::string>;
  EXPECT_EQ(PassedOver(all, ChooseInterfaces(all, environment), environment),
            (Texts{"lo (loopback, taken only where nothing else can be)", "eth1 (down)", "eth2 (no carrier)",
                   "ib0 (no address)", "docker0 (container bridge, taken only where nothing but loopback can be)"}));
  environment.interfaces = "ib0";
  ASSERT_TRUE(ChooseInterfaces(all, environment).empty());
  EXPECT_EQ(PassedOver(all, {}, environment),
            (Texts{"lo (excluded by NCCL_SOCKET_IFNAME)", "eth0 (excluded by NCCL_SOCKET_IFNAME)", "eth1 (down)",
                   "eth2 (no carrier)", "ib0 (no address)", "docker0 (excluded by NCCL_SOCKET_IFNAME)"}));
  environment.interfaces = "";
  environment.family = AF_INET6;
  EXPECT_EQ(PassedOver(all, {}, environment)[1], "eth0 (no address of NCCL_SOCKET_FAMILY)");
}

TEST(Devices, WhereNoneIsLeftTheSettingsAndAWayOutAreNamed) {
  const std::vector<Interface> all = {Make("lo", AF_INET, true), Make("eth0", AF_INET)};
  Environment environment;
  environment.interfaces = "ib0";
  EXPECT_EQ(WhyNoInterface(all, environment).head,
            "devices: none. NCCL_SOCKET_IFNAME=\"ib0\" leaves no interface that is up and has an address:");
  EXPECT_EQ(WhyNoInterface(all, environment).next,
            "let an interface through that can be used, such as NCCL_SOCKET_IFNAME=eth0, or unset NCCL_SOCKET_IFNAME");
  environment.family = AF_INET6;
  EXPECT_NE(WhyNoInterface(all, environment).head.find("\"ib0\" and NCCL_SOCKET_FAMILY=\"AF_INET6\" leave"), std::string::npos);
  EXPECT_EQ(WhyNoInterface({}, environment).next, "bring an interface up and give it an address");
}

TEST(Log, AListIsBrokenBetweenItsEntriesAndCountedWhereItIsLong) {
  testing::LogCapture::Clear();
  SetLogger(&testing::LogCapture::Logger);
  LogList(nccl::kLogInfo, "seen:", std::vector<std::string>(70, std::string(60, 'x')));
  SetLogger(nullptr);
  const std::vector<std::string> lines = testing::LogCapture::Lines();
  ASSERT_GT(lines.size(), 1u);
  size_t entries = 0;
  for (const std::string& line : lines) {
    for (size_t at = line.find(std::string(60, 'x')); at != std::string::npos; at = line.find(std::string(60, 'x'), at + 60)) {
      ++entries;
    }
  }
  EXPECT_EQ(entries, 64u);
  EXPECT_TRUE(lines.front().starts_with("NET/Weft: seen: xx"));
  EXPECT_TRUE(lines.back().ends_with("and 6 more"));
}

TEST(Devices, SpeedAndPciPathComeFromSysfs) {
  Environment environment;
  environment.interfaces = "=lo";
  char folder[] = "/tmp/weft-sysfs-XXXXXX";
  const std::filesystem::path sysfs = mkdtemp(folder);
  std::filesystem::create_directories(sysfs / "lo");
  std::filesystem::create_directories(sysfs / "0000:3b:00.0");
  ASSERT_EQ(FindDevices(environment, sysfs).size(), 1u);
  EXPECT_EQ(FindDevices(environment, sysfs)[0].speed_mbps, 10000);
  EXPECT_EQ(FindDevices(environment, sysfs)[0].pci_path, "");
  std::ofstream(sysfs / "lo" / "speed") << "200000\n";
  std::filesystem::create_directory_symlink("../0000:3b:00.0", sysfs / "lo" / "device");
  EXPECT_EQ(FindDevices(environment, sysfs)[0].speed_mbps, 200000);
  EXPECT_EQ(FindDevices(environment, sysfs)[0].pci_path, std::filesystem::canonical(sysfs) / "0000:3b:00.0");
  std::ofstream(sysfs / "lo" / "speed") << "-1\n";
  EXPECT_EQ(FindDevices(environment, sysfs)[0].speed_mbps, 10000);
  std::filesystem::remove_all(sysfs);
}

TEST(FlowPolicy, PlausibleEntriesPassAndOthersAreNamed) {
  const uint64_t now = 1'000'000'000'000;
  abi::FlowPolicy good{};
  EXPECT_EQ(CheckFlowPolicy(good, now), nullptr) << "no lanes: nothing to change";
  good.lanes[0] = {41001, 0, 3};
  good.lanes[1] = {41002, 0, 0};
  good.traffic_class = 255;
  good.pacing_bps = 1'000'000;
  good.lease_until_ns = now + 10'000'000'000;
  good.window_period_ns = good.window_length_ns = 1'000'000;
  good.window_offset_ns = UINT64_MAX;
  EXPECT_EQ(CheckFlowPolicy(good, now), nullptr);
  const std::pair<void (*)(abi::FlowPolicy&), const char*> cases[] = {
      {[](auto& p) { p.lanes[0].weight = abi::kLargestWeight + 1; }, "weight is above"},
      {[](auto& p) { p.lanes[1].source_port = 41001; }, "same source port"},
      {[](auto& p) { p.lanes[0].weight = 0; }, "no lane has a weight"},
      {[](auto& p) { p.traffic_class = 256; }, "traffic class is above 255"},
      {[](auto& p) { p.pacing_bps = 999'999; }, "pacing is below 1 Mbit/s"},
      {[](auto& p) { p.lease_until_ns = UINT64_MAX; }, "lease is longer than 60 s"},
      {[](auto& p) { p.window_period_ns = 999'999; }, "period is not 1 ms to 60 s"},
      {[](auto& p) { p.window_period_ns = 60'000'000'001; }, "period is not 1 ms to 60 s"},
      {[](auto& p) { p.window_length_ns = 0; }, "length is 0 or above its period"},
      {[](auto& p) { p.window_length_ns = 1'000'001; }, "length is 0 or above its period"},
  };
  for (const auto& [spoil, expected] : cases) {
    abi::FlowPolicy bad = good;
    spoil(bad);
    const char* wrong = CheckFlowPolicy(bad, now);
    ASSERT_NE(wrong, nullptr) << expected;
    EXPECT_NE(std::strstr(wrong, expected), nullptr) << wrong;
  }
}

TEST(FlowPolicy, ALeaseHoldsUntilItEndsOrWasLastRenewed) {
  abi::FlowPolicy entry{};
  auto table = std::make_unique<abi::PolicyTable>();
  const uint64_t s = 1'000'000'000;
  table->renewed_until_ns = 20 * s;
  EXPECT_FALSE(Leased(entry, table.get(), s)) << "never leased";
  entry.lease_until_ns = 10 * s;
  EXPECT_TRUE(Leased(entry, nullptr, 10 * s - 1));
  EXPECT_FALSE(Leased(entry, nullptr, 10 * s)) << "no longer in the table: nobody renews it";
  EXPECT_TRUE(Leased(entry, table.get(), 20 * s - 1));
  EXPECT_FALSE(Leased(entry, table.get(), 20 * s));
  table->renewed_until_ns = UINT64_MAX;
  EXPECT_FALSE(Leased(entry, table.get(), 20 * s)) << "further ahead than any lease may be";
}

/// A sealed memory file with a policy segment of that epoch.
Fd MakePolicyFile(uint64_t epoch) {
  Fd fd(memfd_create("weft-parts-policy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), sizeof(abi::PolicySegment)), 0);
  void* memory = mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  auto* segment = static_cast<abi::PolicySegment*>(memory);
  abi::InitPolicyHeader(segment);
  segment->table.epoch.store(epoch);
  munmap(memory, sizeof(abi::PolicySegment));
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return fd;
}

int MappedPolicies() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("weft-parts-policy") != std::string::npos;
  return count;
}

TEST(PolicyStore, AReplacedMappingLivesAsLongAsAReaderIsBehind) {
  PolicyStore store;
  std::atomic<uint64_t> reader{99};
  store.AddReader(&reader);
  EXPECT_EQ(reader.load(), 0u);
  std::string why;
  const auto replace = [&](uint64_t epoch) {
    store.Offer(PolicyMapping::Map(MakePolicyFile(epoch).get(), &why));
    store.Turn();
    return store.current()->generation();
  };
  EXPECT_EQ(replace(0), 0u) << "nothing written to it: it replaces nothing";
  EXPECT_EQ(replace(5), 1u);
  EXPECT_EQ(replace(1), 2u);
  EXPECT_EQ(MappedPolicies(), 2) << "the reader may still be in the first";
  reader.store(2);
  store.Turn();
  EXPECT_EQ(MappedPolicies(), 1);
  store.RemoveReader(&reader);
}

TEST(FlowRecorder, AGapEndsABurst) {
  abi::FlowSlot slot{};
  FlowRecorder recorder(&slot);
  const uint64_t ms = 1'000'000;
  recorder.Active(100 * ms, 10);
  recorder.Active(101 * ms, 20);
  EXPECT_EQ(slot.burst_count.load(), 0u);
  recorder.Active(110 * ms, 5);
  ASSERT_EQ(slot.burst_count.load(), 1u);
  EXPECT_EQ(slot.bursts[0].start_ns.load(), 100 * ms);
  EXPECT_EQ(slot.bursts[0].end_ns.load(), 101 * ms);
  EXPECT_EQ(slot.bursts[0].bytes.load(), 30u);
  recorder.CloseIdleBurst(111 * ms);
  EXPECT_EQ(slot.burst_count.load(), 1u) << "1 ms is no gap";
  recorder.CloseIdleBurst(113 * ms);
  recorder.CloseIdleBurst(120 * ms);
  ASSERT_EQ(slot.burst_count.load(), 2u);
  EXPECT_EQ(slot.bursts[1].bytes.load(), 5u);
}

TEST(FlowRecorder, ABurstLastsWhileTheWireIsBusy) {
  abi::FlowSlot slot{};
  FlowRecorder recorder(&slot);
  constexpr uint64_t ms = 1'000'000;
  recorder.Active(100 * ms, 10);
  recorder.Draining(125 * ms, 45 * ms);
  recorder.CloseIdleBurst(125 * ms);
  recorder.Active(160 * ms, 10);  // more of it
  recorder.Active(171 * ms, 10);  // the wire was hardly done with what there was
  recorder.Draining(175 * ms, 55 * ms);
  recorder.CloseIdleBurst(231 * ms);
  EXPECT_EQ(slot.burst_count.load(), 0u);
  recorder.CloseIdleBurst(250 * ms);
  ASSERT_EQ(slot.burst_count.load(), 1u);
  EXPECT_EQ(slot.bursts[0].start_ns.load(), 100 * ms);
  EXPECT_EQ(slot.bursts[0].end_ns.load(), 230 * ms);
  EXPECT_EQ(slot.bursts[0].bytes.load(), 30u);
  // What comes long after is another one, and the wire was not busy for longer than until then.
  recorder.Active(300 * ms, 5);
  recorder.Draining(300 * ms, 30 * ms);
  recorder.Active(340 * ms, 5);
  ASSERT_EQ(slot.burst_count.load(), 2u);
  EXPECT_EQ(slot.bursts[1].end_ns.load(), 330 * ms);
  // What was forecast may take less: then it is not waited for.
  recorder.Draining(341 * ms, 90 * ms);
  recorder.Draining(366 * ms, 0);
  recorder.CloseIdleBurst(370 * ms);
  ASSERT_EQ(slot.burst_count.load(), 3u);
  EXPECT_EQ(slot.bursts[2].end_ns.load(), 366 * ms);
}

TEST(FlowRecorder, CompletionTimesFallIntoPowersOfTwoOfAMicrosecond) {
  abi::FlowSlot slot{};
  FlowRecorder recorder(&slot);
  for (const uint64_t us : {0, 1, 2, 3, 4, 1023, 1024}) recorder.Completed(1, 0, us * 1000);
  recorder.Completed(1, 0, UINT64_MAX);
  EXPECT_EQ(slot.histogram[0].load(), 2u);
  EXPECT_EQ(slot.histogram[1].load(), 2u);
  EXPECT_EQ(slot.histogram[2].load(), 1u);
  EXPECT_EQ(slot.histogram[9].load(), 1u);
  EXPECT_EQ(slot.histogram[10].load(), 1u);
  EXPECT_EQ(slot.histogram[31].load(), 1u);
  EXPECT_EQ(slot.messages.load(), 8u);
}

}  // namespace
}  // namespace weft::net

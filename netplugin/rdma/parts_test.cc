// The parts of the RDMA transport that need no device: how messages are cut, paths aimed at, and ports found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "netplugin/rdma/gid.h"
#include "netplugin/rdma/own_pages.h"
#include "netplugin/rdma/path.h"
#include "netplugin/rdma/port.h"
#include "netplugin/rdma/split.h"

namespace weft::net::rdma {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Parts follow each other, end at the size, and are cut at lines only.
void ExpectWhole(uint64_t size, uint32_t count, const std::array<Part, kMaxParts>& parts) {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_EQ(parts[i].offset, offset);
    EXPECT_EQ(offset % kLineBytes, 0u);
    offset += parts[i].length;
  }
  EXPECT_EQ(offset, size);
}

TEST(RdmaSplit, SharesFollowTheWeightsToALine) {
  std::array<LaneShare, 4> lanes{{{1}, {2}, {0}, {5}}};
  std::array<Part, kMaxParts> parts;
  const uint64_t size = 8 << 20;
  ASSERT_EQ(SplitMessage(size, 4096, lanes, &parts), 3u);
  ExpectWhole(size, 3, parts);
  const uint64_t ideal[] = {size / 8, size / 4, 0, size / 8 * 5};
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(static_cast<double>(parts[i].length), static_cast<double>(ideal[parts[i].lane]), 2 * kLineBytes);
  }
}

TEST(RdmaSplit, SmallMessagesTakeTurnsByWeight) {
  std::array<LaneShare, 3> lanes{{{1}, {3}, {0}}};
  std::array<Part, kMaxParts> parts;
  std::array<int, 3> count{};
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(SplitMessage(1000, 65536, lanes, &parts), 1u);
    EXPECT_EQ(parts[0].length, 1000u);
    ++count[parts[0].lane];
  }
  EXPECT_THAT(count, ElementsAre(100, 300, 0));
}

TEST(RdmaSplit, AnEmptyMessageIsOneEmptyPart) {
  std::array<LaneShare, 2> lanes{{{1}, {1}}};
  std::array<Part, kMaxParts> parts;
  ASSERT_EQ(SplitMessage(0, 4096, lanes, &parts), 1u);
  const uint8_t first = parts[0].lane;
  EXPECT_EQ(parts[0].length, 0u);
  SplitMessage(0, 4096, lanes, &parts);
  EXPECT_NE(parts[0].lane, first);
}

TEST(RdmaSplit, AnySizeAndWeightsAreCutWhole) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::array<LaneShare, kMaxParts> lanes{};
    uint64_t weights = 0;
    for (LaneShare& lane : lanes) weights += lane.weight = random() % 3 ? static_cast<uint32_t>(random() % 1048577) : 0;
    if (weights == 0) lanes[random() % kMaxParts].weight = 1;
    const uint64_t size = random() >> (24 + random() % 40);
    const uint64_t least = uint64_t{128} << random() % 20;
    std::array<Part, kMaxParts> parts;
    const uint32_t count = SplitMessage(size, least, lanes, &parts);
    ASSERT_GE(count, 1u);
    ASSERT_LE(count, std::max<uint64_t>(1, size / least));
    ExpectWhole(size, count, parts);
    std::set<int> used;
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_GT(lanes[parts[i].lane].weight, 0u);
      EXPECT_TRUE(used.insert(parts[i].lane).second) << "two parts on one lane";
      EXPECT_TRUE(parts[i].length > 0 || size == 0);
    }
  }
}

TEST(RdmaPath, EveryPortHasALabelThatMakesIt) {
  for (uint32_t port = kFirstRocePort; port <= 0xFFFF; ++port) {
    const uint32_t label = FlowLabelOfPort(static_cast<uint16_t>(port));
    ASSERT_NE(label, 0u);
    ASSERT_LT(label, 1u << 20);
    ASSERT_EQ(PortOfFlowLabel(label), port);
  }
}

TEST(RdmaPath, ALabelIsFoldedAsLinuxFoldsIt) {
  EXPECT_EQ(PortOfFlowLabel(0), 0xC000);
  EXPECT_EQ(PortOfFlowLabel(289), 49441);  // what a capture showed for two pairs of number 17: 17 * 17
  EXPECT_EQ(PortOfFlowLabel(0xFFFFF), 0xC000 | (0x3FFF ^ 0x3F));
}

TEST(RdmaPath, PortsOfAFlowAreItsOwnAndDiffer) {
  const auto ports = DefaultPorts(42, 9);
  EXPECT_EQ(ports, DefaultPorts(42, 9));
  EXPECT_NE(ports, DefaultPorts(43, 9));
  EXPECT_EQ(std::set<uint16_t>(ports.begin(), ports.end()).size(), 9u);
  for (const uint16_t port : ports) EXPECT_GE(port, kFirstRocePort);
}

TEST(RdmaPath, PairsAreKeptOnePerPathFirst) {
  // Ports 1 to 3 lead to path 0, 4 and 5 to path 1, 6 nobody knows where to.
  const std::vector<uint16_t> ports = {1, 2, 3, 4, 5, 6};
  const PathProbe probe = [](uint16_t port) { return port <= 3 ? 0 : port <= 5 ? 1 : -1; };
  EXPECT_THAT(ChoosePairs(ports, 2, probe), ElementsAre(0, 3));
  EXPECT_THAT(ChoosePairs(ports, 3, probe), ElementsAre(0, 3, 5));
  EXPECT_THAT(ChoosePairs(ports, 4, probe), ElementsAre(0, 1, 3, 5));
  EXPECT_EQ(ChoosePairs(ports, 9, probe).size(), 6u);
  // Without a probe different ports are what may differ.
  EXPECT_THAT(ChoosePairs(std::vector<uint16_t>{7, 7, 8}, 2, nullptr), ElementsAre(0, 2));
}

/// What the kernel says of the mapping that begins at `address`: "VmFlags" of /proc/self/smaps.
std::string FlagsOf(const void* address) {
  char begin[32];
  std::snprintf(begin, sizeof begin, "%lx-", reinterpret_cast<unsigned long>(address));
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin)) found = true;
    if (found && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST(RdmaOwnPages, AreWholeZeroedAndNotForAForkedChild) {
  OwnPages pages;
  ASSERT_TRUE(pages.Allocate(5000));
  EXPECT_EQ(pages.size(), 8192u);
  EXPECT_EQ(reinterpret_cast<uint64_t>(pages.data()) % 4096, 0u);
  EXPECT_EQ(static_cast<char*>(pages.data())[8191], 0);
  EXPECT_THAT(FlagsOf(pages.data()), HasSubstr(" dc ")) << "do not copy on fork";
}

GidEntry Gid(int index, const char* text, GidType type) { return {index, *ParseGid(text), type}; }

TEST(RdmaGid, RoceTakesVersion2AndTheFamilyAskedFor) {
  const std::vector<GidEntry> table = {
      Gid(0, "fe80::1", GidType::kRoceV1),       Gid(1, "fe80::1", GidType::kRoceV2),
      Gid(2, "::ffff:10.0.0.1", GidType::kRoceV1), Gid(3, "::ffff:10.0.0.1", GidType::kRoceV2),
      Gid(4, "fd00::1", GidType::kRoceV2),
  };
  EXPECT_EQ(ChooseGid(table, true, 0, -1)->index, 3);
  EXPECT_EQ(ChooseGid(table, true, AF_INET, -1)->index, 3);
  EXPECT_EQ(ChooseGid(table, true, AF_INET6, -1)->index, 4);
  EXPECT_EQ(ChooseGid(table, true, 0, 0)->index, 0) << "what the user names is taken";
  EXPECT_FALSE(ChooseGid(table, true, 0, 9));
  EXPECT_EQ(ChooseGid(std::span(table).first(2), true, 0, -1)->index, 1) << "link-local, if nothing else is there";
  EXPECT_FALSE(ChooseGid(std::span(table).first(1), true, 0, -1)) << "version 1 has no UDP port";
  EXPECT_EQ(ChooseGid(table, false, 0, -1)->index, 0);
  EXPECT_FALSE(ChooseGid({}, false, 0, -1));
}

TEST(RdmaGid, TextOfBothFamilies) {
  EXPECT_EQ(GidText(*ParseGid("0000:0000:0000:0000:0000:ffff:0a00:0001")), "10.0.0.1");
  EXPECT_EQ(GidText(*ParseGid("fe80::2")), "fe80::2");
  EXPECT_FALSE(ParseGid("fe80"));
  EXPECT_FALSE(ParseGid(""));
}

/// A folder like /sys/class/infiniband.
class Sysfs {
 public:
  Sysfs() {
    char name[] = "/tmp/weft-sysfs-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Sysfs() { std::filesystem::remove_all(path_); }
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path_ + "/" + file).parent_path());
    std::ofstream(path_ + "/" + file) << text << "\n";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(RdmaGid, TheTableIsReadFromSysfs) {
  Sysfs sysfs;
  const std::string port = "mlx5_0/ports/1";
  sysfs.Write(port + "/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001");
  sysfs.Write(port + "/gid_attrs/types/0", "IB/RoCE v1");
  sysfs.Write(port + "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000");
  sysfs.Write(port + "/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0001");
  sysfs.Write(port + "/gid_attrs/types/2", "RoCE v2");
  sysfs.Write(port + "/gids/3", "not a gid");
  const auto table = ReadGids(sysfs.path(), "mlx5_0", 1);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].type, GidType::kRoceV1);
  EXPECT_EQ(table[1].index, 2);
  EXPECT_EQ(table[1].type, GidType::kRoceV2);
  EXPECT_TRUE(table[1].ipv4());
  EXPECT_THAT(ReadGids(sysfs.path(), "mlx5_1", 1), IsEmpty());
}

TEST(RdmaPorts, AHostWithoutRdmaHasNone) {
  Sysfs sysfs;
  const Ports ports = FindPorts({}, sysfs.path());
  EXPECT_FALSE(ports.present);
  EXPECT_THAT(ports.usable, IsEmpty());
  EXPECT_THAT(ports.why, HasSubstr("no active RDMA port"));
}

TEST(RdmaPorts, AnActivePortThatCannotBeUsedIsPresent) {
  Sysfs sysfs;
  sysfs.Write("nobody0/ports/1/state", "4: ACTIVE");
  sysfs.Write("nobody1/ports/1/state", "1: DOWN");
  const Ports ports = FindPorts({}, sysfs.path());
  EXPECT_TRUE(ports.present);
  EXPECT_THAT(ports.usable, IsEmpty());
  EXPECT_FALSE(ports.why.empty());
  EXPECT_FALSE(FindPorts({.devices = "nobody1"}, sysfs.path()).present);
  const Ports excluded = FindPorts({.devices = "^nobody0"}, sysfs.path());
  EXPECT_FALSE(excluded.present);
  EXPECT_TRUE(excluded.excluded);
  EXPECT_THAT(excluded.why, HasSubstr("NCCL_IB_HCA=\"^nobody0\""));
  EXPECT_THAT(excluded.passed_over, ::testing::ElementsAre("nobody0:1 (excluded by NCCL_IB_HCA)",
                                                           "nobody1:1 (state \"1: DOWN\")"));
}

TEST(RdmaPorts, TheFilterIsNcclsOwn) {
  EXPECT_TRUE(MatchesFilter("", "mlx5_0", 1));
  EXPECT_TRUE(MatchesFilter("mlx5", "mlx5_0", 1));
  EXPECT_TRUE(MatchesFilter("irdma,mlx5_0:2", "mlx5_0", 2));
  EXPECT_FALSE(MatchesFilter("irdma,mlx5_0:2", "mlx5_0", 1));
  EXPECT_FALSE(MatchesFilter("=mlx5", "mlx5_0", 1));
  EXPECT_TRUE(MatchesFilter("=mlx5_0", "mlx5_0", 1));
  EXPECT_FALSE(MatchesFilter("^mlx5", "mlx5_0", 1));
  EXPECT_TRUE(MatchesFilter("^=mlx5_1", "mlx5_0", 1));
}

TEST(RdmaPorts, SpeedIsLanesTimesRate) {
  EXPECT_EQ(SpeedOf(2, 128), 400'000);  // 4x NDR
  EXPECT_EQ(SpeedOf(2, 64), 200'000);   // 4x HDR
  EXPECT_EQ(SpeedOf(1, 1), 2500);       // what rdma_rxe says
  EXPECT_EQ(SpeedOf(3, 1), 0);
}

}  // namespace
}  // namespace weft::net::rdma

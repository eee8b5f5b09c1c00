#include "agent/interfaces.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Interfaces : public ::testing::Test {
 protected:
  Interfaces() {
    char name[] = "/tmp/weft-interfaces-XXXXXX";
    root_ = ::mkdtemp(name);
    Write("class/net/eth0/address", "02:00:00:00:00:01\n");
    Write("class/net/eth0/speed", "25000\n");
    Write("class/net/eth0/mtu", "9000\n");
    Write("class/net/eth1/address", "02:00:00:00:00:99\n");  // of another namespace's eth1
    Write("class/net/eth1/speed", "10000\n");
    Write("net/dev",
          "Inter-|   Receive                                                |  Transmit\n"
          " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
          "    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"
          "  eth0:12345678901 9 0 0 0 0 0 0 777 3 0 0 0 0 0 0\n"
          "broken: 1 2\n");
    sources_ = {.sysfs = root_, .procfs = root_, .addresses = [] {
                  return Result<std::vector<LinkAddress>>({
                      {.interface = "lo", .running = true, .loopback = true},
                      {.interface = "lo", .address = "127.0.0.1", .running = true, .loopback = true},
                      {.interface = "eth1", .mac = "02:00:00:00:00:02"},
                      {.interface = "eth0", .mac = "02:00:00:00:00:01", .running = true},
                      {.interface = "eth0", .address = "fd00::1", .running = true},
                      {.interface = "eth0", .address = "10.1.0.1", .running = true},
                  });
                }};
  }
  ~Interfaces() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }

  std::string root_;
  InterfaceSources sources_;
};

TEST_F(Interfaces, AllButLoopbackWithAddressesAndSpeed) {
  const auto found = DiscoverInterfaces({}, sources_);
  ASSERT_TRUE(found);
  ASSERT_THAT(*found, SizeIs(2));
  EXPECT_EQ((*found)[0].name, "eth0");
  EXPECT_THAT((*found)[0].addresses, ElementsAre("10.1.0.1", "fd00::1"));
  EXPECT_EQ((*found)[0].speed_bps, 25'000'000'000);
  EXPECT_EQ((*found)[0].mtu, 9000);
  EXPECT_TRUE((*found)[0].up);
  EXPECT_FALSE((*found)[1].up);
}

TEST_F(Interfaces, SysfsOfAnotherNamespaceIsNotBelieved) {
  const auto found = DiscoverInterfaces({"eth1"}, sources_);
  ASSERT_TRUE(found);
  ASSERT_THAT(*found, SizeIs(1));
  EXPECT_EQ((*found)[0].speed_bps, 0);
}

TEST_F(Interfaces, MissingInterfaceIsNamed) {
  const auto found = DiscoverInterfaces({"eth0", "eth7"}, sources_);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kNotFound);
  EXPECT_THAT(found.error().message(), HasSubstr("interface \"eth7\""));
}

TEST_F(Interfaces, CountersOfTheNamedOnes) {
  const auto counters = ReadInterfaceBytes({"eth0", "broken", "gone"}, sources_);
  ASSERT_TRUE(counters);
  ASSERT_THAT(*counters, SizeIs(1));
  EXPECT_EQ((*counters)[0].received, 12345678901);
  EXPECT_EQ((*counters)[0].sent, 777);
}

TEST_F(Interfaces, ThisHostHasALoopback) {
  const auto found = DiscoverInterfaces({"lo"});
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_THAT((*found)[0].addresses, ::testing::Contains("127.0.0.1"));
  EXPECT_TRUE(ReadInterfaceBytes({"lo"}));
}

}  // namespace
}  // namespace weft::agent

#include "collectives/net_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "netplugin/abi/nccl_net.h"

namespace weft::collectives {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<NetPlugin> LoadOrFail(int version) {
  auto plugin = NetPlugin::Load(WEFT_LOOPBACK_PLUGIN, version);
  EXPECT_TRUE(plugin) << plugin.error().message();
  return plugin ? std::move(*plugin) : nullptr;
}

struct Pair {
  void* listen = nullptr;
  void* send = nullptr;
  void* receive = nullptr;
};

Pair ConnectPair(NetPlugin& plugin) {
  Pair pair;
  std::array<char, nccl::kHandleMaxBytes> handle{};
  EXPECT_TRUE(plugin.Listen(0, handle.data(), &pair.listen));
  while (pair.send == nullptr || pair.receive == nullptr) {
    const bool fine = (pair.send != nullptr || plugin.Connect(0, handle.data(), &pair.send)) &&
                      (pair.receive != nullptr || plugin.Accept(pair.listen, &pair.receive));
    EXPECT_TRUE(fine);
    if (!fine) break;
  }
  return pair;
}

class NetPluginVersions : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, NetPluginVersions, ::testing::Values(6, 7, 8, 9, 10, 11, 12));

TEST_P(NetPluginVersions, TheNewestTableNotAboveTheLimitIsTaken) {
  const auto plugin = LoadOrFail(GetParam());
  ASSERT_TRUE(plugin);
  EXPECT_EQ(plugin->version(), GetParam());
  EXPECT_EQ(plugin->name(), "loopback" + std::to_string(GetParam()));
  ASSERT_EQ(plugin->devices().size(), 1u);
  EXPECT_EQ(plugin->devices()[0].name, "loop0");
  EXPECT_EQ(plugin->devices()[0].speed_mbps, 10000);
  EXPECT_EQ(plugin->devices()[0].ptr_support, nccl::kPtrHost);
  EXPECT_EQ(plugin->devices()[0].max_comms, 1024);
}

TEST_P(NetPluginVersions, AMessageArrivesWithItsLength) {
  const auto plugin = LoadOrFail(GetParam());
  ASSERT_TRUE(plugin);
  const Pair pair = ConnectPair(*plugin);
  std::string sent = "weft across the warp", got(64, '.');
  void *send_memory = nullptr, *receive_memory = nullptr, *send = nullptr, *receive = nullptr;
  ASSERT_TRUE(plugin->Register(pair.send, sent.data(), sent.size(), &send_memory));
  ASSERT_TRUE(plugin->Register(pair.receive, got.data(), got.size(), &receive_memory));
  ASSERT_TRUE(plugin->Receive(pair.receive, got.data(), got.size(), 0, receive_memory, &receive));
  ASSERT_TRUE(plugin->Send(pair.send, sent.data(), sent.size(), 0, send_memory, &send));
  size_t bytes = 0;
  for (bool done = false; !done;) ASSERT_TRUE(plugin->Test(send, &done, nullptr));
  for (bool done = false; !done;) ASSERT_TRUE(plugin->Test(receive, &done, &bytes));
  EXPECT_EQ(got.substr(0, bytes), sent);
  ASSERT_TRUE(plugin->Deregister(pair.send, send_memory));
  ASSERT_TRUE(plugin->Deregister(pair.receive, receive_memory));
  EXPECT_TRUE(plugin->CloseSend(pair.send));
  EXPECT_TRUE(plugin->CloseReceive(pair.receive));
  EXPECT_TRUE(plugin->CloseListen(pair.listen));
}

TEST_P(NetPluginVersions, AMessageAboveTheVersionsLimitIsRefusedBeforeTheCall) {
  const auto plugin = LoadOrFail(GetParam());
  ASSERT_TRUE(plugin);
  const size_t limit = GetParam() <= 8 ? nccl::kMaxMessageBytesV8 : nccl::kMaxMessageBytes;
  void* request = nullptr;
  const auto status = plugin->Send(nullptr, nullptr, limit + 1, 0, nullptr, &request);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(status.error().message(), HasSubstr("isend of " + std::to_string(limit + 1) + " bytes"));
  EXPECT_FALSE(plugin->Receive(nullptr, nullptr, limit + 1, 0, nullptr, &request));
}

TEST(NetPlugin, AFailedCallNamesPluginCallAndCode) {
  const auto plugin = LoadOrFail(12);
  ASSERT_TRUE(plugin);
  const Pair pair = ConnectPair(*plugin);
  void* request = nullptr;
  char byte = 0;
  const auto status = plugin->Send(pair.send, &byte, 1, 0, nullptr, &request);  // not registered
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.error().message(), "net plugin \"loopback12\": isend returned ncclInvalidUsage (5)");
  EXPECT_TRUE(plugin->CloseSend(pair.send));
  EXPECT_TRUE(plugin->CloseReceive(pair.receive));
  EXPECT_TRUE(plugin->CloseListen(pair.listen));
}

TEST(NetPlugin, AReceiveOfAPluginThatTellsNoSizeIsOfUnknownLength) {
  setenv("WEFT_LOOPBACK_SILENT", "1", 1);
  const auto plugin = LoadOrFail(6);
  ASSERT_TRUE(plugin);
  const Pair pair = ConnectPair(*plugin);
  char sent = 'w', got = '.';
  void *send_memory = nullptr, *receive_memory = nullptr, *send = nullptr, *receive = nullptr;
  ASSERT_TRUE(plugin->Register(pair.send, &sent, 1, &send_memory));
  ASSERT_TRUE(plugin->Register(pair.receive, &got, 1, &receive_memory));
  ASSERT_TRUE(plugin->Receive(pair.receive, &got, 1, 0, receive_memory, &receive));
  ASSERT_TRUE(plugin->Send(pair.send, &sent, 1, 0, send_memory, &send));
  size_t bytes = 0;
  for (bool done = false; !done;) ASSERT_TRUE(plugin->Test(send, &done, nullptr));
  for (bool done = false; !done;) ASSERT_TRUE(plugin->Test(receive, &done, &bytes));
  unsetenv("WEFT_LOOPBACK_SILENT");
  EXPECT_EQ(bytes, kBytesUnknown);
  EXPECT_EQ(got, sent);
  EXPECT_TRUE(plugin->Deregister(pair.send, send_memory));
  EXPECT_TRUE(plugin->Deregister(pair.receive, receive_memory));
  EXPECT_TRUE(plugin->CloseSend(pair.send));
  EXPECT_TRUE(plugin->CloseReceive(pair.receive));
  EXPECT_TRUE(plugin->CloseListen(pair.listen));
}

TEST(NetPlugin, AMissingFileIsNotFound) {
  const auto plugin = NetPlugin::Load("/nonexistent/libnccl-net-x.so");
  ASSERT_FALSE(plugin);
  EXPECT_EQ(plugin.error().code(), Code::kNotFound);
  EXPECT_THAT(plugin.error().message(), HasSubstr("\"/nonexistent/libnccl-net-x.so\": no such file"));
}

TEST(NetPlugin, ANameThatTheLoaderDoesNotFindIsNotFound) {
  const auto plugin = NetPlugin::Load("libnccl-net-of-nobody.so");
  ASSERT_FALSE(plugin);
  EXPECT_EQ(plugin.error().code(), Code::kNotFound);
}

TEST(NetPlugin, ALibraryWithoutATableIsNotFound) {
  const auto plugin = NetPlugin::Load("libm.so.6");
  ASSERT_FALSE(plugin);
  EXPECT_EQ(plugin.error().code(), Code::kNotFound);
  EXPECT_THAT(plugin.error().message(), HasSubstr("exports no ncclNetPlugin_v6 to v12"));
}

TEST(NetPlugin, APluginWithoutADeviceIsRefused) {
  setenv("WEFT_LOOPBACK_DEVICES", "0", 1);
  const auto plugin = NetPlugin::Load(WEFT_LOOPBACK_PLUGIN);
  unsetenv("WEFT_LOOPBACK_DEVICES");
  ASSERT_FALSE(plugin);
  EXPECT_EQ(plugin.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(plugin.error().message(), HasSubstr("has no device"));
}

}  // namespace
}  // namespace weft::collectives

// The built library through its exported tables, on loopback, without an agent.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <latch>
#include <map>
#include <set>
#include <thread>

#include "netplugin/tcp/socket.h"
#include "netplugin/tcp/wire.h"
#include "netplugin/testing/plugin.h"

namespace weft::net::testing {
namespace {

class PluginTest : public ::testing::TestWithParam<int> {
 protected:
  PluginTest() {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("WEFT_RUN_DIR", "", 1);
    setenv("WEFT_RANK", "3", 1);
    unsetenv("WEFT_CHUNK_BYTES");
    plugin_ = std::make_unique<Plugin>(GetParam());
    EXPECT_EQ(table().Init(&LogCapture::Logger), nccl::kSuccess);
  }
  ~PluginTest() override {
    EXPECT_EQ(table().Finalize(), nccl::kSuccess);
    EXPECT_TRUE(plugin_->Unload()) << "the library is still mapped";
  }
  Table& table() { return **plugin_; }

  std::unique_ptr<Plugin> plugin_;
};

INSTANTIATE_TEST_SUITE_P(Versions, PluginTest, ::testing::Values(7, 8, 9, 10, 11, 12),
                         [](const auto& version) { return std::string("V").append(std::to_string(version.param)); });

TEST_P(PluginTest, OffersLoopbackWhenAskedForIt) {
  int count = 0;
  ASSERT_EQ(table().Devices(&count), nccl::kSuccess);
  ASSERT_EQ(count, 1);
  std::string name;
  int ptr_support = 0, max_recvs = 0;
  ASSERT_EQ(table().Properties(0, &name, &ptr_support, &max_recvs), nccl::kSuccess);
  EXPECT_EQ(name, "lo");
  EXPECT_EQ(ptr_support, nccl::kPtrHost);
  EXPECT_EQ(max_recvs, 8);
  EXPECT_EQ(table().Properties(1, &name, &ptr_support, &max_recvs), nccl::kInvalidArgument);
  EXPECT_EQ(table().Name(), "Weft");
}

TEST_P(PluginTest, CarriesMessagesOfEverySize) {
  const Pair pair = MakePair(table());
  const std::vector<size_t> sizes = {0, 1, 127, 4096, 0, 8192 - 32, 8192, 65536, (1 << 20) + 3, 16 << 20, 5};
  std::thread sender([&] {
    std::vector<char> data;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Fill(&data, sizes[i], i);
      EXPECT_EQ(SendAll(table(), pair.send, data.data(), sizes[i]), nccl::kSuccess);
    }
  });
  std::vector<char> data((16 << 20) + 8);
  for (size_t i = 0; i < sizes.size(); ++i) {
    int size = -1;
    ASSERT_EQ(ReceiveAll(table(), pair.recv, data.data(), sizes[i], &size), nccl::kSuccess);
    EXPECT_EQ(static_cast<size_t>(size), sizes[i]);
    EXPECT_TRUE(Check(data, sizes[i], i)) << "message " << i << " of " << sizes[i] << " bytes";
  }
  sender.join();
  ClosePair(table(), pair);
}

TEST_P(PluginTest, TakesThirtyTwoSendsBeforeAnyTestAndNoMore) {
  const Pair pair = MakePair(table());
  constexpr size_t kSize = 3000;
  std::vector<std::vector<char>> data(nccl::kMaxRequests);
  std::vector<void*> sends(nccl::kMaxRequests), receives(nccl::kMaxRequests);
  for (int i = 0; i < nccl::kMaxRequests; ++i) {
    Fill(&data[i], kSize, i);
    ASSERT_EQ(table().Send(pair.send, data[i].data(), kSize, &sends[i]), nccl::kSuccess);
    EXPECT_NE(sends[i], nullptr);
  }
  void* more = &more;
  EXPECT_EQ(table().Send(pair.send, data[0].data(), kSize, &more), nccl::kSuccess);
  EXPECT_EQ(more, nullptr) << "the pool is full";
  std::vector<std::vector<char>> got(nccl::kMaxRequests, std::vector<char>(kSize + 100));
  for (int i = 0; i < nccl::kMaxRequests; ++i) {  // receives are larger than what is sent
    ASSERT_EQ(table().Receive(pair.recv, got[i].data(), kSize + 100, &receives[i]), nccl::kSuccess);
    ASSERT_NE(receives[i], nullptr);
  }
  for (int i = nccl::kMaxRequests - 1; i >= 0; --i) {  // tested in any order
    int size = 0, done = 0;
    EXPECT_TRUE(Eventually([&] {
      EXPECT_EQ(table().Test(receives[i], &done, &size), nccl::kSuccess);
      return done == 1;
    }));
    EXPECT_EQ(size, static_cast<int>(kSize));
    EXPECT_TRUE(Check(got[i], kSize, i));
    EXPECT_TRUE(Eventually([&] { return table().Test(sends[i], &done, nullptr) == nccl::kSuccess && done == 1; }));
  }
  EXPECT_EQ(table().Send(pair.send, data[0].data(), kSize, &more), nccl::kSuccess);
  EXPECT_NE(more, nullptr) << "the pool is free again";
  ClosePair(table(), pair);
}

TEST_P(PluginTest, OneListenerServesSeveralAccepts) {
  char handle[nccl::kHandleMaxBytes];
  void* listen = nullptr;
  ASSERT_EQ(table().Listen(0, handle, &listen), nccl::kSuccess);
  void* accepted = &accepted;
  EXPECT_EQ(table().Accept(listen, &accepted), nccl::kSuccess);
  EXPECT_EQ(accepted, nullptr) << "nobody has connected";
  std::vector<Pair> pairs(3);
  for (size_t i = 0; i < pairs.size(); ++i) {
    ASSERT_TRUE(Establish(table(), handle, listen, &pairs[i]));
  }
  EXPECT_EQ(table().CloseListen(listen), nccl::kSuccess);
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::vector<char> data, got(1008);
    Fill(&data, 1000, i);
    int size = 0;
    ASSERT_EQ(SendAll(table(), pairs[i].send, data.data(), 1000), nccl::kSuccess);
    ASSERT_EQ(ReceiveAll(table(), pairs[i].recv, got.data(), 1000, &size), nccl::kSuccess);
    EXPECT_TRUE(Check(got, 1000, i));
    ClosePair(table(), pairs[i]);
  }
}

TEST_P(PluginTest, SeveralFlowsOnSeveralThreads) {
  constexpr int kThreads = 3;
  std::latch together(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      together.arrive_and_wait();
      const Pair pair = MakePair(table());
      std::vector<char> data, got(70008);
      for (uint64_t i = 0; i < 20; ++i) {
        Fill(&data, 70000, i * kThreads + t);
        void* receive = nullptr;
        EXPECT_EQ(table().Receive(pair.recv, got.data(), 70000, &receive), nccl::kSuccess);
        EXPECT_EQ(SendAll(table(), pair.send, data.data(), 70000), nccl::kSuccess);
        int done = 0;
        EXPECT_TRUE(Eventually([&] { return table().Test(receive, &done, nullptr) != nccl::kSuccess || done; }));
        EXPECT_TRUE(Check(got, 70000, i * kThreads + t));
      }
      ClosePair(table(), pair);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(PluginTest, APeerThatClosesWithinAMessageIsARemoteError) {
  Pair pair = MakePair(table());
  constexpr size_t kSize = 64 << 20;  // more than the kernel's buffers hold
  std::vector<char> data(kSize), got(kSize);
  void *send = nullptr, *receive = nullptr;
  int done = 0;
  ASSERT_EQ(table().Receive(pair.recv, got.data(), kSize, &receive), nccl::kSuccess);
  ASSERT_EQ(table().Send(pair.send, data.data(), kSize, &send), nccl::kSuccess);
  ASSERT_EQ(table().Test(receive, &done, nullptr), nccl::kSuccess);
  ASSERT_EQ(done, 0);
  EXPECT_EQ(table().CloseSend(pair.send), nccl::kSuccess);  // with its request in flight
  pair.send = nullptr;
  int result = nccl::kSuccess;
  EXPECT_TRUE(Eventually([&] { return (result = table().Test(receive, &done, nullptr)) != nccl::kSuccess; }));
  EXPECT_EQ(result, nccl::kRemoteError);
  EXPECT_EQ(table().Test(receive, &done, nullptr), nccl::kRemoteError) << "and it stays one";
  EXPECT_TRUE(Plugin::Logged("receive from rank 3 at 127.0.0.1:"));
  ClosePair(table(), pair);
}

TEST_P(PluginTest, AReceiverThatClosesIsARemoteErrorOfTheSender) {
  Pair pair = MakePair(table());
  EXPECT_EQ(table().CloseRecv(pair.recv), nccl::kSuccess);
  pair.recv = nullptr;
  std::vector<char> data(1 << 20);
  int result = nccl::kSuccess;
  EXPECT_TRUE(Eventually([&] { return (result = SendAll(table(), pair.send, data.data(), data.size())) != nccl::kSuccess; }));
  EXPECT_EQ(result, nccl::kRemoteError);
  EXPECT_TRUE(Plugin::Logged("send to rank 3 at 127.0.0.1:"));
  ClosePair(table(), pair);
}

TEST_P(PluginTest, AMessageLongerThanItsReceiveIsRefused) {
  const Pair pair = MakePair(table());
  std::vector<char> data(100), got(100);
  ASSERT_EQ(SendAll(table(), pair.send, data.data(), 100), nccl::kSuccess);
  EXPECT_EQ(ReceiveAll(table(), pair.recv, got.data(), 99, nullptr), nccl::kInternalError);
  EXPECT_TRUE(Plugin::Logged("message 0 of 100 bytes is longer than its receive of 99 bytes"));
  ClosePair(table(), pair);
}

TEST_P(PluginTest, AForeignHandleIsRefused) {
  char handle[nccl::kHandleMaxBytes] = "not ours";
  void* comm = nullptr;
  EXPECT_EQ(table().Connect(0, handle, &comm), nccl::kInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  EXPECT_TRUE(Plugin::Logged("not a handle of this plugin"));
  void* listen = nullptr;
  ASSERT_EQ(table().Listen(0, handle, &listen), nccl::kSuccess);
  auto* fields = reinterpret_cast<Handle*>(handle);
  fields->ticket = 0x4141414141414141;  // bytes from outside: must be no address of ours
  EXPECT_EQ(table().Connect(0, handle, &comm), nccl::kInvalidArgument);
  EXPECT_TRUE(Plugin::Logged("has ticket 4702111234474983745"));
  EXPECT_EQ(table().CloseListen(listen), nccl::kSuccess);
}

TEST_P(PluginTest, ConnectingToNobodyIsARemoteError) {
  char handle[nccl::kHandleMaxBytes];
  void *listen = nullptr, *comm = nullptr;
  ASSERT_EQ(table().Listen(0, handle, &listen), nccl::kSuccess);
  ASSERT_EQ(table().CloseListen(listen), nccl::kSuccess);
  int result = nccl::kSuccess;
  EXPECT_TRUE(Eventually([&] { return (result = table().Connect(0, handle, &comm)) != nccl::kSuccess; }));
  EXPECT_EQ(result, nccl::kRemoteError);
  EXPECT_TRUE(Plugin::Logged("Connection refused"));
}

TEST_P(PluginTest, AStrangerOnTheListeningPortDisturbsNobody) {
  char handle[nccl::kHandleMaxBytes];
  Pair pair;
  ASSERT_EQ(table().Listen(0, handle, &pair.listen), nccl::kSuccess);
  Address address;
  address.family = AF_INET;
  std::memcpy(address.bytes, reinterpret_cast<Handle*>(handle)->address, 16);
  address.port = reinterpret_cast<Handle*>(handle)->port;
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  Fd stranger(socket(AF_INET, SOCK_STREAM, 0)), silent(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  ASSERT_EQ(connect(silent.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  ASSERT_EQ(send(stranger.get(), "GET / HTTP/1.1\r\nHost: weft.example\r\n\r\n", 38, 0), 38);
  ASSERT_TRUE(Establish(table(), handle, pair.listen, &pair));
  char byte = 0;
  EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0) << "the stranger is dropped";
  EXPECT_TRUE(Plugin::Logged("dropped: not a lane of this listener"));
  ClosePair(table(), pair);
}

TEST_P(PluginTest, TwoLanesThatClaimTheSameBytesAreRefused) {
  char handle[nccl::kHandleMaxBytes];
  void* listen = nullptr;
  ASSERT_EQ(table().Listen(0, handle, &listen), nccl::kSuccess);
  const auto* fields = reinterpret_cast<Handle*>(handle);
  Address address;
  address.family = AF_INET;
  std::memcpy(address.bytes, fields->address, 16);
  address.port = fields->port;
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  const auto open_lane = [&](uint16_t lane) {
    Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), length), 0);
    const LaneHello hello{kHelloMagic, kWireVersion, lane, fields->cookie, 77, 1, 0, 0, {}};
    EXPECT_EQ(send(fd.get(), &hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
    return fd;
  };
  const Fd first = open_lane(0);
  void* comm = nullptr;
  ASSERT_TRUE(Eventually([&] { return table().Accept(listen, &comm) != nccl::kSuccess || comm != nullptr; }));
  ASSERT_NE(comm, nullptr);
  const Fd second = open_lane(1);
  LaneAck ack{};
  ASSERT_EQ(recv(second.get(), &ack, sizeof ack, MSG_WAITALL), static_cast<ssize_t>(sizeof ack));
  std::vector<char> data(65536), got(65536);
  void* request = nullptr;
  ASSERT_TRUE(Eventually([&] {
    return table().Receive(comm, got.data(), got.size(), &request) != nccl::kSuccess || request != nullptr;
  }));
  const ChunkHeader whole{kChunkMagic, 0, 0, 0, 0, 65536, 0, 65536, 0, 0};
  int done = 0, size = 0, code = nccl::kSuccess;
  ASSERT_EQ(send(first.get(), &whole, sizeof whole, 0), static_cast<ssize_t>(sizeof whole));
  ASSERT_EQ(send(first.get(), data.data(), 100, 0), 100);
  for (int i = 0; i < 1000 && code == nccl::kSuccess; ++i) code = table().Test(request, &done, &size);
  ASSERT_EQ(code, nccl::kSuccess);
  // What the first lane still owes would be written after the message was complete.
  ASSERT_EQ(send(second.get(), &whole, sizeof whole, 0), static_cast<ssize_t>(sizeof whole));
  ASSERT_EQ(send(second.get(), data.data(), data.size(), 0), static_cast<ssize_t>(data.size()));
  EXPECT_TRUE(Eventually([&] { return (code = table().Test(request, &done, &size)) != nccl::kSuccess || done != 0; }));
  EXPECT_EQ(code, nccl::kInternalError);
  EXPECT_TRUE(Plugin::Logged("a chunk belongs to a message that is complete"));
  EXPECT_EQ(table().CloseRecv(comm), nccl::kSuccess);
  EXPECT_EQ(table().CloseListen(listen), nccl::kSuccess);
}

TEST_P(PluginTest, LivesWithoutALogger) {
  Plugin again(GetParam());
  EXPECT_EQ(again->Init(nullptr), nccl::kSuccess);
  char handle[nccl::kHandleMaxBytes] = "not ours";
  void* comm = nullptr;
  EXPECT_EQ(again->Connect(0, handle, &comm), nccl::kInvalidArgument);
  EXPECT_EQ(again->Finalize(), nccl::kSuccess);
}

TEST(Plugin, ExportsItsTablesAndNothingElse) {
  FILE* pipe = popen("nm -D --defined-only --format=posix " WEFT_NETPLUGIN_FILE, "r");
  ASSERT_NE(pipe, nullptr);
  std::set<std::string> names;
  char name[512];
  while (std::fscanf(pipe, "%511s%*[^\n]", name) == 1) names.insert(name);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(names, (std::set<std::string>{
                       "ncclEnvPlugin_v1", "ncclEnvPlugin_v2", "ncclNetPlugin_v10", "ncclNetPlugin_v11",
                       "ncclNetPlugin_v12", "ncclNetPlugin_v7", "ncclNetPlugin_v8", "ncclNetPlugin_v9",
                       "ncclProfiler_v1", "ncclProfiler_v2", "ncclProfiler_v3", "ncclProfiler_v4", "ncclProfiler_v5",
                       "ncclProfiler_v6", "ncclTunerPlugin_v2", "ncclTunerPlugin_v3", "ncclTunerPlugin_v4",
                       "ncclTunerPlugin_v5", "ncclTunerPlugin_v6", "weftNetWait_v1"}));
}

/// The C library's versions that the plugin asks for, as "GLIBC_2.17 memcpy".
std::map<std::pair<int, int>, std::set<std::string>> GlibcVersions() {
  std::map<std::pair<int, int>, std::set<std::string>> versions;
  FILE* pipe = popen("objdump -T " WEFT_NETPLUGIN_FILE, "r");
  EXPECT_NE(pipe, nullptr);
  char line[1024];
  while (pipe && std::fgets(line, sizeof line, pipe)) {
    const char* at = std::strstr(line, "(GLIBC_");
    const char* name = at ? std::strchr(at, ')') : nullptr;
    int major = 0, minor = 0;
    if (!name || std::sscanf(at, "(GLIBC_%d.%d", &major, &minor) != 2) continue;
    versions[{major, minor}].insert(std::string(name + 1, std::strcspn(name, "\n") - 1));
  }
  EXPECT_EQ(pclose(pipe), 0);
  return versions;
}

TEST(Plugin, LoadsWhereTheCLibraryIsAsOldAs227) {
  const auto versions = GlibcVersions();
  ASSERT_FALSE(versions.empty());
  for (const auto& [version, names] : versions) {
    std::string list;
    for (const std::string& name : names) list += name;
    EXPECT_LE(version, (std::pair{2, 27})) << "GLIBC_" << version.first << "." << version.second << ":" << list;
  }
}

TEST(Plugin, AlsoLiesUnderNcclsDefaultNameInItsOwnFolder) {
  const std::filesystem::path file(WEFT_NETPLUGIN_FILE);
  const auto link = file.parent_path() / "nccl" / "libnccl-net.so";
  EXPECT_TRUE(std::filesystem::equivalent(link, file));
  EXPECT_FALSE(std::filesystem::exists(file.parent_path() / "libnccl-net.so"));
}

TEST(Plugin, ItsThreadIsGoneWithTheLibrary) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("WEFT_RUN_DIR", "", 1);
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const auto before = threads();
  // A thread that was joined is listed for some microseconds more: the kernel wakes who joins it first.
  const auto all_gone = [&] { return Eventually([&] { return threads() == before; }); };
  {
    Plugin plugin(10);  // without finalize
    ASSERT_EQ(plugin->Init(nullptr), nccl::kSuccess);
    EXPECT_EQ(threads(), before + 1);
    EXPECT_TRUE(plugin.Unload());
  }
  EXPECT_TRUE(all_gone());
  Plugin plugin(11);
  ASSERT_EQ(plugin->Init(nullptr), nccl::kSuccess);
  EXPECT_EQ(threads(), before + 1);
  ASSERT_EQ(plugin->Finalize(), nccl::kSuccess);
  EXPECT_TRUE(all_gone()) << "finalize joins it";
}

TEST(Plugin, AForkedChildNeitherHangsNorTouchesItsParentsConnections) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("WEFT_RUN_DIR", "", 1);
  Plugin plugin(10);
  ASSERT_EQ(plugin->Init(nullptr), nccl::kSuccess);
  const Pair pair = MakePair(*plugin);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a join of a thread that the child does not have would never end
    _exit(plugin.Unload() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::vector<char> data, got(508);
  Fill(&data, 500, 1);
  EXPECT_EQ(SendAll(*plugin, pair.send, data.data(), 500), nccl::kSuccess);
  EXPECT_EQ(ReceiveAll(*plugin, pair.recv, got.data(), 500, nullptr), nccl::kSuccess);
  EXPECT_TRUE(Check(got, 500, 1));
  ClosePair(*plugin, pair);
}

}  // namespace
}  // namespace weft::net::testing

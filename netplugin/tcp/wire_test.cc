// What a TCP peer says before a flow begins is checked before it is used: handles, hellos, acknowledgements, and mutants of
// them (chunks: chunk_test.cc). WEFT_FUZZ_ROUNDS asks for more mutants.
#include "netplugin/tcp/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "netplugin/tcp/connector.h"
#include "netplugin/tcp/send_comm.h"
#include "netplugin/testing/agent.h"
#include "netplugin/testing/fuzz.h"
#include "netplugin/testing/wire_fixture.h"

namespace weft::net {
namespace {

using testing::FuzzRounds;
using testing::Loopback;
using testing::Spoil;
using testing::WireTest;
using ::testing::HasSubstr;

// --- hellos ----------------------------------------------------------------------------------------------------------

TEST_F(WireTest, MutantHellosOpenNoFlowThatIsNotThisListeners) {
  int opened = 0, dropped = 0;
  const int rounds = FuzzRounds(1'000);
  for (int round = 0; round < rounds; ++round) {
    if (round % 200 == 0) listener_ = Listener::Open(Loopback(), background_);  // lanes of unknown flows wait for 5 s
    ASSERT_TRUE(listener_);
    LaneHello hello{kHelloMagic, kWireVersion, 0, listener_->cookie(), random_(), 3, 0, 0, {}};
    Spoil(&hello, random_, 3);
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const linger reset{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    sockaddr_storage storage;
    const socklen_t length = listener_->address().ToSockaddr(&storage);
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
    const size_t bytes = random_() % 8 == 0 ? random_() % sizeof hello : sizeof hello;
    ASSERT_EQ(write(fd.get(), &hello, bytes), static_cast<ssize_t>(bytes));
    const std::unique_ptr<Arrival> arrival = listener_->TakeFlow();
    if (!arrival) {
      ++dropped;
      continue;
    }
    ++opened;
    ASSERT_EQ(bytes, sizeof hello);
    ASSERT_EQ(arrival->hello.magic, kHelloMagic);
    ASSERT_EQ(arrival->hello.version, kWireVersion);
    ASSERT_EQ(arrival->hello.cookie, listener_->cookie());
    ASSERT_EQ(arrival->hello.lane, 0);
  }
  EXPECT_GT(opened, rounds / 20);
  EXPECT_GT(dropped, rounds / 4);
}

TEST_F(WireTest, RankOfAnotherVersionIsToldApartFromAStranger) {
  Environment environment;
  Handle handle = MakeHandle(listener_->address(), listener_->cookie(), environment);
  TellOtherVersion(handle, 3);  // of its own version: nothing to tell
  EXPECT_EQ(listener_->other_version(), 0);
  const auto call = [&](uint64_t cookie) {
    LaneHello hello{kHelloMagic, kWireVersion + 1, 0, cookie, 77, 3, 0, 0, {}};
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage storage;
    const socklen_t length = listener_->address().ToSockaddr(&storage);
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
    ASSERT_EQ(write(fd.get(), &hello, sizeof hello), static_cast<ssize_t>(sizeof hello));
    EXPECT_EQ(listener_->TakeFlow(), nullptr);
  };
  call(listener_->cookie() + 1);
  EXPECT_EQ(listener_->other_version(), 0) << "a stranger";
  call(listener_->cookie());
  EXPECT_EQ(listener_->other_version(), kWireVersion + 1);
}

TEST_F(WireTest, ListenerOfAnotherVersionHearsWhyNobodyConnects) {
  Fd listening = OpenTcp(AF_INET);
  sockaddr_storage storage;
  const socklen_t length = Loopback().ToSockaddr(&storage);
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);
  Handle handle = MakeHandle(LocalAddress(listening.get()), 42, Environment());
  handle.version = kWireVersion + 1;
  TellOtherVersion(handle, 3);
  pollfd ready{listening.get(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 5000), 1);
  const Fd caller(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  LaneHello hello{};
  ASSERT_EQ(recv(caller.get(), &hello, sizeof hello, MSG_WAITALL), static_cast<ssize_t>(sizeof hello));
  EXPECT_EQ(hello.magic, kHelloMagic);
  EXPECT_EQ(hello.version, kWireVersion);
  EXPECT_EQ(hello.cookie, 42u);
  EXPECT_EQ(hello.rank, 3);
}

/// A peer that answers the hello of a late lane with nonsense: the lane fails, the flow goes on.
TEST_F(WireTest, MutantAcknowledgementsFailOnlyTheirLane) {
  testing::PolicyFile file;
  std::string why;
  auto mapping = PolicyMapping::Map(file.fd(), &why);
  ASSERT_TRUE(mapping) << why;
  policies_.Offer(std::move(mapping));
  Fd listening = OpenTcp(AF_INET);
  sockaddr_storage storage;
  socklen_t length = Loopback().ToSockaddr(&storage);
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  ASSERT_EQ(listen(listening.get(), 16), 0);
  for (int round = 0; round < std::max(10, FuzzRounds(0) / 1'000); ++round) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    const Fd lane0(ends[1]);
    SendComm::Setup setup;
    setup.lane0 = Fd(ends[0]);
    setup.identity.flow = 77;
    setup.identity.peer = setup.identity.local = Loopback();
    setup.listener = LocalAddress(listening.get());
    SendComm comm(services_, std::move(setup));
    const testing::WantedLane wanted[] = {{testing::FreePort(), 1}};
    file.Write(testing::MakePolicy(77, wanted));
    policies_.Turn();
    comm.Sweep({NowNs(), false});
    pollfd ready{listening.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 5000), 1);
    Fd peer(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    comm.Sweep({NowNs(), false});  // says hello
    LaneAck ack{kAckMagic, 1};
    Spoil(&ack, random_, 2);
    ASSERT_EQ(write(peer.get(), &ack, sizeof ack), static_cast<ssize_t>(sizeof ack));
    ready = {peer.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 5000), 1);
    comm.Sweep({NowNs(), false});
    const bool good = ack.magic == kAckMagic && ack.accepted != 0;
    const auto state = static_cast<abi::LaneState>(comm.slot()->lanes[1].state.load());
    EXPECT_EQ(state, good ? abi::LaneState::kActive : abi::LaneState::kFailed) << round;
    Request* request = nullptr;
    EXPECT_EQ(comm.Send("data", 4, 0, &request), nccl::kSuccess);
    EXPECT_NE(request, nullptr);
  }
}

// --- handles ---------------------------------------------------------------------------------------------------------

TEST(TcpHandle, EachFieldThatCannotBeIsNamed) {
  Environment environment;
  environment.job_id = "a";
  const Handle good = [&] {
    Address address = Loopback();
    address.port = 4000;
    return MakeHandle(address, 9, environment);
  }();
  const uint64_t job = JobHash("a");
  EXPECT_EQ(CheckHandle(good, job), nullptr);
  EXPECT_EQ(CheckHandle(good, 0), nullptr);
  const std::pair<void (*)(Handle*), const char*> cases[] = {
      {[](Handle* h) { h->magic = 3; }, "not a handle"},
      {[](Handle* h) { h->version = kWireVersion + 1; }, "another version"},
      {[](Handle* h) { h->family = 5; }, "family"},
      {[](Handle* h) { h->port = 0; }, "without a port"},
      {[](Handle* h) { h->job_hash += 1; }, "another job"},
  };
  for (const auto& [spoil, text] : cases) {
    Handle handle = good;
    spoil(&handle);
    ASSERT_NE(CheckHandle(handle, job), nullptr) << text;
    EXPECT_THAT(CheckHandle(handle, job), HasSubstr(text));
  }
}

TEST(TcpHandle, MutantsThatPassNameAPeerOfThisJob) {
  std::mt19937_64 random(3);
  Environment environment;
  environment.job_id = "a";
  const uint64_t job = JobHash("a");
  Address address = Loopback();
  address.port = 4000;
  int passed = 0;
  const int rounds = FuzzRounds(100'000);
  for (int round = 0; round < rounds; ++round) {
    Handle handle = MakeHandle(address, 9, environment);
    Spoil(&handle, random, 8);
    if (CheckHandle(handle, job)) continue;
    ++passed;
    ASSERT_EQ(handle.magic, kHandleMagic);
    ASSERT_TRUE(handle.family == 4 || handle.family == 6);
    ASSERT_NE(handle.port, 0);
    ASSERT_TRUE(handle.job_hash == job || handle.job_hash == 0);
  }
  EXPECT_GT(passed, rounds / 100);
  EXPECT_LT(passed, rounds / 10 * 9);
}

}  // namespace
}  // namespace weft::net

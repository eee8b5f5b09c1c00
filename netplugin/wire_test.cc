// What a TCP peer says is checked before it is used: handles, hellos, acknowledgements and chunk headers, and mutants of
// them. WEFT_FUZZ_ROUNDS asks for more mutants.
#include "netplugin/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "netplugin/connector.h"
#include "netplugin/listener.h"
#include "netplugin/recv_comm.h"
#include "netplugin/send_comm.h"
#include "netplugin/testing/agent.h"
#include "netplugin/testing/fuzz.h"

namespace weft::net {
namespace {

using testing::FuzzRounds;
using testing::Spoil;
using ::testing::HasSubstr;

Address Loopback() {
  Address address;
  address.family = AF_INET;
  address.bytes[0] = 127;
  address.bytes[3] = 1;
  return address;
}

class WireTest : public ::testing::Test {
 protected:
  WireTest() : telemetry_(Telemetry::Create(environment_, 12)), listener_(Listener::Open(Loopback(), background_)) {}

  Environment environment_;
  std::unique_ptr<Telemetry> telemetry_;
  PolicyStore policies_;
  Background background_;  // never started: the tests are its thread
  Services services_{environment_, *telemetry_, policies_, background_};
  std::shared_ptr<Listener> listener_;
  std::mt19937_64 random_{31};
};

// --- chunks ----------------------------------------------------------------------------------------------------------

/// A receiver of which the test holds the sending ends of the lanes.
class Lanes {
 public:
  Lanes(const Services& services, std::shared_ptr<Listener> listener) {
    RecvComm::Setup setup;
    setup.identity.peer = setup.identity.local = Loopback();
    setup.identity.flow = 5;
    setup.lane0 = NewLane(0);
    setup.listener = std::move(listener);
    comm_ = std::make_unique<RecvComm>(services, std::move(setup));
  }

  RecvComm& comm() { return *comm_; }
  void AddLane(uint32_t index) {
    Fd end = NewLane(index);
    ASSERT_TRUE(comm_->AttachLate(index, &end, 0));
    LaneAck ack{};  // unread, it would make a reset of what closes later
    ASSERT_EQ(read(ends_[index].get(), &ack, sizeof ack), static_cast<ssize_t>(sizeof ack));
    EXPECT_EQ(ack.accepted, 1u);
  }
  void Send(uint32_t lane, const void* data, size_t bytes) {
    ASSERT_EQ(write(ends_[lane].get(), data, bytes), static_cast<ssize_t>(bytes));
  }
  void Send(uint32_t lane, const ChunkHeader& header, char byte) {
    Send(lane, &header, sizeof header);
    const std::vector<char> payload(header.length, byte);
    Send(lane, payload.data(), payload.size());
  }
  void Close(uint32_t lane) { ends_[lane].Reset(); }

 private:
  Fd NewLane(uint32_t index) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    ends_[index].Reset(ends[1]);
    return Fd(ends[0]);
  }

  std::array<Fd, abi::kMaxLanes> ends_;
  std::unique_ptr<RecvComm> comm_;
};

ChunkHeader Chunk(uint32_t sequence, uint32_t length, uint64_t offset, uint64_t total) {
  return {kChunkMagic, 0, 0, 0, sequence, length, offset, total, 0, 0};
}

TEST_F(WireTest, AMessageWhosePartWentWithItsLaneFailsTheFlow) {
  Lanes lanes(services_, listener_);
  lanes.AddLane(1);
  char data[3][200];
  Request* requests[2];
  for (int i = 0; i < 2; ++i) ASSERT_EQ(lanes.comm().Receive(data[i], 200, 0, &requests[i]), nccl::kSuccess);
  lanes.Send(1, Chunk(0, 100, 0, 100), 'a');
  lanes.Send(0, Chunk(1, 100, 0, 200), 'b');
  lanes.Close(1);  // its half of message 1 never left
  int done = 0, size = 0;
  EXPECT_EQ(lanes.comm().Test(requests[0], &done, &size), nccl::kSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(lanes.comm().Test(requests[1], &done, &size), nccl::kSuccess);
  EXPECT_EQ(done, 0) << "the other lane may carry it still";
  lanes.Send(0, Chunk(2, 100, 0, 100), 'c');  // the lane has gone on to a later message
  int code = nccl::kSuccess;
  for (int i = 0; i < 4 && code == nccl::kSuccess; ++i) code = lanes.comm().Test(requests[1], &done, &size);
  EXPECT_EQ(code, nccl::kRemoteError);
}

ChunkHeader Tagged(uint32_t sequence, int32_t tag, uint32_t length, uint64_t total) {
  return {kChunkMagic, kChunkTagged, 0, 0, sequence, length, 0, total, tag, 0};
}

TEST_F(WireTest, AMessageWhosePartWentWithItsLaneFailsAFlowThatGoesByTagsToo) {
  Lanes lanes(services_, listener_);
  lanes.AddLane(1);
  char memory[2][200];
  void* data[] = {memory[0], memory[1]};
  const uint64_t sizes[] = {200, 200};
  const int tags[] = {1, 2};
  Request* group = nullptr;
  ASSERT_EQ(lanes.comm().IrecvGroup(2, data, sizes, tags, nullptr, &group), nccl::kSuccess);
  lanes.Send(1, Tagged(0, 2, 100, 100), 'a');
  lanes.Send(0, Tagged(1, 1, 100, 200), 'b');
  lanes.Close(1);
  int done = 0, got[2];
  for (int i = 0; i < 4; ++i) ASSERT_EQ(lanes.comm().Test(group, &done, got), nccl::kSuccess);
  ASSERT_EQ(done, 0);
  lanes.Send(0, Tagged(2, 1, 100, 100), 'c');
  int code = nccl::kSuccess;
  for (int i = 0; i < 4 && code == nccl::kSuccess; ++i) code = lanes.comm().Test(group, &done, got);
  EXPECT_EQ(code, nccl::kRemoteError);
}

TEST_F(WireTest, HalfAPaddedChunkOnTheLastLaneIsNoLoss) {
  Lanes lanes(services_, listener_);
  lanes.AddLane(1);
  char data[100] = {};
  Request* request = nullptr;
  ASSERT_EQ(lanes.comm().Receive(data, 100, 0, &request), nccl::kSuccess);
  char chunk[kPaddedBytes] = {};
  const ChunkHeader header{kChunkMagic, 0, 0, kPaddedBytes - sizeof(ChunkHeader) - 8, 0, 8, 0, 8, 0, 0};
  std::memcpy(chunk, &header, sizeof header);
  std::memset(chunk + sizeof header, 'p', 8);
  lanes.Close(0);  // all was sent, and the sender has closed
  lanes.Send(1, chunk, 100);
  int done = 0, size = 0;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(lanes.comm().Test(request, &done, &size), nccl::kSuccess) << i;
  ASSERT_EQ(done, 0);
  lanes.Send(1, chunk + 100, sizeof chunk - 100);
  for (int i = 0; i < 4 && !done; ++i) ASSERT_EQ(lanes.comm().Test(request, &done, &size), nccl::kSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(size, 8);
  EXPECT_EQ(data[7], 'p');
}

TEST_F(WireTest, AMessageOfATagDoesNotOvertakeOneOfAnotherTagToTheWrongBuffer) {
  Lanes lanes(services_, listener_);
  lanes.AddLane(1);
  char data[3][100] = {};
  Request* requests[3];
  for (int i = 0; i < 2; ++i) ASSERT_EQ(lanes.comm().Receive(data[i], 100, 1, &requests[i]), nccl::kSuccess);
  // Tag 2 is on its way over the slow lane, and what was sent after it is here first.
  lanes.Send(0, Tagged(1, 1, 100, 100), 'a');
  lanes.Send(0, Tagged(2, 1, 100, 100), 'b');
  int done = 0, size = 0;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(lanes.comm().Test(requests[1], &done, &size), nccl::kSuccess);
  ASSERT_EQ(done, 0) << "no one knows yet what came before";
  const ChunkHeader first{kChunkMagic, 0, 0, 0, 0, 100, 0, 100, 2, 0};
  lanes.Send(1, first, 'c');
  for (int i = 0; i < 2; ++i) {
    for (int tries = 0; tries < 4 && !done; ++tries) {
      ASSERT_EQ(lanes.comm().Test(requests[i], &done, &size), nccl::kSuccess);
    }
    ASSERT_EQ(done, 1);
    done = 0;
  }
  EXPECT_EQ(data[0][99], 'a');
  EXPECT_EQ(data[1][99], 'b');
  ASSERT_EQ(lanes.comm().Receive(data[2], 100, 2, &requests[2]), nccl::kSuccess);
  EXPECT_EQ(lanes.comm().Test(requests[2], &done, &size), nccl::kSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(data[2][99], 'c');
}

TEST_F(WireTest, ALaneThatIsResetBeforeItCarriedAnythingIsNoLoss) {
  Fd listening = OpenTcp(AF_INET);
  Address address = Loopback();
  sockaddr_storage storage;
  socklen_t length = address.ToSockaddr(&storage);
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);
  length = LocalAddress(listening.get()).ToSockaddr(&storage);
  Fd sender(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(sender.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  Fd receiver(accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));

  Lanes lanes(services_, listener_);
  char data[100];
  Request* request;
  ASSERT_EQ(lanes.comm().Receive(data, sizeof data, 0, &request), nccl::kSuccess);
  ASSERT_TRUE(lanes.comm().AttachLate(1, &receiver, 0));  // sends the acknowledgement
  pollfd ready{sender.get(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 5000), 1);
  sender.Reset();  // unread: the kernel resets the connection
  int done = 0, size = 0;
  EXPECT_EQ(lanes.comm().Test(request, &done, &size), nccl::kSuccess);
  lanes.Send(0, Chunk(0, 100, 0, 100), 'x');
  EXPECT_EQ(lanes.comm().Test(request, &done, &size), nccl::kSuccess);
  EXPECT_EQ(done, 1);
}

/// Three messages over two lanes of which one header is spoiled. Whatever it says: no byte outside the buffers, and the
/// flow comes to an end.
TEST_F(WireTest, MutantChunksWriteNothingOutsideTheirBuffers) {
  constexpr size_t kRoom = 300, kGuard = 64, kStep = kRoom + kGuard;
  constexpr char kUntouched = 0x5A;
  int refused = 0, passed = 0;
  const int rounds = FuzzRounds(2'000);
  for (int round = 0; round < rounds; ++round) {
    Lanes lanes(services_, listener_);
    lanes.AddLane(1);
    std::vector<char> memory(kGuard + 3 * kStep, kUntouched);
    Request* requests[3];
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(lanes.comm().Receive(&memory[kGuard + i * kStep], kRoom, 0, &requests[i]), nccl::kSuccess);
    }
    ChunkHeader chunks[] = {Chunk(0, 100, 0, 250), Chunk(0, 150, 100, 250), Chunk(1, 0, 0, 0), Chunk(2, 300, 0, 300)};
    ChunkHeader& spoiled = chunks[random_() % 4];
    const uint32_t bytes_after = spoiled.length;
    Spoil(&spoiled, random_, 4, random_() % 4 == 0 ? 0 : 4);  // most of them behind the magic number
    for (int i = 0; i < 4; ++i) {
      lanes.Send(i % 2, &chunks[i], sizeof chunks[i]);
      const std::vector<char> payload(&chunks[i] == &spoiled ? bytes_after : chunks[i].length, 'p');
      lanes.Send(i % 2, payload.data(), payload.size());
    }
    lanes.Close(0);
    lanes.Close(1);
    int code = nccl::kSuccess, finished = 0;
    for (Request* request : requests) {
      int done = 0, size = -1;
      for (int tries = 0; tries < 20 && !done && code == nccl::kSuccess; ++tries) {
        code = lanes.comm().Test(request, &done, &size);
      }
      if (!done) break;
      ++finished;
      ASSERT_GE(size, 0);
      ASSERT_LE(static_cast<size_t>(size), kRoom);
    }
    ASSERT_TRUE(finished == 3 || code != nccl::kSuccess) << "round " << round << " does not end";
    ++(finished == 3 ? passed : refused);
    for (size_t i = 0; i <= 3; ++i) {
      const char* guard = &memory[i * kStep];
      ASSERT_TRUE(std::all_of(guard, guard + kGuard, [](char c) { return c == kUntouched; })) << "round " << round;
    }
  }
  EXPECT_GT(refused, rounds / 4);
  EXPECT_GT(passed, rounds / 100);  // a spoiled class or reserved field does no harm
}

// --- hellos ----------------------------------------------------------------------------------------------------------

TEST_F(WireTest, MutantHellosOpenNoFlowThatIsNotThisListeners) {
  int opened = 0, dropped = 0;
  const int rounds = FuzzRounds(1'000);
  for (int round = 0; round < rounds; ++round) {
    if (round % 200 == 0) listener_ = Listener::Open(Loopback(), background_);  // lanes of unknown flows wait for 5 s
    ASSERT_TRUE(listener_);
    LaneHello hello{kHelloMagic, kWireVersion, 0, listener_->cookie(), random_(), 3, 0, {}};
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

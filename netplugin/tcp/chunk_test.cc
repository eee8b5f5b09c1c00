// The receiver against chunks that no sender of ours would send so: in pieces, on lanes that end, in the wrong order, spoiled.
// WEFT_FUZZ_ROUNDS asks for more mutants.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "netplugin/tcp/recv_comm.h"
#include "netplugin/tcp/send_comm.h"
#include "netplugin/tcp/wire.h"
#include "netplugin/testing/fuzz.h"
#include "netplugin/testing/lanes.h"
#include "netplugin/testing/wire_fixture.h"

namespace weft::net {
namespace {

using testing::Chunk;
using testing::FuzzRounds;
using testing::Lanes;
using testing::Loopback;
using testing::Spoil;
using testing::WireTest;
using ChunkTest = WireTest;

TEST_F(ChunkTest, AMessageWhosePartWentWithItsLaneFailsTheFlow) {
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

TEST_F(ChunkTest, AMessageWhosePartWentWithItsLaneFailsAFlowThatGoesByTagsToo) {
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

TEST_F(ChunkTest, HalfAPaddedChunkOnTheLastLaneIsNoLoss) {
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
  const size_t most = sizeof chunk - 1;
  lanes.Send(1, chunk, most);
  int done = 0, size = 0;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(lanes.comm().Test(request, &done, &size), nccl::kSuccess) << i;
  ASSERT_EQ(done, 0);
  lanes.Send(1, chunk + most, 1);
  for (int i = 0; i < 4 && !done; ++i) ASSERT_EQ(lanes.comm().Test(request, &done, &size), nccl::kSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(size, 8);
  EXPECT_EQ(data[7], 'p');
}

/// Chunks that fit a lane's stage, and such of which the rest is read past it.
TEST_F(ChunkTest, PaddingBehindALongChunkIsPassedOverWhereverItIsCut) {
  for (const uint32_t length : {1000u, 49000u}) {
    const uint32_t padding = -length % kLineBytes;
    std::vector<char> stream;
    for (uint32_t i = 0; i < 3; ++i) {
      const ChunkHeader header{kChunkMagic, 0, 0, static_cast<uint16_t>(padding), i, length, 0, length, 0, 0};
      const auto* bytes = reinterpret_cast<const char*>(&header);
      stream.insert(stream.end(), bytes, bytes + sizeof header);
      stream.insert(stream.end(), length, static_cast<char>('a' + i));
      stream.insert(stream.end(), padding, '#');
    }
    ASSERT_EQ(stream.size() % kLineBytes, 0u);
    const size_t near_end = stream.size() - 200;
    for (size_t cut = 1; cut < stream.size(); cut += cut < near_end ? length / 7 : 1) {
      Lanes lanes(services_, listener_);
      std::vector<char> data(3 * length);
      Request* requests[3];
      for (uint32_t i = 0; i < 3; ++i) ASSERT_EQ(lanes.comm().Receive(&data[i * length], length, 0, &requests[i]), nccl::kSuccess);
      lanes.Send(0, stream.data(), cut);
      int done = 0, size = 0;
      for (int i = 0; i < 9; ++i) ASSERT_EQ(lanes.comm().Test(requests[2], &done, &size), nccl::kSuccess);
      EXPECT_EQ(done != 0, cut >= stream.size() - padding) << length << ' ' << cut;
      lanes.Send(0, stream.data() + cut, stream.size() - cut);
      for (uint32_t i = 0; i < 3; ++i) {
        done = 0;
        for (int tries = 0; tries < 9 && !done; ++tries) ASSERT_EQ(lanes.comm().Test(requests[i], &done, &size), nccl::kSuccess);
        ASSERT_EQ(done, 1) << length << ' ' << cut;
        EXPECT_EQ(std::count(&data[i * length], &data[i * length] + length, 'a' + i), length) << cut;
      }
    }
  }
}

TEST_F(ChunkTest, MorePaddingThanAnySenderGivesIsRefused) {
  for (const auto& [length, padding] : {std::pair{1000u, kLineBytes}, std::pair{8u, kMostPadding + 1}}) {
    Lanes lanes(services_, listener_);
    std::vector<char> data(length);
    Request* request = nullptr;
    ASSERT_EQ(lanes.comm().Receive(data.data(), length, 0, &request), nccl::kSuccess);
    lanes.Send(0, {kChunkMagic, 0, 0, static_cast<uint16_t>(padding), 0, length, 0, length, 0, 0}, 'x');
    int done = 0, size = 0;
    EXPECT_EQ(lanes.comm().Test(request, &done, &size), nccl::kInternalError) << length;
  }
}

/// A kernel that takes a message but for some of its padding: the receiver has all that it waits for, and so the sender is
/// done. What comes after begins on a line.
TEST_F(ChunkTest, ASenderWhosePaddingDoesNotFitIsDoneAndGoesOnBehindIt) {
  int cut_within = 0;
  for (uint32_t length = 4580; length < 4680; ++length) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    const Fd theirs(ends[1]);
    const int room = 2420;  // of which the kernel takes 4712 bytes at a time
    ASSERT_EQ(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    SendComm::Setup setup;
    setup.lane0 = Fd(ends[0]);
    setup.identity.flow = 77;
    setup.identity.peer = setup.identity.local = Loopback();
    SendComm comm(services_, std::move(setup));
    const std::vector<char> data(length, 'p');
    Request* requests[2] = {};
    for (Request*& request : requests) ASSERT_EQ(comm.Send(data.data(), length, 0, &request), nccl::kSuccess);
    const size_t whole = (sizeof(ChunkHeader) + length + kLineBytes - 1) / kLineBytes * kLineBytes;
    int done = 0, taken = 0;
    ASSERT_EQ(comm.Test(requests[0], &done, nullptr), nccl::kSuccess);
    ioctl(theirs.get(), FIONREAD, &taken);
    cut_within += done && static_cast<size_t>(taken) < whole;
    std::vector<char> stream(16384);
    size_t got = 0;
    const auto read_some = [&] {
      const ssize_t more = recv(theirs.get(), &stream[got], 300, MSG_DONTWAIT);
      got += more > 0 ? static_cast<size_t>(more) : 0;
    };
    for (done = 0; !done && got < 2 * whole; read_some()) ASSERT_EQ(comm.Test(requests[1], &done, nullptr), nccl::kSuccess);
    ASSERT_EQ(done, 1) << length;
    Request* last = nullptr;
    ASSERT_EQ(comm.Send(data.data(), 8, 0, &last), nccl::kSuccess);
    for (done = 0; !done && got < 3 * whole; read_some()) ASSERT_EQ(comm.Test(last, &done, nullptr), nccl::kSuccess);
    for (int i = 0; i < 20; ++i) read_some();
    ASSERT_GT(got, 2 * whole + sizeof(ChunkHeader)) << length;
    for (uint32_t i = 0; i < 3; ++i) {
      ChunkHeader header;
      std::memcpy(&header, &stream[i * whole], sizeof header);
      ASSERT_EQ(header.magic, kChunkMagic) << length << ' ' << i;
      ASSERT_EQ(header.sequence, i);
      const char* payload = &stream[i * whole] + sizeof header;
      if (i < 2) {
        ASSERT_EQ(std::count(payload, payload + length, 'p'), length);
      }
    }
  }
  EXPECT_GT(cut_within, 10);
}

TEST_F(ChunkTest, AMessageOfATagDoesNotOvertakeOneOfAnotherTagToTheWrongBuffer) {
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

TEST_F(ChunkTest, ALaneThatIsResetBeforeItCarriedAnythingIsNoLoss) {
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
TEST_F(ChunkTest, MutantChunksWriteNothingOutsideTheirBuffers) {
  constexpr size_t kRoom = 500, kGuard = 64, kStep = kRoom + kGuard;
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
    ChunkHeader chunks[] = {Chunk(0, 100, 0, 250), Chunk(0, 150, 100, 250), Chunk(1, 0, 0, 0), Chunk(2, 500, 0, 500)};
    chunks[3].padding = 12;
    ChunkHeader& spoiled = chunks[random_() % 4];
    const uint32_t bytes_after = spoiled.length + spoiled.padding;
    // Most of them behind the magic number, all of them before what nobody reads.
    Spoil(&spoiled, random_, 4, random_() % 4 == 0 ? 0 : 4, offsetof(ChunkHeader, reserved));
    for (int i = 0; i < 4; ++i) {
      lanes.Send(i % 2, &chunks[i], sizeof chunks[i]);
      const std::vector<char> payload(&chunks[i] == &spoiled ? bytes_after : chunks[i].length + chunks[i].padding, 'p');
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

}  // namespace
}  // namespace weft::net

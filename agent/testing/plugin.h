// For tests: what a plugin does at the agent's socket, with real memfds and sockets.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "netplugin/abi/agent_socket.h"
#include "netplugin/abi/segment.h"

namespace weft::agent {

/// A folder of its own, gone at the end.
struct TempDir {
  TempDir() {
    char name[] = "/tmp/weft-agent-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path;
};

/// A telemetry segment as the plugin makes it.
struct TestSegment {
  explicit TestSegment(const std::string& job = "job-1", int seals = F_SEAL_SHRINK | F_SEAL_GROW,
                       size_t bytes = sizeof(abi::TelemetrySegment))
      : size(bytes), fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (::ftruncate(fd.get(), static_cast<off_t>(sizeof(abi::TelemetrySegment))) != 0) std::abort();
    void* const data =
        ::mmap(nullptr, sizeof(abi::TelemetrySegment), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    segment = static_cast<abi::TelemetrySegment*>(data);  // zero bits, whose pages take no memory until they are touched
    abi::InitTelemetryHeader(segment);
    segment->process.pid = ::getpid();
    segment->process.rank = 3;
    segment->process.world = 8;
    job.copy(segment->process.job, sizeof segment->process.job - 1);
    if (bytes != sizeof(abi::TelemetrySegment) && ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) std::abort();
    if (seals != 0) ::fcntl(fd.get(), F_ADD_SEALS, seals);
  }
  ~TestSegment() { ::munmap(segment, sizeof *segment); }
  TestSegment(const TestSegment&) = delete;

  UniqueFd Share() const { return UniqueFd(::dup(fd.get())); }

  /// Makes it one of a plugin of an older version, which knows no `slots_used`. Requires: before any slot is opened, and as large as
  /// TelemetrySegmentV2 at least.
  void MakeOld(uint32_t version) {
    abi::InitTelemetryHeader(reinterpret_cast<abi::TelemetrySegmentV2*>(segment));  // the same up to its last slot
    segment->header.version = version;
  }

  /// Takes slot `index` as the plugin does: odd generation, identity, even generation, open. Without `loopback` the
  /// addresses stay what the test has put there.
  abi::FlowSlot& Open(uint32_t index, uint64_t flow, abi::Direction direction = abi::Direction::kSend,
                      uint16_t lane_port = 41001, bool loopback = true) {
    abi::FlowSlot& slot = segment->flows[index];
    slot.generation.fetch_add(1);
    slot.flow = flow;
    slot.direction = static_cast<uint32_t>(direction);
    slot.rank = 3;
    slot.peer_rank = 4;
    slot.family = 4;
    const uint8_t here[4] = {127, 0, 0, 1};
    if (loopback) std::memcpy(slot.local_address, here, 4);
    if (loopback) std::memcpy(slot.peer_address, here, 4);
    slot.peer_port = 29500;
    slot.lanes[0].source_port = lane_port;
    slot.lanes[0].state = static_cast<uint32_t>(abi::LaneState::kActive);
    slot.lanes[0].weight = 1;
    slot.generation.fetch_add(1);
    slot.state.store(static_cast<uint32_t>(abi::SlotState::kOpen), std::memory_order_release);
    std::atomic<uint32_t>& used = segment->process.slots_used;
    if (segment->header.version >= abi::kSegmentVersion) used.store(std::max(used.load(), index + 1), std::memory_order_release);
    return slot;
  }

  size_t size;
  UniqueFd fd;
  abi::TelemetrySegment* segment;
};

struct TestReply {
  abi::MessageHeader header{};
  std::string body;
  UniqueFd fd;

  abi::MessageType type() const { return static_cast<abi::MessageType>(header.type); }
  /// Of a reject.
  std::string reason() const { return type() == abi::MessageType::kReject ? std::string(body.c_str()) : ""; }
};

/// One connection to an agent.
class TestPeer {
 public:
  explicit TestPeer(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connected = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  void Send(const void* data, size_t bytes, int fd = -1) {
    iovec part{const_cast<void*>(data), bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* const c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL) < 0) connected = false;
  }

  template <typename Body>
  void SendMessage(abi::MessageType type, const Body& body, int fd = -1) {
    std::string packet(sizeof(abi::MessageHeader) + sizeof body, '\0');
    const abi::MessageHeader header{abi::kSocketMagic, abi::kSocketVersion, static_cast<uint16_t>(type), sizeof body};
    std::memcpy(packet.data(), &header, sizeof header);
    std::memcpy(packet.data() + sizeof header, &body, sizeof body);
    Send(packet.data(), packet.size(), fd);
  }
  void SendHello(const std::string& job, int fd, uint32_t version = abi::kSegmentVersion) {
    abi::Hello hello{.segment_version = version, .rank = 3};
    job.copy(hello.job, sizeof hello.job - 1);
    SendMessage(abi::MessageType::kHello, hello, fd);
  }

  /// Waits for one packet; an empty type (0) when the agent closes or nothing comes within 5 s.
  TestReply Receive() {
    TestReply reply;
    pollfd ready{fd_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 5000) <= 0) return reply;
    std::vector<char> buffer(16384);
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < static_cast<ssize_t>(sizeof reply.header)) return reply;
    std::memcpy(&reply.header, buffer.data(), sizeof reply.header);
    reply.body.assign(buffer.data() + sizeof reply.header, static_cast<size_t>(got) - sizeof reply.header);
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
      reply.fd.reset(fd);
    }
    return reply;
  }

  bool connected = false;

 private:
  UniqueFd fd_;
};

}  // namespace weft::agent

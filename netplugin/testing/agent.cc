#include "netplugin/testing/agent.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "netplugin/abi/seqlock.h"

namespace weft::net::testing {

PolicyFile::PolicyFile(bool sealed) : fd_(memfd_create("policy", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  EXPECT_EQ(ftruncate(fd_.get(), sizeof(abi::PolicySegment)), 0);
  void* memory = mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  EXPECT_NE(memory, MAP_FAILED);
  segment_ = static_cast<abi::PolicySegment*>(memory);
  abi::InitPolicyHeader(segment_);
  if (sealed) {
    EXPECT_EQ(fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  }
}

PolicyFile::~PolicyFile() { munmap(segment_, sizeof(abi::PolicySegment)); }

void PolicyFile::Write(const abi::FlowPolicy& flow) { abi::WritePolicies(segment_->table, {&flow, 1}); }

Agent::Agent(const std::string& run_dir) : path_(run_dir + "/" + abi::kSocketName) {
  unlink(path_.c_str());
  listener_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path_;
  EXPECT_EQ(listen(listener_.get(), 4), 0);
}

Agent::~Agent() {
  if (telemetry_) munmap(const_cast<abi::TelemetrySegment*>(telemetry_), telemetry_bytes_);
  unlink(path_.c_str());
}

bool Agent::IsCalled() const {
  pollfd ready{listener_.get(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

bool Agent::Greet() {
  pollfd ready{listener_.get(), POLLIN, 0};
  if (poll(&ready, 1, 30000) != 1) return false;
  plugin_.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  struct {
    abi::MessageHeader header;
    abi::Hello hello;
  } message;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr envelope{};
  envelope.msg_iov = &part;
  envelope.msg_iovlen = 1;
  envelope.msg_control = control;
  envelope.msg_controllen = sizeof control;
  if (recvmsg(plugin_.get(), &envelope, MSG_CMSG_CLOEXEC) != sizeof message) return false;
  if (message.header.magic != abi::kSocketMagic || message.header.type != 1) return false;
  hello_ = message.hello;
  const cmsghdr* rights = CMSG_FIRSTHDR(&envelope);
  if (!rights || rights->cmsg_type != SCM_RIGHTS) return false;
  int fd;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  const Fd owned(fd);
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  telemetry_inode_ = status.st_ino;
  const int seals = fcntl(fd, F_GET_SEALS);
  if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) != (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) return false;
  const auto bytes = static_cast<size_t>(status.st_size);
  void* writable = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  telemetry_read_only_ = writable == MAP_FAILED;
  if (writable != MAP_FAILED) munmap(writable, bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  telemetry_ = static_cast<const abi::TelemetrySegment*>(memory);
  telemetry_bytes_ = bytes;
  return abi::ValidateSegment(memory, bytes, abi::kTelemetryMagic) == nullptr &&
         abi::FindObservations(memory, bytes) != nullptr;
}

bool Agent::Send(abi::MessageType type, const void* body, size_t bytes, int fd) {
  abi::MessageHeader header{abi::kSocketMagic, abi::kSocketVersion, static_cast<uint16_t>(type),
                            static_cast<uint32_t>(bytes), 0};
  iovec parts[2] = {{&header, sizeof header}, {const_cast<void*>(body), bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr envelope{};
  envelope.msg_iov = parts;
  envelope.msg_iovlen = 2;
  if (fd >= 0) {
    envelope.msg_control = control;
    envelope.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&envelope);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  return sendmsg(plugin_.get(), &envelope, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof header + bytes);
}

bool Agent::SendPolicy(int fd) {
  const abi::Policy body{abi::kSegmentVersion, 0};
  return Send(abi::MessageType::kPolicy, &body, sizeof body, fd);
}

bool Agent::SendReject(const std::string& reason) {
  abi::Reject body{};
  reason.copy(body.reason, sizeof body.reason - 1);
  return Send(abi::MessageType::kReject, &body, sizeof body, -1);
}

uint64_t Agent::TakeUnsentRequest() {
  struct {
    abi::MessageHeader header;
    abi::UnsentRequest body;
  } request{};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  iovec part{&request, sizeof request};
  msghdr envelope{};
  envelope.msg_iov = &part;
  envelope.msg_iovlen = 1;
  envelope.msg_control = control;
  envelope.msg_controllen = sizeof control;
  const bool whole = recvmsg(plugin_.get(), &envelope, MSG_CMSG_CLOEXEC) == static_cast<ssize_t>(sizeof request);
  const cmsghdr* rights = CMSG_FIRSTHDR(&envelope);
  if (!rights || rights->cmsg_type != SCM_RIGHTS || rights->cmsg_len != CMSG_LEN(sizeof(int))) return 0;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  Fd{fd}.Reset();
  return whole && request.header.type == static_cast<uint16_t>(abi::MessageType::kUnsentRequest) ? request.body.token : 0;
}

bool Agent::AnswerUnsent(uint64_t token, uint64_t bytes, const std::string& reason, int fd) {
  abi::UnsentReply body{token, bytes, {}};
  reason.copy(body.reason, sizeof body.reason - 1);
  return Send(abi::MessageType::kUnsentReply, &body, sizeof body, fd);
}

uint16_t FreePort() {
  static std::set<uint16_t> given;  // the kernel may well offer a port twice in a row
  while (true) {
    const Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    Address address;
    address.family = AF_INET;
    address.bytes[0] = 127;
    address.bytes[3] = 1;
    sockaddr_storage storage;
    const socklen_t length = address.ToSockaddr(&storage);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
    const uint16_t port = LocalAddress(fd.get()).port;
    if (given.insert(port).second) return port;
  }
}

std::span<const abi::FlowSlot> SlotsOf(const abi::TelemetrySegment& telemetry) {
  return {telemetry.flows, std::min(telemetry.process.slots_used.load(std::memory_order_acquire), abi::kMaxFlows)};
}

const abi::FlowSlot* FindFlow(const abi::TelemetrySegment& telemetry, abi::Direction direction) {
  for (const abi::FlowSlot& slot : SlotsOf(telemetry)) {
    if (slot.state.load(std::memory_order_acquire) != static_cast<uint32_t>(abi::SlotState::kOpen)) continue;
    if (slot.direction == static_cast<uint32_t>(direction)) return &slot;
  }
  return nullptr;
}

abi::FlowPolicy MakePolicy(uint64_t flow, std::span<const WantedLane> lanes) {
  abi::FlowPolicy policy{};
  policy.flow = flow;
  for (size_t i = 0; i < lanes.size(); ++i) {
    policy.lanes[i].source_port = lanes[i].port;
    policy.lanes[i].weight = lanes[i].weight;
  }
  return policy;
}

}  // namespace weft::net::testing

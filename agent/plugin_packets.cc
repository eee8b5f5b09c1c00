#include "agent/plugin_packets.h"

#include <sys/socket.h>

#include <cerrno>

namespace weft::agent {

using abi::MessageType;

Status SendPacket(int socket, MessageType type, const void* body, uint32_t bytes, int fd) {
  const abi::MessageHeader header{.magic = abi::kSocketMagic,
                                  .version = abi::kSocketVersion,
                                  .type = static_cast<uint16_t>(type),
                                  .body_bytes = bytes};
  iovec parts[] = {{const_cast<abi::MessageHeader*>(&header), sizeof header}, {const_cast<void*>(body), bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
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
  if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return Fail(ErrnoError("answer peer", errno));
  return Ok();
}

Received ReceivePacket(int socket, Packet* packet) {
  iovec part{packet, sizeof *packet};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  Received received;
  received.bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received.bytes < 0) return received;
  received.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  return received;
}

Status CheckPacket(const Packet& packet, const Received& received) {
  const auto bytes = static_cast<size_t>(received.bytes);
  if (received.truncated || bytes < sizeof(abi::MessageHeader)) {
    return Fail(Code::kInvalidArgument, "message is shorter than its header or longer than any known one");
  }
  const abi::MessageHeader& header = packet.header;
  if (header.magic != abi::kSocketMagic) {
    return Fail(Code::kInvalidArgument,
                fmt::format("message magic 0x{:08x}, expected 0x{:08x}", header.magic, abi::kSocketMagic));
  }
  if (header.version != abi::kSocketVersion) {
    return Fail(Code::kUnimplemented,
                fmt::format("socket version {}, this agent speaks {}", header.version, abi::kSocketVersion));
  }
  if (header.body_bytes != bytes - sizeof header) {
    return Fail(Code::kInvalidArgument, fmt::format("message body of {} bytes, the header says {}",
                                                    bytes - sizeof header, header.body_bytes));
  }
  return Ok();
}

}  // namespace weft::agent

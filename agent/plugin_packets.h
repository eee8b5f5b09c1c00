// One message of the agent's Unix socket per packet, as abi/agent_socket.h has them. Whoever sends them is not trusted.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "netplugin/abi/agent_socket.h"

namespace weft::agent {

inline constexpr size_t kMostBodyBytes = 512;  ///< of what peers may send; replies are longer
inline constexpr int kMostDescriptors = 8;     ///< room for more than the one that is asked for, so that none leaks

struct Packet {
  abi::MessageHeader header;
  char body[kMostBodyBytes];
};

struct Received {
  ssize_t bytes = 0;
  bool truncated = false;
  std::vector<UniqueFd> fds;
};

/// One packet: header and body, with a descriptor if `fd` is not negative. Never waits.
Status SendPacket(int socket, abi::MessageType type, const void* body, uint32_t bytes, int fd);

/// The next packet, with `bytes` and errno as recvmsg() has them. Never waits.
Received ReceivePacket(int socket, Packet* packet);

/// Whether what came is a message of this version. Errors: kInvalidArgument, kUnimplemented.
Status CheckPacket(const Packet& packet, const Received& received);

/// Its body. Errors: kInvalidArgument where it is of another length.
template <typename Body>
Result<Body> ReadBody(const abi::MessageHeader& header, const char* body, const char* what) {
  if (header.body_bytes != sizeof(Body)) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{} of {} bytes, expected {}", what, header.body_bytes, sizeof(Body)));
  }
  Body out;
  std::memcpy(&out, body, sizeof out);
  return out;
}

}  // namespace weft::agent

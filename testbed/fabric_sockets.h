// Sockets of the fabric's own tests: opened inside a namespace, used from the test's thread. A socket stays in the
// namespace that it was made in, so that one process can play all hosts.
#pragma once

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "testbed/net_namespace.h"

namespace weft::testbed {

inline sockaddr_in Endpoint(const std::string& address, uint16_t port) {
  sockaddr_in endpoint{};
  endpoint.sin_family = AF_INET;
  endpoint.sin_port = htons(port);
  ::inet_pton(AF_INET, address.c_str(), &endpoint.sin_addr);
  return endpoint;
}

/// A socket in `netns` ("" for the test's own), bound to `port` on all addresses.
inline UniqueFd OpenSocket(const std::string& netns, int type, uint16_t port) {
  UniqueFd fd;
  const auto open = [&]() -> Status {
    fd.reset(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const sockaddr_in any = Endpoint("0.0.0.0", port);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0) fd.reset();
    return Ok();
  };
  (void)(netns.empty() ? open() : InNamespace(netns, open));
  return fd;
}

/// errno of a TCP connection attempt to a port where nobody listens: ECONNREFUSED says that the host was reached.
inline int KnockAt(const std::string& netns, const std::string& address) {
  const UniqueFd fd = OpenSocket(netns, SOCK_STREAM, 0);
  const timeval patience{5, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const sockaddr_in peer = Endpoint(address, 9);
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) == 0 ? 0 : errno;
}

/// Sends `bytes` over one TCP connection with the given ports and traffic class; returns the bytes that arrived.
inline size_t SendOverTcp(const std::string& from, uint16_t source_port, const std::string& to,
                          const std::string& address, uint16_t port, size_t bytes) {
  const UniqueFd listener = OpenSocket(to, SOCK_STREAM, port);
  ::listen(listener.get(), 1);
  const UniqueFd client = OpenSocket(from, SOCK_STREAM, source_port);
  const sockaddr_in peer = Endpoint(address, port);
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) return 0;
  const UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  std::jthread sender([&] {
    const std::vector<char> data(bytes, 'x');
    for (size_t sent = 0; sent < bytes;) {
      const ssize_t now = ::send(client.get(), data.data() + sent, bytes - sent, MSG_NOSIGNAL);
      if (now <= 0) break;
      sent += static_cast<size_t>(now);
    }
    ::shutdown(client.get(), SHUT_WR);
  });
  size_t arrived = 0;
  std::array<char, 65536> buffer;
  for (ssize_t got; (got = ::recv(server.get(), buffer.data(), buffer.size(), 0)) > 0;) {
    arrived += static_cast<size_t>(got);
  }
  return arrived;
}

/// Sends one UDP datagram with the given time to live and returns who answered that it was exceeded; "" for nobody.
inline std::string WhoAnswers(const std::string& from, uint16_t source_port, const std::string& address,
                              uint16_t port, int ttl) {
  const UniqueFd fd = OpenSocket(from, SOCK_DGRAM, source_port);
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
  ::setsockopt(fd.get(), IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
  const sockaddr_in peer = Endpoint(address, port);
  ::sendto(fd.get(), "?", 1, 0, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
  pollfd wanted{fd.get(), 0, 0};  // POLLERR is always reported
  if (::poll(&wanted, 1, 5000) != 1) return "";
  std::array<char, 512> control{};
  msghdr message{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(fd.get(), &message, MSG_ERRQUEUE) < 0) return "";
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != IPPROTO_IP || part->cmsg_type != IP_RECVERR) continue;
    sock_extended_err error{};
    sockaddr_in offender{};
    std::memcpy(&error, CMSG_DATA(part), sizeof(error));
    std::memcpy(&offender, CMSG_DATA(part) + sizeof(error), sizeof(offender));  // SO_EE_OFFENDER, without its cast
    std::array<char, INET_ADDRSTRLEN> text{};
    if (error.ee_origin == SO_EE_ORIGIN_ICMP && error.ee_type == 11) {
      return ::inet_ntop(AF_INET, &offender.sin_addr, text.data(), text.size());
    }
  }
  return "";
}

}  // namespace weft::testbed

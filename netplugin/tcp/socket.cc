#include "netplugin/tcp/socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>

namespace weft::net {

void Fd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

bool Address::loopback() const {
  if (family == AF_INET) return bytes[0] == 127;
  in6_addr address;
  std::memcpy(&address, bytes, sizeof address);
  return IN6_IS_ADDR_LOOPBACK(&address);
}

socklen_t Address::ToSockaddr(sockaddr_storage* storage) const {
  std::memset(storage, 0, sizeof *storage);
  if (family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, bytes, sizeof v4->sin_addr);
    return sizeof *v4;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(storage);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  std::memcpy(&v6->sin6_addr, bytes, sizeof v6->sin6_addr);
  return sizeof *v6;
}

std::string Address::Text() const {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(family, bytes, text, sizeof text);
  std::string result = family == AF_INET6 ? "[" : "";
  result.append(text).append(family == AF_INET6 ? "]:" : ":").append(std::to_string(port));
  return result;
}

Address FromSockaddr(const sockaddr* address) {
  Address result;
  result.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    std::memcpy(result.bytes, &v4->sin_addr, sizeof v4->sin_addr);
    result.port = ntohs(v4->sin_port);
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    std::memcpy(result.bytes, &v6->sin6_addr, sizeof v6->sin6_addr);
    result.port = ntohs(v6->sin6_port);
  }
  return result;
}

Address LocalAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length);
  return FromSockaddr(reinterpret_cast<sockaddr*>(&storage));
}

Address PeerAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length);
  return FromSockaddr(reinterpret_cast<sockaddr*>(&storage));
}

Fd OpenTcp(int family) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (fd.valid()) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

void SetTrafficClass(int fd, int family, uint8_t tos) {
  const int value = tos & 0xFC;
  if (family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value);
  } else {
    setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof value);
  }
}

void SetPacing(int fd, uint64_t bits_per_second) {
  const uint64_t bytes_per_second = bits_per_second == 0 ? ~uint64_t{0} : bits_per_second / 8;
  setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, sizeof bytes_per_second);
}

void SetUnsentLimit(int fd, uint32_t bytes) {
  setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

void SetLateAcknowledgements(int fd, bool late) {
  const int at_once = late ? 0 : 1;
  setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once);
}

uint64_t RandomBits() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) {
    // Before the kernel's generator is seeded: unique enough for a flow id, which is no secret.
    // Of processes that are 1 in their containers the kernel's random bytes of each program's start tell which.
    uint64_t start = 0;
    if (const auto* random = reinterpret_cast<const void*>(getauxval(AT_RANDOM))) std::memcpy(&start, random, sizeof start);
    bits = (start ^ NowNs() ^ (static_cast<uint64_t>(getpid()) << 40)) * 0x9E3779B97F4A7C15u;
  }
  return bits;
}

}  // namespace weft::net

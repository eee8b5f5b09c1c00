// The few things that the plugin does with TCP sockets and their addresses.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

namespace weft::net {

/// CLOCK_MONOTONIC in nanoseconds, through the vDSO: no system call.
inline uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

/// Owns one descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// An IPv4 or IPv6 address and port.
struct Address {
  int family = 0;         ///< AF_INET or AF_INET6
  uint8_t bytes[16] = {}; ///< network order, IPv4 in the first four
  uint16_t port = 0;      ///< host order

  bool operator==(const Address&) const = default;
  bool loopback() const;
  /// Fills `storage` and returns its length.
  socklen_t ToSockaddr(sockaddr_storage* storage) const;
  /// "10.0.0.1:4000", "[fd00::1]:4000".
  std::string Text() const;
};

Address FromSockaddr(const sockaddr* address);
Address LocalAddress(int fd);
Address PeerAddress(int fd);

/// A non-blocking, close-on-exec TCP socket with Nagle off; invalid (errno set) on failure.
Fd OpenTcp(int family);

/// Marks what the socket sends; the two ECN bits of `tos` are ignored. Best effort.
void SetTrafficClass(int fd, int family, uint8_t tos);

/// Zero: open. Best effort.
void SetPacing(int fd, uint64_t bits_per_second);

/// Bytes that the kernel takes ahead of what it has sent: bounds what stays on the old path after a re-path.
void SetUnsentLimit(int fd, uint32_t bytes);

/// Late: what arrives is acknowledged with what is sent back, when more than a segment waits, or after 40 ms, in place of
/// whenever a read empties the socket. The kernel goes back by itself when nothing was said for 40 ms. Best effort.
void SetLateAcknowledgements(int fd, bool late);

/// 64 bits from the kernel's generator.
uint64_t RandomBits();

}  // namespace weft::net

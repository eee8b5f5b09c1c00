#include "netplugin/tcp/receive_stamp.h"

#include <sys/socket.h>

#include <cstring>
#include <ctime>

#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
// The kernel's clock may have been set since; what has waited for so long says nothing of the path anyway.
constexpr int64_t kOldest = 10 * kSecond;
constexpr uint64_t kTogether = 20'000;  // ns that two clocks may be read apart

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

/// The kernel stamps by CLOCK_REALTIME. Returns 0 where that cannot be said in MeterNs().
uint64_t ToMeter(const timespec& stamp) {
  for (int tries = 0; tries < 3; ++tries) {
    timespec real;
    const uint64_t before = MeterNs();
    clock_gettime(CLOCK_REALTIME, &real);
    if (MeterNs() - before > kTogether) continue;  // the thread lost its core in between
    const int64_t age = Nanoseconds(real) - Nanoseconds(stamp);
    return age >= 0 && age < kOldest ? before - static_cast<uint64_t>(age) : 0;
  }
  return 0;
}

}  // namespace

void AskReceiveStamps(int fd) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
}

ssize_t ReceiveStamped(int fd, iovec* parts, size_t count, uint64_t* at_ns) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
  if (got <= 0) return got;
  *at_ns = 0;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMPNS) {
    timespec stamp;
    std::memcpy(&stamp, CMSG_DATA(header), sizeof stamp);
    *at_ns = ToMeter(stamp);
  }
  return got;
}

}  // namespace weft::net

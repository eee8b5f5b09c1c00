#include "agent/unsent_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>

namespace weft::agent {
namespace {

constexpr int kRepairOffSilently = -1;  // TCP_REPAIR_OFF_NO_WP, which netinet/tcp.h does not know: no window probe
constexpr int kSendQueue = 2;           // TCP_SEND_QUEUE
constexpr uint64_t kSlack = 65536;      // room behind what is expected, which must stay empty

int IntOption(int fd, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(fd, level, name, &value, &bytes) == 0 ? value : -1;
}

Status CheckSilent(int fd) {
  const int domain = IntOption(fd, SOL_SOCKET, SO_DOMAIN);
  if ((domain != AF_INET && domain != AF_INET6) || IntOption(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP) {
    return Fail(Code::kInvalidArgument, "not a TCP socket");
  }
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return Fail(ErrnoError("read TCP_INFO", errno));
  if (info.tcpi_state != TCP_ESTABLISHED) return Fail(Code::kInvalidArgument, "not an established connection");
  if (info.tcpi_unacked == 0 || info.tcpi_retransmits == 0) return Fail(Code::kFailedPrecondition, "the peer answers");
  return Ok();
}

/// In repair mode while this lives.
class Repair {
 public:
  explicit Repair(int fd) : fd_(fd) {}
  ~Repair() {
    if (!on_) return;
    // Its owner may have made it listen meanwhile: then the mode cannot be left before that is over.
    for (int tries = 0; tries < 100 && ::setsockopt(fd_, IPPROTO_TCP, TCP_REPAIR, &kRepairOffSilently, sizeof kRepairOffSilently) != 0; ++tries) {
      ::shutdown(fd_, SHUT_RDWR);
    }
  }
  Repair(const Repair&) = delete;
  Repair& operator=(const Repair&) = delete;

  Status Begin() {
    const int on = 1;
    if (::setsockopt(fd_, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) != 0) {
      if (errno != EPERM) return Fail(ErrnoError("set TCP_REPAIR", errno));
      return Fail(Code::kFailedPrecondition, "the agent has no CAP_NET_ADMIN there (docs/deploy.md)");
    }
    on_ = true;
    if (::setsockopt(fd_, IPPROTO_TCP, TCP_REPAIR_QUEUE, &kSendQueue, sizeof kSendQueue) == 0) return Ok();
    return Fail(ErrnoError("set TCP_REPAIR_QUEUE", errno));
  }

 private:
  const int fd_;
  bool on_ = false;
};

/// Copies the send queue into `file`, whose size becomes what there is.
Result<uint64_t> CopyQueue(int fd, int file) {
  int queued = 0;
  if (::ioctl(fd, SIOCOUTQ, &queued) != 0) return Fail(ErrnoError("read SIOCOUTQ", errno));
  const uint64_t room = static_cast<uint64_t>(queued) + kSlack;
  if (room > kMostUnsentBytes) {
    return Fail(Code::kResourceExhausted, fmt::format("{} bytes wait, expected at most {}", queued, kMostUnsentBytes - kSlack));
  }
  if (::ftruncate(file, static_cast<off_t>(room)) != 0) return Fail(ErrnoError("make a memory file", errno));
  void* const memory = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return Fail(ErrnoError("map a memory file", errno));
  const ssize_t got = ::recv(fd, memory, room, MSG_PEEK | MSG_DONTWAIT);
  const int error = errno;
  ::munmap(memory, room);
  if (got < 0) return Fail(ErrnoError("read the send queue", error));
  if (static_cast<uint64_t>(got) == room) return Fail(Code::kFailedPrecondition, "somebody writes to the connection");
  if (::ftruncate(file, got) != 0) return Fail(ErrnoError("cut a memory file", errno));
  return static_cast<uint64_t>(got);
}

}  // namespace

Result<UnsentBytes> TakeUnsent(int fd) {
  WEFT_RETURN_IF_ERROR(CheckSilent(fd));
  UnsentBytes unsent{.file = UniqueFd(::memfd_create("weft-unsent", MFD_CLOEXEC | MFD_ALLOW_SEALING))};
  if (!unsent.file) return Fail(ErrnoError("make a memory file", errno));
  Repair repair(fd);
  WEFT_RETURN_IF_ERROR(repair.Begin());
  WEFT_ASSIGN_OR_RETURN(unsent.bytes, CopyQueue(fd, unsent.file.get()));
  ::fcntl(unsent.file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);  // not against shrinking: it is emptied later
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  if (::connect(fd, &nobody, sizeof nobody) != 0) return Fail(ErrnoError("close a silent connection", errno));
  return unsent;
}

}  // namespace weft::agent

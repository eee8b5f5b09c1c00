#include "collectives/bootstrap_wire.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace weft::collectives::wire {
namespace {

constexpr uint32_t kMagic = 0x54534257;  // "WBST"

struct Header {
  uint32_t magic;
  uint32_t kind;
  uint32_t body_bytes;
};

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> Resolve(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &list);
  if (status != 0) {
    return Fail(Code::kInvalidArgument,
                fmt::format("rendezvous host \"{}\": {}", address.host, gai_strerror(status)));
  }
  return AddressList(list, &freeaddrinfo);
}

std::string Text(const Address& address) { return fmt::format("{}:{}", address.host, address.port); }

Status SendBytes(int fd, const void* data, size_t bytes, const Deadline& deadline) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!WaitFor(fd, POLLOUT, deadline)) return Fail(Code::kDeadlineExceeded, "peer takes no bytes");
    } else {
      return Fail(ErrnoError("send to peer", errno));
    }
  }
  return Ok();
}

Status ReceiveBytes(int fd, void* data, size_t bytes, const Deadline& deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0) {
      return Fail(Code::kUnavailable, "peer closed the connection");
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!WaitFor(fd, POLLIN, deadline)) return Fail(Code::kDeadlineExceeded, "peer sends no bytes");
    } else {
      return Fail(Error(Code::kUnavailable, ErrnoError("receive from peer", errno).message()));
    }
  }
  return Ok();
}

/// Whether the connection stands before the deadline; errno says why not.
bool ConnectOne(int fd, const addrinfo& to, const Deadline& deadline) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  if (!WaitFor(fd, POLLOUT, deadline)) {
    errno = ETIMEDOUT;
    return false;
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

}  // namespace

Result<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  int number = -1;
  const auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool port_fits = status == std::errc() && end == port.data() + port.size() && number >= 0 && number <= 65535;
  if (host.empty() || !port_fits || (!bracketed && host.find(':') != std::string::npos)) {
    return Fail(Code::kInvalidArgument, fmt::format("rendezvous \"{}\": expected HOST:PORT or [V6]:PORT", text));
  }
  return Address{std::move(host), port};
}

Result<UniqueFd> Listen(const Address& address) {
  WEFT_ASSIGN_OR_RETURN(const AddressList list, Resolve(address, AI_PASSIVE));
  UniqueFd fd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 || listen(fd.get(), 1024) != 0) {
    return Fail(ErrnoError(fmt::format("listen on rendezvous {}", Text(address)), errno));
  }
  return fd;
}

Result<int> PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Fail(ErrnoError("address of the rendezvous socket", errno));
  }
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Result<UniqueFd> Connect(const Address& address, const Deadline& deadline) {
  WEFT_ASSIGN_OR_RETURN(const AddressList list, Resolve(address, 0));
  int pause_ms = 1;
  while (true) {
    int error = 0;
    for (const addrinfo* to = list.get(); to != nullptr; to = to->ai_next) {
      UniqueFd fd(socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (fd && ConnectOne(fd.get(), *to, deadline)) {
        TuneSocket(fd.get());
        return fd;
      }
      error = errno;
    }
    if (deadline.Expired()) {
      return Fail(Code::kDeadlineExceeded,
                  fmt::format("rank 0 cannot be reached at {}: {}", Text(address), std::strerror(error)));
    }
    // Rank 0 may not listen yet.
    poll(nullptr, 0, std::min(pause_ms, deadline.Milliseconds()));
    pause_ms = std::min(pause_ms * 2, 100);
  }
}

void TuneSocket(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A host that vanished without a reset is noticed in about half a minute.
  const int idle_s = 10, interval_s = 5, probes = 4;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

bool WaitFor(int fd, short events, const Deadline& deadline) {
  while (true) {
    pollfd wait{fd, events, 0};
    const int ready = poll(&wait, 1, deadline.Milliseconds());
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

Status SendFrame(int fd, const Frame& frame, const Deadline& deadline) {
  const Header header{kMagic, static_cast<uint32_t>(frame.kind), static_cast<uint32_t>(frame.body.size())};
  WEFT_RETURN_IF_ERROR(SendBytes(fd, &header, sizeof header, deadline));
  return SendBytes(fd, frame.body.data(), frame.body.size(), deadline);
}

Result<Frame> ReceiveFrame(int fd, const Deadline& deadline) {
  Header header{};
  WEFT_RETURN_IF_ERROR(ReceiveBytes(fd, &header, sizeof header, deadline));
  if (header.magic != kMagic || header.kind < 1 || header.kind > static_cast<uint32_t>(FrameKind::kGoodbye) ||
      header.body_bytes > kMaxBodyBytes) {
    return Fail(Code::kUnavailable, "peer speaks another protocol");
  }
  Frame frame{static_cast<FrameKind>(header.kind), std::vector<uint8_t>(header.body_bytes)};
  WEFT_RETURN_IF_ERROR(ReceiveBytes(fd, frame.body.data(), frame.body.size(), deadline));
  return frame;
}

Peeked PeekFrame(int fd) {
  Header header{};
  const ssize_t got = recv(fd, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT);
  if (got == 0) return Peeked::kClosed;
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Peeked::kNothing : Peeked::kClosed;
  if (got < static_cast<ssize_t>(sizeof header)) return Peeked::kNothing;
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::kFailed: return Peeked::kFailed;
    case FrameKind::kGoodbye: return Peeked::kGoodbye;
    default: return Peeked::kNothing;
  }
}

Frame HelloFrame(Hello hello) {
  Frame frame{FrameKind::kHello, std::vector<uint8_t>(sizeof hello)};
  std::memcpy(frame.body.data(), &hello, sizeof hello);
  return frame;
}

std::optional<Hello> DecodeHello(const std::vector<uint8_t>& body) {
  if (body.size() != sizeof(Hello)) return std::nullopt;
  Hello hello{};
  std::memcpy(&hello, body.data(), sizeof hello);
  return hello;
}

Frame FailureFrame(const Error& error) {
  Frame frame{FrameKind::kFailed, std::vector<uint8_t>(1 + error.message().size())};
  frame.body[0] = static_cast<uint8_t>(error.code());
  std::copy(error.message().begin(), error.message().end(), frame.body.begin() + 1);
  return frame;
}

Error FailureOf(const Frame& frame) {
  if (frame.body.empty()) return Error(Code::kUnavailable, "a rank failed");
  return Error(static_cast<Code>(frame.body[0]), std::string(frame.body.begin() + 1, frame.body.end()));
}

Frame GatheredFrame(const std::vector<std::vector<uint8_t>>& blobs) {
  Frame frame{FrameKind::kGathered, {}};
  for (const auto& blob : blobs) {
    const uint32_t bytes = static_cast<uint32_t>(blob.size());
    const auto* raw = reinterpret_cast<const uint8_t*>(&bytes);
    frame.body.insert(frame.body.end(), raw, raw + sizeof bytes);
    frame.body.insert(frame.body.end(), blob.begin(), blob.end());
  }
  return frame;
}

Result<std::vector<std::vector<uint8_t>>> DecodeGathered(const std::vector<uint8_t>& body, size_t ranks) {
  std::vector<std::vector<uint8_t>> blobs(ranks);
  size_t at = 0;
  for (auto& blob : blobs) {
    uint32_t bytes = 0;
    if (body.size() - at < sizeof bytes) return Fail(Code::kInternal, "rank 0 sent a short exchange");
    std::memcpy(&bytes, body.data() + at, sizeof bytes);
    at += sizeof bytes;
    if (body.size() - at < bytes) return Fail(Code::kInternal, "rank 0 sent a short exchange");
    blob.assign(body.begin() + static_cast<ptrdiff_t>(at), body.begin() + static_cast<ptrdiff_t>(at + bytes));
    at += bytes;
  }
  return blobs;
}

}  // namespace weft::collectives::wire

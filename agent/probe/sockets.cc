#include "agent/probe/sockets.h"

#include <linux/filter.h>
#include <linux/icmp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <string>

namespace weft::agent {
namespace {

constexpr size_t kMostPacketBytes = 1500;

Result<UniqueFd> RawSocket(int protocol) {
  UniqueFd fd(::socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
  if (!fd) {
    const Error error = ErrnoError("open raw socket", errno);
    return Fail(Code::kFailedPrecondition, error.message() + "; CAP_NET_RAW is needed");
  }
  return fd;
}

/// Lets only segments with RST and ACK, or SYN and ACK, through.
Status AttachAnswerFilter(int fd) {
  sock_filter code[] = {
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),           // X = length of the IP header
      BPF_STMT(BPF_LD | BPF_B | BPF_IND, 13),           // the TCP flags
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x17),        // FIN SYN RST ACK
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x14, 1, 0),  // RST ACK
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x12, 0, 1),  // SYN ACK
      BPF_STMT(BPF_RET | BPF_K, 0xFFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) {
    return Fail(ErrnoError("attach filter to raw TCP socket", errno));
  }
  return Ok();
}

template <typename Parse, typename Out>
void ReadAll(int fd, const Parse& parse, std::vector<Out>* out) {
  uint8_t packet[kMostPacketBytes];
  for (;;) {
    const ssize_t got = ::recv(fd, packet, sizeof packet, MSG_TRUNC);
    if (got < 0) return;
    const size_t bytes = std::min(static_cast<size_t>(got), sizeof packet);
    if (auto answer = parse(std::span<const uint8_t>(packet, bytes))) out->push_back(*answer);
  }
}

}  // namespace

Result<ProbeSockets> ProbeSockets::Open() {
  ProbeSockets sockets;
  WEFT_ASSIGN_OR_RETURN(sockets.send_, RawSocket(IPPROTO_RAW));  // implies IP_HDRINCL
  WEFT_ASSIGN_OR_RETURN(sockets.icmp_, RawSocket(IPPROTO_ICMP));
  const icmp_filter only_exceeded{~(1u << ICMP_TIME_EXCEEDED)};
  if (::setsockopt(sockets.icmp_.get(), SOL_RAW, ICMP_FILTER, &only_exceeded, sizeof only_exceeded) != 0) {
    return Fail(ErrnoError("set filter of raw ICMP socket", errno));
  }
  return sockets;
}

Status ProbeSockets::Send(const Probe& probe) {
  const std::vector<uint8_t> packet = BuildProbe(probe);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(probe.destination);
  if (::sendto(send_.get(), packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0) {
    const Error error = ErrnoError("send probe to " + FormatIpv4(probe.destination), errno);
    return Fail(Code::kUnavailable, error.message());
  }
  return Ok();
}

Status ProbeSockets::SetArrivals(bool on) {
  if (!on) {
    tcp_.reset();
    return Ok();
  }
  if (tcp_) return Ok();
  WEFT_ASSIGN_OR_RETURN(UniqueFd fd, RawSocket(IPPROTO_TCP));
  WEFT_RETURN_IF_ERROR(AttachAnswerFilter(fd.get()));
  tcp_ = std::move(fd);
  return Ok();
}

Result<ProbeSockets::Answers> ProbeSockets::Wait(Seconds timeout, int wake, bool with_arrivals) {
  WEFT_RETURN_IF_ERROR(SetArrivals(with_arrivals));
  pollfd fds[] = {{icmp_.get(), POLLIN, 0}, {wake, POLLIN, 0}, {tcp_.get(), POLLIN, 0}};  // poll skips negative ones
  // Rounded up: waking a millisecond early would be a turn for nothing.
  const double ms = std::ceil(std::clamp(timeout.count(), 0.0, 3600.0) * 1e3);
  if (::poll(fds, std::size(fds), static_cast<int>(ms)) < 0 && errno != EINTR) {
    return Fail(ErrnoError("wait for probe answers", errno));
  }
  Answers answers;
  ReadAll(icmp_.get(), ParseTimeExceeded, &answers.exceeded);
  if (tcp_) ReadAll(tcp_.get(), ParseTcpAnswer, &answers.arrived);
  return answers;
}

}  // namespace weft::agent

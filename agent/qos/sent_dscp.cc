#include "agent/qos/sent_dscp.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <iterator>

#include "netplugin/abi/segment.h"

namespace weft::agent {
namespace {

constexpr uint32_t kKept = 64;            // bytes of a packet
constexpr uint32_t kOneInPackets = 16;    // a power of two
constexpr int kMostPackets = 4096;        // per call
constexpr int kReceiveBuffer = 128 << 10;
constexpr size_t kMostInterfaces = 256;
constexpr uint16_t kLeastRoceBytes = 8 + 12 + 4;  // of UDP: headers and checksum of an empty packet

/// One in 16 of the IPv4 packets that the host sends and that are TCP or go to RoCEv2's port. The socket is a cooked one: byte 0 is
/// the IP header's first.
Status AttachFilter(int fd) {
  constexpr auto kAncillary = static_cast<uint32_t>(SKF_AD_OFF);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kAncillary + SKF_AD_PKTTYPE),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 11),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kAncillary + SKF_AD_PROTOCOL),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 9),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kAncillary + SKF_AD_RANDOM),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kOneInPackets - 1, 7, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),             // protocol
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 4),
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),            // X = length of the IP header
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),             // destination port
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, abi::kRocePort, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kKept),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                   sizeof program) != 0) return Fail(ErrnoError("attach filter to packet socket", errno));
  return Ok();
}

}  // namespace

std::optional<SentPacket> ParseSentPacket(std::span<const uint8_t> packet) {
  if (packet.size() < 20 || packet[0] >> 4 != 4) return std::nullopt;
  const size_t header = static_cast<size_t>(packet[0] & 0x0F) * 4;
  if (header < 20 || packet.size() < header + 4 || (packet[6] & 0x1F) != 0 || packet[7] != 0) return std::nullopt;
  const auto at = [&](size_t i) { return static_cast<uint16_t>(packet[header + i] << 8 | packet[header + i + 1]); };
  const bool roce = packet[9] == IPPROTO_UDP && at(2) == abi::kRocePort && packet.size() >= header + 6 && at(4) >= kLeastRoceBytes;  // not our own probes
  if (!roce && packet[9] != IPPROTO_TCP) return std::nullopt;
  return SentPacket{.dscp = packet[1] >> 2, .source_port = at(0), .roce = roce};
}

Result<SentDscpSampler> SentDscpSampler::Open() {
  SentDscpSampler sampler;
  // Bound to no protocol until the filter is there, or it would begin with whatever passes.
  sampler.fd_.reset(::socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!sampler.fd_) return Fail(Code::kFailedPrecondition,
                                ErrnoError("open packet socket", errno).message() + "; CAP_NET_RAW is needed");
  WEFT_RETURN_IF_ERROR(AttachFilter(sampler.fd_.get()));
  ::setsockopt(sampler.fd_.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof kReceiveBuffer);
  sockaddr_ll any{};
  any.sll_family = AF_PACKET;
  any.sll_protocol = htons(ETH_P_ALL);  // packets that leave are shown to such sockets only
  if (::bind(sampler.fd_.get(), reinterpret_cast<const sockaddr*>(&any),
             sizeof any) != 0) return Fail(ErrnoError("bind packet socket", errno));
  return sampler;
}

void SentDscpSampler::Read(const std::set<uint16_t>& ports, SentDscp* sent) {
  uint8_t packet[kKept];
  for (int i = 0; i < kMostPackets; ++i) {
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    const ssize_t got = ::recvfrom(fd_.get(), packet, sizeof packet, 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (got < 0) return;
    const auto seen = ParseSentPacket({packet, static_cast<size_t>(got)});
    if (!seen || (!seen->roce && !ports.contains(seen->source_port))) continue;
    char name[IF_NAMESIZE] = "";
    if (::if_indextoname(static_cast<unsigned>(from.sll_ifindex), name) == nullptr) continue;
    if (sent->size() < kMostInterfaces || sent->contains(name)) ++(*sent)[name][seen->dscp];
  }
}

}  // namespace weft::agent

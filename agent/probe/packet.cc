#include "agent/probe/packet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

namespace weft::agent {
namespace {

constexpr size_t kIpBytes = 20;
constexpr size_t kUdpBytes = 10;         // with two bytes of payload
constexpr size_t kQuotedBytes = 8;       // of TCP or UDP
constexpr uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kAck = 0x10;

void Put16(uint8_t* at, uint16_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}
void Put32(uint8_t* at, uint32_t value) {
  Put16(at, static_cast<uint16_t>(value >> 16));
  Put16(at + 2, static_cast<uint16_t>(value));
}
uint16_t Get16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }
uint32_t Get32(const uint8_t* at) { return static_cast<uint32_t>(Get16(at)) << 16 | Get16(at + 2); }

/// The Internet checksum's running sum (RFC 1071) over an even number of bytes.
uint32_t Sum(const uint8_t* data, size_t bytes, uint32_t sum = 0) {
  for (size_t i = 0; i < bytes; i += 2) sum += Get16(data + i);
  return sum;
}
uint16_t Fold(uint32_t sum) {
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

/// The bytes behind an IPv4 header of `protocol`; empty if the header does not fit or is of another protocol.
std::span<const uint8_t> Payload(std::span<const uint8_t> packet, uint8_t protocol) {
  if (packet.size() < kIpBytes || packet[0] >> 4 != 4 || packet[9] != protocol) return {};
  const size_t header = static_cast<size_t>(packet[0] & 0x0F) * 4;
  if (header < kIpBytes || packet.size() < header) return {};
  return packet.subspan(header);
}

/// The IPv4 header of a probe that is `packet` long.
void PutIp(std::span<uint8_t> packet, const Probe& probe, uint8_t protocol, uint16_t identification) {
  uint8_t* const ip = packet.data();
  ip[0] = 0x45;
  ip[1] = probe.tos;
  Put16(ip + 2, static_cast<uint16_t>(packet.size()));
  Put16(ip + 4, identification);
  Put16(ip + 6, 0x4000);  // do not fragment
  ip[8] = probe.ttl;
  ip[9] = protocol;
  Put32(ip + 12, probe.source);
  Put32(ip + 16, probe.destination);
  Put16(ip + 10, Fold(Sum(ip, kIpBytes)));
}

/// Of the pseudo-header: both addresses, the protocol, the segment's length.
uint32_t PseudoSum(std::span<const uint8_t> packet, size_t segment_bytes) {
  return Sum(packet.data() + 12, 8) + packet[9] + static_cast<uint32_t>(segment_bytes);
}

}  // namespace

std::optional<Ipv4> ParseIpv4(const std::string& text) {
  in_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) return std::nullopt;
  return ntohl(address.s_addr);
}

std::string FormatIpv4(Ipv4 address) {
  const in_addr raw{htonl(address)};
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &raw, text, sizeof text);
  return text;
}

std::array<uint8_t, kSynBytes> BuildSyn(const Probe& probe) {
  std::array<uint8_t, kSynBytes> packet{};
  PutIp(packet, probe, IPPROTO_TCP, static_cast<uint16_t>(probe.sequence | 1));  // 0 would let the kernel choose
  uint8_t* const tcp = packet.data() + kIpBytes;
  constexpr size_t kTcpBytes = kSynBytes - kIpBytes;
  Put16(tcp, probe.source_port);
  Put16(tcp + 2, probe.destination_port);
  Put32(tcp + 4, probe.sequence);
  tcp[12] = 5 << 4;
  tcp[13] = kSyn;
  Put16(tcp + 14, 1024);
  Put16(tcp + 16, Fold(Sum(tcp, kTcpBytes, PseudoSum(packet, kTcpBytes))));
  return packet;
}

std::vector<uint8_t> BuildProbe(const Probe& probe) {
  if (probe.destination_port != abi::kRocePort) {
    const auto syn = BuildSyn(probe);
    return {syn.begin(), syn.end()};
  }
  std::vector<uint8_t> packet(kIpBytes + kUdpBytes);
  PutIp(packet, probe, IPPROTO_UDP, static_cast<uint16_t>(probe.sequence >> 16));
  uint8_t* const udp = packet.data() + kIpBytes;
  Put16(udp, probe.source_port);
  Put16(udp + 2, probe.destination_port);
  Put16(udp + 4, kUdpBytes);
  Put16(udp + 6, static_cast<uint16_t>(probe.sequence));
  // With the checksum given, the payload is what makes the sum come out: to a device that takes no datagram this short.
  Put16(udp + 8, Fold(Sum(udp, kUdpBytes, PseudoSum(packet, kUdpBytes))));
  return packet;
}

std::optional<TimeExceeded> ParseTimeExceeded(std::span<const uint8_t> packet) {
  const std::span<const uint8_t> icmp = Payload(packet, IPPROTO_ICMP);
  if (icmp.size() < 8 || icmp[0] != ICMP_TIME_EXCEEDED || icmp[1] != ICMP_EXC_TTL) return std::nullopt;
  const std::span<const uint8_t> quoted = icmp.subspan(8);
  const bool udp = quoted.size() >= kIpBytes && quoted[9] == IPPROTO_UDP;
  const std::span<const uint8_t> ports = Payload(quoted, udp ? IPPROTO_UDP : IPPROTO_TCP);
  if (ports.size() < kQuotedBytes) return std::nullopt;
  const uint16_t destination_port = Get16(ports.data() + 2);
  if (udp != (destination_port == abi::kRocePort)) return std::nullopt;
  TimeExceeded answer;
  answer.from = Get32(packet.data() + 12);
  answer.probe = {.source = Get32(quoted.data() + 12),
                  .destination = Get32(quoted.data() + 16),
                  .source_port = Get16(ports.data()),
                  .destination_port = destination_port,
                  .ttl = quoted[8],
                  .sequence = udp ? static_cast<uint32_t>(Get16(quoted.data() + 4)) << 16 | Get16(ports.data() + 6) : Get32(ports.data() + 4),
                  .tos = quoted[1]};
  return answer;
}

std::optional<TcpAnswer> ParseTcpAnswer(std::span<const uint8_t> packet) {
  const std::span<const uint8_t> tcp = Payload(packet, IPPROTO_TCP);
  if (tcp.size() < 20) return std::nullopt;
  const uint8_t flags = tcp[13] & (kFin | kSyn | kRst | kAck);
  if (flags != (kRst | kAck) && flags != (kSyn | kAck)) return std::nullopt;
  return TcpAnswer{.from = Get32(packet.data() + 12),
                   .to = Get32(packet.data() + 16),
                   .from_port = Get16(tcp.data()),
                   .to_port = Get16(tcp.data() + 2),
                   .sequence = Get32(tcp.data() + 8) - 1,
                   .ttl = packet[8]};
}

}  // namespace weft::agent

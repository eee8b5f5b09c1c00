// The bytes of path probing: a TCP SYN with a small TTL out, an ICMP time-exceeded (which quotes the probe) or a TCP
// reset back. The probe carries its id as the TCP sequence number, because the eight bytes of TCP header that every
// router must quote hold just the ports and the sequence number. What goes to the port of RoCEv2 is a UDP datagram, as
// switches may hash the protocol too; its id is the IP header's identification and the UDP checksum, which two bytes of
// payload make right. IPv4 only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "netplugin/abi/segment.h"

namespace weft::agent {

/// An IPv4 address in host byte order.
using Ipv4 = uint32_t;

/// nullopt if `text` is not a dotted quad.
std::optional<Ipv4> ParseIpv4(const std::string& text);
std::string FormatIpv4(Ipv4 address);

/// One SYN, or datagram if it goes to abi::kRocePort. Addresses and ports are those of the connection whose path is asked for.
struct Probe {
  Ipv4 source = 0;
  Ipv4 destination = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t ttl = 0;
  uint32_t sequence = 0;  ///< the probe's id; of a datagram neither half is 0
  uint8_t tos = 0;        ///< DSCP << 2; as quoted: what arrived at the router

  friend bool operator==(const Probe&, const Probe&) = default;
};

inline constexpr size_t kSynBytes = 40;

/// An IPv4 packet with a TCP header without options, both checksums in place, so that a host that it reaches answers.
std::array<uint8_t, kSynBytes> BuildSyn(const Probe& probe);
/// A SYN or a datagram, by its destination port.
std::vector<uint8_t> BuildProbe(const Probe& probe);

/// A router's word that a probe's TTL ended there.
struct TimeExceeded {
  Ipv4 from = 0;
  Probe probe;  ///< as quoted; its ttl is what was left and says nothing
};

/// From an IPv4 packet as a raw ICMP socket delivers it; nullopt if it is anything else or quotes neither a TCP segment nor a
/// datagram to abi::kRocePort.
std::optional<TimeExceeded> ParseTimeExceeded(std::span<const uint8_t> packet);

/// A host's answer to a SYN: reset (closed port) or SYN-ACK (open port).
struct TcpAnswer {
  Ipv4 from = 0;
  Ipv4 to = 0;
  uint16_t from_port = 0;
  uint16_t to_port = 0;
  uint32_t sequence = 0;  ///< of the SYN that it answers
  uint8_t ttl = 0;        ///< left on arrival
};

/// From an IPv4 packet as a raw TCP socket delivers it; nullopt for every other segment.
std::optional<TcpAnswer> ParseTcpAnswer(std::span<const uint8_t> packet);

}  // namespace weft::agent

#include "agent/probe/packet.h"

#include <gmock/gmock.h>

#include <vector>

#include "agent/probe/candidate_ports.h"

namespace weft::agent {
namespace {

using ::testing::Optional;

constexpr Probe kProbe{.source = 0x0A010001,
                       .destination = 0x0A020003,
                       .source_port = 41001,
                       .destination_port = 29500,
                       .ttl = 2,
                       .sequence = 0x89ABCDEF};

/// RFC 1071 over `bytes`, straight from its text; 0xFFFF where a header with its checksum in place is intact.
uint16_t OnesSum(const std::vector<uint8_t>& bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) sum += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

/// What a router at `from` would answer: an IP header, an ICMP header, and the probe's first `quoted` bytes.
std::vector<uint8_t> Answer(const Probe& probe, size_t quoted = 28, uint8_t type = 11) {
  std::vector<uint8_t> packet = {0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 255, 1, 2, 10, 1, 0, 1,
                                 type, 0, 0, 0,  0, 0, 0, 0};
  const auto syn = BuildSyn(probe);
  for (size_t i = 0; i < quoted; ++i) packet.push_back(syn[i]);
  return packet;
}

TEST(ProbePacket, HeadersCarryTheProbeAndCorrectChecksums) {
  const auto packet = BuildSyn(kProbe);
  std::vector<uint8_t> ip;
  for (size_t i = 0; i < 20; ++i) ip.push_back(packet[i]);
  EXPECT_EQ(OnesSum(ip), 0xFFFF);
  EXPECT_EQ(packet[8], 2);   // TTL
  EXPECT_EQ(packet[9], 6);   // TCP
  EXPECT_EQ(packet[33], 2);  // SYN alone
  std::vector<uint8_t> covered = {0, 6, 0, 20};  // of the pseudo-header; then addresses and the segment
  for (size_t i = 12; i < packet.size(); ++i) covered.push_back(packet[i]);
  EXPECT_EQ(OnesSum(covered), 0xFFFF);
}

TEST(ProbePacket, TimeExceededGivesTheProbeBack) {
  const std::vector<uint8_t> packet = Answer(kProbe);
  const auto answer = ParseTimeExceeded(packet);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(FormatIpv4(answer->from), "10.255.1.2");
  EXPECT_EQ(answer->probe, kProbe);
}

/// Switches may hash the protocol: what goes to RoCEv2's port is UDP, as the flow's own packets are.
TEST(ProbePacket, WhatGoesToRocesPortIsADatagram) {
  Probe probe = kProbe;
  probe.source_port = 0xC123;
  probe.destination_port = 4791;
  probe.tos = 104;
  for (const uint32_t id : {0x89ABCDEFu, 0x00010001u, 0xFFFFFFFFu, 0x0001FFFFu, 0xFFFF0001u}) {
    probe.sequence = id;
    const std::vector<uint8_t> packet = BuildProbe(probe);
    EXPECT_EQ(OnesSum({packet.begin(), packet.begin() + 20}), 0xFFFF);
    EXPECT_EQ(packet[9], 17);
    std::vector<uint8_t> covered = {0, 17, 0, static_cast<uint8_t>(packet.size() - 20)};
    covered.insert(covered.end(), packet.begin() + 12, packet.end());
    EXPECT_EQ(OnesSum(covered), 0xFFFF) << std::hex << id;
    std::vector<uint8_t> answer = Answer(kProbe, 0);
    answer.insert(answer.end(), packet.begin(), packet.begin() + 28);  // all that a router must quote
    const auto parsed = ParseTimeExceeded(answer);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->probe, probe);
  }
  const auto syn = BuildSyn(kProbe);
  EXPECT_EQ(BuildProbe(kProbe), std::vector<uint8_t>(syn.begin(), syn.end()));
}

TEST(ProbePacket, OtherAndCutPacketsAreNoAnswer) {
  const std::vector<uint8_t> whole = Answer(kProbe);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(ParseTimeExceeded({whole.data(), bytes})) << bytes;
  }
  EXPECT_FALSE(ParseTimeExceeded(Answer(kProbe, 28, 3)));  // unreachable
  std::vector<uint8_t> udp = whole;
  udp[28 + 9] = 17;
  EXPECT_FALSE(ParseTimeExceeded(udp));
  std::vector<uint8_t> options = whole;
  options[28] = 0x4F;  // the quoted header claims 60 bytes that are not there
  EXPECT_FALSE(ParseTimeExceeded(options));
}

TEST(ProbePacket, ResetAndSynAckAnswerTheSynBeforeThem) {
  Probe back = kProbe;
  std::swap(back.source, back.destination);
  std::swap(back.source_port, back.destination_port);
  auto segment = BuildSyn(back);
  segment[8] = 61;
  EXPECT_FALSE(ParseTcpAnswer(segment)) << "a bare SYN";
  for (const uint8_t flags : {0x14, 0x12}) {
    segment[33] = flags;
    segment[28] = 0x89, segment[29] = 0xAB, segment[30] = 0xCD, segment[31] = 0xF0;  // sequence + 1
    const auto answer = ParseTcpAnswer(segment);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->sequence, kProbe.sequence);
    EXPECT_EQ(answer->from, kProbe.destination);
    EXPECT_EQ(answer->from_port, kProbe.destination_port);
    EXPECT_EQ(answer->to_port, kProbe.source_port);
    EXPECT_EQ(answer->ttl, 61);
  }
  segment[33] = 0x10;  // data
  EXPECT_FALSE(ParseTcpAnswer(segment));
}

TEST(ProbePacket, AddressesAreReadStrictly) {
  EXPECT_THAT(ParseIpv4("10.1.2.3"), Optional(0x0A010203u));
  for (const char* bad : {"", "10.1.2", "10.1.2.256", "::1", "10.1.2.3 "}) EXPECT_FALSE(ParseIpv4(bad)) << bad;
}

TEST(CandidatePorts, AreDistinctInRangeUsableAndTheFlowsOwn) {
  const auto odd = [](uint16_t port) { return port % 2 == 1; };
  const std::vector<uint16_t> ports = CandidatePorts(7, 12, odd);
  ASSERT_EQ(ports.size(), 12u);
  for (const uint16_t port : ports) {
    EXPECT_TRUE(port >= 20000 && port <= 29999 && port % 2 == 1) << port;
    EXPECT_EQ(std::count(ports.begin(), ports.end(), port), 1);
  }
  EXPECT_EQ(CandidatePorts(7, 12, odd), ports);
  EXPECT_NE(CandidatePorts(8, 12, odd), ports);
  EXPECT_EQ(CandidatePorts(7, 3, [](uint16_t port) { return port == 20017; }), std::vector<uint16_t>{20017});
  EXPECT_TRUE(CandidatePorts(7, 0, odd).empty());
}

TEST(CandidatePorts, OfRoceAreThoseThatQueuePairsSendFrom) {
  const std::vector<uint16_t> ports = CandidatePorts(7, 12, [](uint16_t) { return true; }, {kFirstRoceCandidate, kLastRoceCandidate});
  ASSERT_EQ(ports.size(), 12u);
  for (const uint16_t port : ports) EXPECT_GE(port, 0xC000);
}

TEST(CandidatePorts, PortRangeIsReadOrEmpty) {
  const PortRange range = ParsePortRange("32768\t60999\n");
  EXPECT_TRUE(range.Contains(32768) && range.Contains(60999) && !range.Contains(32767) && !range.Contains(61000));
  for (const char* bad : {"", "1", "5 4", "0 9", "1 70000", "x y"}) {
    EXPECT_FALSE(ParsePortRange(bad).Contains(5)) << bad;
  }
}

}  // namespace
}  // namespace weft::agent

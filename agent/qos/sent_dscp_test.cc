#include "agent/qos/sent_dscp.h"

#include <gmock/gmock.h>

#include <vector>

#include "agent/qos/driver_counters.h"

namespace weft::agent {
namespace {

/// An IPv4 header without options and the first four bytes of what follows.
std::vector<uint8_t> Packet(uint8_t tos, uint8_t protocol, uint16_t source, uint16_t destination) {
  std::vector<uint8_t> packet(24);
  packet[0] = 0x45;
  packet[1] = tos;
  packet[9] = protocol;
  packet[20] = static_cast<uint8_t>(source >> 8);
  packet[21] = static_cast<uint8_t>(source);
  packet[22] = static_cast<uint8_t>(destination >> 8);
  packet[23] = static_cast<uint8_t>(destination);
  if (protocol == 17) packet.insert(packet.end(), {0, 64, 0, 0});  // its length and checksum
  return packet;
}

TEST(SentPacket, SaysDscpAndPort) {
  const auto tcp = ParseSentPacket(Packet(0x6a, 6, 20123, 29500));
  ASSERT_TRUE(tcp);
  EXPECT_EQ(tcp->dscp, 26) << "without the ECN bits";
  EXPECT_EQ(tcp->source_port, 20123);
  EXPECT_FALSE(tcp->roce);
  const auto roce = ParseSentPacket(Packet(0x68, 17, 49441, 4791));
  ASSERT_TRUE(roce);
  EXPECT_TRUE(roce->roce);
  std::vector<uint8_t> probe = Packet(0, 17, 49441, 4791);
  probe[25] = 10;
  EXPECT_FALSE(ParseSentPacket(probe)) << "too short for a packet of RoCE: the agent's own probe";
}

TEST(SentPacket, OtherPacketsAreNone) {
  EXPECT_FALSE(ParseSentPacket(Packet(0, 17, 49441, 53)));
  EXPECT_FALSE(ParseSentPacket(Packet(0, 1, 0, 0)));
  std::vector<uint8_t> fragment = Packet(0, 17, 49441, 4791);
  fragment[7] = 1;
  EXPECT_FALSE(ParseSentPacket(fragment)) << "a later fragment has no ports";
  std::vector<uint8_t> six = Packet(0, 6, 1, 2);
  six[0] = 0x60;
  EXPECT_FALSE(ParseSentPacket(six));
  const std::vector<uint8_t> whole = Packet(0, 6, 1, 2);
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(ParseSentPacket({whole.data(), length})) << length;
  std::vector<uint8_t> options = whole;
  options[0] = 0x4f;
  EXPECT_FALSE(ParseSentPacket(options)) << "its header is longer than the packet";
}

TEST(DriverCounters, ThoseOfPrioritiesAndLossesAreOfInterest) {
  for (const char* name : {"rx_prio3_pause", "tx_prio_3_bytes", "rx_discards_phy",
                           "tx_pause_storm_warning_events"}) EXPECT_TRUE(IsQosCounter(name)) << name;
  for (const char* name : {"rx_packets", "peer_ifindex", "rx_queue_0_xdp_drops"}) EXPECT_FALSE(IsQosCounter(name)) << name;
  EXPECT_EQ(PriorityOf("rx_prio3_pause"), 3);
  EXPECT_EQ(PriorityOf("tx_prio_5_bytes"), 5);
  EXPECT_EQ(PriorityOf("rx_prio"), -1);
  EXPECT_EQ(PriorityOf("rx_prio9_pause"), -1);
  EXPECT_TRUE(ReadDriverCounters("no-such-device").empty());
}

}  // namespace
}  // namespace weft::agent

// Which path a queue pair takes, as far as the sending host can say: RoCEv2 packets go to UDP port 4791, and their
// source port is what switches hash.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace weft::net::rdma {

inline constexpr uint16_t kFirstRocePort = 0xC000;

/// How a device makes the UDP source port of a queue pair.
enum class PortRule : uint8_t {
  kNone,       ///< InfiniBand: no UDP
  kFlowLabel,  ///< from the address handle's flow label, as Linux and its NICs agree (rdma_rxe since Linux 5.18)
  kPairNumber, ///< from a hash of the queue pair's own number, whatever the label (rdma_rxe before)
};

/// The port that `flow_label` (20 bits) makes. Source: Linux 5.6, include/rdma/ib_verbs.h,
/// rdma_flow_label_to_udp_sport.
uint16_t PortOfFlowLabel(uint32_t flow_label);
/// A label that makes `port`. Requires: port >= kFirstRocePort. Never 0, which would leave the choice to the device.
uint32_t FlowLabelOfPort(uint16_t port);
/// rdma_rxe before Linux 5.18: 0xC000 and the upper 14 bits of the pair's number times the golden ratio (hash_32 of
/// linux/hash.h).
uint16_t PortOfPairNumber(uint32_t number);

/// The ports that lanes 0 to count-1 of a flow ask for when nobody chose others: of the flow's own, so that flows of
/// equal shape do not meet on one path, and all different.
std::vector<uint16_t> DefaultPorts(uint64_t flow, uint32_t count);

/// The same for a flow that has begun anew `generation` times: others each time, as what it sent may have got lost on its way.
std::vector<uint16_t> PortsAnew(uint64_t flow, uint32_t generation, uint32_t count);

/// What is known of the network between two ports: the path (any number that names it) that a source port leads to, or
/// a negative number where no probe has told.
using PathProbe = std::function<int(uint16_t port)>;

/// Of queue pairs with these ports, which to keep so that `wanted` of them spread over as many paths as can be: one of
/// each path before a second of any, pairs of unknown path last but with different ports first. Returns indices,
/// ascending, min(wanted, ports.size()) of them.
std::vector<uint32_t> ChoosePairs(std::span<const uint16_t> ports, uint32_t wanted, const PathProbe& probe);

/// The ports that a new flow's `lanes` data pairs ask for, and after them its control pair's: of four times as many of
/// the flow's own, those that ChoosePairs keeps. Without a probe they are DefaultPorts().
std::vector<uint16_t> SpreadPorts(uint64_t flow, uint32_t lanes, const PathProbe& probe);

}  // namespace weft::net::rdma

// Source ports that a flow could use next: spread over a range that nobody else draws from, the same for a flow every
// time (so that a restarted agent asks about the same ports), different from flow to flow (so that flows that choose
// alike do not collide alike: "hash polarisation").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft::agent {

inline constexpr uint16_t kFirstCandidatePort = 20000;
inline constexpr uint16_t kLastCandidatePort = 29999;
/// Of RoCEv2, whose queue pairs send from these and no others.
inline constexpr uint16_t kFirstRoceCandidate = 0xC000;
inline constexpr uint16_t kLastRoceCandidate = 0xFFFF;

/// Inclusive; empty if first > last.
struct PortRange {
  uint16_t first = 1;
  uint16_t last = 0;

  bool Contains(uint16_t port) const { return first <= port && port <= last; }
};

/// Up to `count` distinct ports of `range` for which `usable` holds, in an order that only depends on `flow`. Fewer if the
/// range holds no more. Requires: range not empty.
std::vector<uint16_t> CandidatePorts(uint64_t flow, int count, const std::function<bool(uint16_t)>& usable,
                                     PortRange range = {kFirstCandidatePort, kLastCandidatePort});

/// From the text of /proc/sys/net/ipv4/ip_local_port_range ("32768\t60999"); empty range if it is not two ports.
PortRange ParsePortRange(const std::string& text);

}  // namespace weft::agent

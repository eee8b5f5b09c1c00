#include "agent/probe/candidate_ports.h"

#include <algorithm>
#include <sstream>

namespace weft::agent {
namespace {

/// SplitMix64's output function. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014, figure 16.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<uint16_t> CandidatePorts(uint64_t flow, int count, const std::function<bool(uint16_t)>& usable, PortRange range) {
  const uint64_t range_ports = range.last - range.first + uint64_t{1};
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  std::vector<uint16_t> ports;
  // Ten draws per port of the range miss one with probability e^-10; that is as good as having tried all.
  for (uint64_t i = 1; ports.size() < static_cast<size_t>(std::max(count, 0)) && i <= 10 * range_ports; ++i) {
    const auto port = static_cast<uint16_t>(range.first + Mix(flow + i * kGolden) % range_ports);
    if (std::find(ports.begin(), ports.end(), port) == ports.end() && usable(port)) ports.push_back(port);
  }
  return ports;
}

PortRange ParsePortRange(const std::string& text) {
  std::istringstream in(text);
  long first = 0, last = 0;
  if (!(in >> first >> last) || first < 1 || last > 65535 || first > last) return {};
  return {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

}  // namespace weft::agent

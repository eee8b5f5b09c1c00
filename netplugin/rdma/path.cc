#include "netplugin/rdma/path.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace weft::net::rdma {

uint16_t PortOfFlowLabel(uint32_t flow_label) {
  const uint32_t label = flow_label & 0xFFFFF;
  return static_cast<uint16_t>(kFirstRocePort | ((label & 0x3FFF) ^ (label >> 14)));
}

uint32_t FlowLabelOfPort(uint16_t port) {
  const uint32_t low = port & 0x3FFFu;
  return low != 0 ? low : (1u << 14) | 1;
}

uint16_t PortOfPairNumber(uint32_t number) {
  return static_cast<uint16_t>(kFirstRocePort + ((number * 0x61C88647u) >> 18));
}

std::vector<uint16_t> DefaultPorts(uint64_t flow, uint32_t count) {
  std::vector<uint16_t> ports;
  uint64_t state = flow;
  while (ports.size() < count) {
    state += 0x9E3779B97F4A7C15u;  // splitmix64: equal flows, equal ports
    uint64_t bits = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    const auto port = static_cast<uint16_t>(kFirstRocePort | ((bits ^ (bits >> 31)) & 0x3FFF));
    if (std::ranges::find(ports, port) == ports.end()) ports.push_back(port);
  }
  return ports;
}

std::vector<uint16_t> PortsAnew(uint64_t flow, uint32_t generation, uint32_t count) {
  return DefaultPorts(flow ^ (generation * 0xD6E8FEB86659FD93u), count);
}

std::vector<uint16_t> SpreadPorts(uint64_t flow, uint32_t lanes, const PathProbe& probe) {
  const std::vector<uint16_t> candidates = DefaultPorts(flow, 4 * lanes + 1);
  std::vector<uint16_t> ports;
  for (const uint32_t i : ChoosePairs(std::span(candidates).first(4 * lanes), lanes, probe)) {
    ports.push_back(candidates[i]);
  }
  ports.push_back(candidates.back());
  return ports;
}

std::vector<uint32_t> ChoosePairs(std::span<const uint16_t> ports, uint32_t wanted, const PathProbe& probe) {
  std::map<int, uint32_t> on_path;
  std::map<uint16_t, uint32_t> on_port;
  std::vector<int> path(ports.size(), -1);
  if (probe) std::ranges::transform(ports, path.begin(), probe);
  std::vector<bool> kept(ports.size(), false);
  const auto cost = [&](uint32_t i) {
    const bool known = path[i] >= 0;
    return std::tuple(known ? on_path[path[i]] : on_port[ports[i]], known ? 0 : 1, i);
  };
  for (uint32_t n = 0; n < wanted && n < ports.size(); ++n) {
    uint32_t best = 0;
    bool found = false;
    for (uint32_t i = 0; i < ports.size(); ++i) {
      if (!kept[i] && (!found || cost(i) < cost(best))) best = i, found = true;
    }
    kept[best] = true;
    ++on_path[path[best]];
    ++on_port[ports[best]];
  }
  std::vector<uint32_t> result;
  for (uint32_t i = 0; i < ports.size(); ++i) {
    if (kept[i]) result.push_back(i);
  }
  return result;
}

}  // namespace weft::net::rdma

#include "planner/fabric/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "common/check.h"

namespace weft::planner::inline fabric {
namespace {

constexpr int kFar = std::numeric_limits<int>::max();

uint64_t Ends(NodeId from, NodeId to) {
  return static_cast<uint64_t>(static_cast<uint32_t>(from.value())) << 32 | static_cast<uint32_t>(to.value());
}

}  // namespace

/// Hops compared in halves, so that two over NVLink beat two over PCIe, and nothing beats a hop less of the same
/// kind.
int32_t HopLength(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNetwork:
    case LinkKind::kNvlink:
      return 2;
    case LinkKind::kPcie:
      return 3;
    case LinkKind::kCpuFabric:
      return 4;
  }
  return kFar;
}

bool ForwardsTraffic(NodeKind kind) { return kind != NodeKind::kHost && kind != NodeKind::kGpu; }

NodeId Topology::AddNode(std::string_view name, NodeKind kind) {
  const auto [entry, added] = by_name_.try_emplace(std::string(name), NodeId(static_cast<int32_t>(nodes_.size())));
  if (added) {
    nodes_.push_back({std::string(name), kind});
    out_.emplace_back();
    in_.emplace_back();
  }
  return entry->second;
}

LinkId Topology::AddLink(NodeId from, NodeId to, BitsPerSecond rate, LinkKind kind) {
  WEFT_CHECK(from.valid() && from.index() < nodes_.size() && to.valid() && to.index() < nodes_.size(),
             "a link between nodes that do not exist");
  WEFT_CHECK(rate.value() > 0, "a link without a rate");
  const LinkId id(static_cast<int32_t>(links_.size()));
  const auto [entry, added] = by_ends_.try_emplace(Ends(from, to), id);
  if (!added) return entry->second;
  links_.push_back({.from = from, .to = to, .line_rate = rate, .capacity = rate, .kind = kind});
  out_[from.index()].push_back(id);
  in_[to.index()].push_back(id);
  return id;
}

void Topology::AddCable(NodeId a, NodeId b, BitsPerSecond rate, LinkKind kind) {
  AddLink(a, b, rate, kind);
  AddLink(b, a, rate, kind);
}

void Topology::SetCapacity(LinkId link, BitsPerSecond capacity) {
  WEFT_CHECK(capacity.value() >= 0, "a link with a negative capacity");
  Link& changed = links_[link.index()];
  changed.measured = capacity;
  if (changed.health == LinkHealth::kUp) changed.capacity = capacity;
}

void Topology::SetHealth(LinkId link, LinkHealth health) {
  Link& changed = links_[link.index()];
  changed.health = health;
  changed.capacity = health == LinkHealth::kUp ? changed.measured : BitsPerSecond(0);
}

std::optional<NodeId> Topology::FindNode(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

std::optional<LinkId> Topology::FindLink(NodeId from, NodeId to) const {
  const auto found = by_ends_.find(Ends(from, to));
  if (found == by_ends_.end()) return std::nullopt;
  return found->second;
}

std::string Topology::LinkName(LinkId link) const {
  const Link& named = links_[link.index()];
  return nodes_[named.from.index()].name + "->" + nodes_[named.to.index()].name;
}

std::vector<std::vector<LinkId>> Topology::ShortestPaths(NodeId from, NodeId to, size_t limit) const {
  // The length left to `to`, found backwards; traffic does not pass through hosts.
  std::vector<int> hops(nodes_.size(), kFar);
  using Reached = std::pair<int, NodeId>;
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue;
  hops[to.index()] = 0;
  queue.push({0, to});
  while (!queue.empty()) {
    const auto [length, node] = queue.top();
    queue.pop();
    if (length > hops[node.index()] || (node != to && !ForwardsTraffic(nodes_[node.index()].kind))) continue;
    for (const LinkId id : in_[node.index()]) {
      const Link& link = links_[id.index()];
      if (length + HopLength(link.kind) >= hops[link.from.index()]) continue;
      hops[link.from.index()] = length + HopLength(link.kind);
      queue.push({hops[link.from.index()], link.from});
    }
  }
  std::vector<std::vector<LinkId>> paths;
  if (from == to || hops[from.index()] == kFar) return paths;
  // Depth first along falling distance; out_ is ascending by id, so paths come out in lexical order.
  std::vector<LinkId> path;
  std::vector<size_t> next = {0};
  NodeId node = from;
  while (!next.empty() && paths.size() < limit) {
    if (node == to || next.back() == out_[node.index()].size()) {
      if (node == to) paths.push_back(path);
      next.pop_back();
      if (!path.empty()) {
        node = links_[path.back().index()].from;
        path.pop_back();
      }
      continue;
    }
    const LinkId id = out_[node.index()][next.back()++];
    const NodeId ahead = links_[id.index()].to;
    const bool passable = ahead == to || ForwardsTraffic(nodes_[ahead.index()].kind);
    if (!passable || hops[ahead.index()] == kFar) continue;
    if (hops[ahead.index()] != hops[node.index()] - HopLength(links_[id.index()].kind)) continue;
    path.push_back(id);
    next.push_back(0);
    node = ahead;
  }
  return paths;
}

}  // namespace weft::planner::fabric

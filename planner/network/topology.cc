#include "planner/network/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "common/check.h"

namespace weft::planner {
namespace {

constexpr int kFar = std::numeric_limits<int>::max();

}  // namespace

NodeId Topology::AddNode(std::string_view name, NodeKind kind) {
  const auto [entry, added] = by_name_.try_emplace(std::string(name), NodeId(static_cast<int32_t>(nodes_.size())));
  if (added) {
    nodes_.push_back({std::string(name), kind});
    out_.emplace_back();
  }
  return entry->second;
}

LinkId Topology::AddLink(NodeId from, NodeId to, BitsPerSecond rate) {
  WEFT_CHECK(from.valid() && from.index() < nodes_.size() && to.valid() && to.index() < nodes_.size(),
             "a link between nodes that do not exist");
  WEFT_CHECK(rate.value() > 0, "a link without a rate");
  if (const std::optional<LinkId> known = FindLink(from, to)) return *known;
  const LinkId id(static_cast<int32_t>(links_.size()));
  links_.push_back({from, to, rate, rate});
  out_[from.index()].push_back(id);
  return id;
}

void Topology::AddCable(NodeId a, NodeId b, BitsPerSecond rate) {
  AddLink(a, b, rate);
  AddLink(b, a, rate);
}

std::optional<NodeId> Topology::FindNode(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

std::optional<LinkId> Topology::FindLink(NodeId from, NodeId to) const {
  for (const LinkId id : out_[from.index()]) {
    if (links_[id.index()].to == to) return id;
  }
  return std::nullopt;
}

std::string Topology::LinkName(LinkId link) const {
  const Link& named = links_[link.index()];
  return nodes_[named.from.index()].name + "->" + nodes_[named.to.index()].name;
}

std::vector<std::vector<LinkId>> Topology::ShortestPaths(NodeId from, NodeId to, size_t limit) const {
  // Hops left to `to`, found backwards; traffic does not pass through hosts.
  std::vector<std::vector<NodeId>> in(nodes_.size());
  for (const Link& link : links_) in[link.to.index()].push_back(link.from);
  std::vector<int> hops(nodes_.size(), kFar);
  hops[to.index()] = 0;
  std::deque<NodeId> queue = {to};
  while (!queue.empty()) {
    const NodeId node = queue.front();
    queue.pop_front();
    if (node != to && nodes_[node.index()].kind == NodeKind::kHost) continue;
    for (const NodeId before : in[node.index()]) {
      if (hops[before.index()] != kFar) continue;
      hops[before.index()] = hops[node.index()] + 1;
      queue.push_back(before);
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
    const bool passable = ahead == to || nodes_[ahead.index()].kind == NodeKind::kSwitch;
    if (!passable || hops[ahead.index()] != hops[node.index()] - 1) continue;
    path.push_back(id);
    next.push_back(0);
    node = ahead;
  }
  return paths;
}

Topology LeafSpine(int leaves, int spines, int hosts_per_leaf, BitsPerSecond rate) {
  Topology topology;
  for (int leaf = 1; leaf <= leaves; ++leaf) topology.AddNode(fmt::format("leaf{}", leaf), NodeKind::kSwitch);
  for (int spine = 1; spine <= spines; ++spine) topology.AddNode(fmt::format("spine{}", spine), NodeKind::kSwitch);
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int i = 0; i < hosts_per_leaf; ++i) {
      const NodeId host = topology.AddNode(fmt::format("h{}", leaf * hosts_per_leaf + i + 1), NodeKind::kHost);
      topology.AddCable(host, NodeId(leaf), rate);
    }
  }
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int spine = 0; spine < spines; ++spine) topology.AddCable(NodeId(leaf), NodeId(leaves + spine), rate);
  }
  return topology;
}

}  // namespace weft::planner

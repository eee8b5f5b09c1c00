#include "planner/fabric/path_catalog.h"

#include <functional>
#include <limits>
#include <queue>

namespace weft::planner::inline fabric {
namespace {

constexpr int32_t kFar = std::numeric_limits<int32_t>::max();

size_t Index(int32_t number) { return static_cast<size_t>(number); }

}  // namespace

PathCatalog::PathCatalog(const Topology& topology, size_t limit)
    : topology_(topology), limit_(limit), number_(topology.nodes().size(), -1), only_out_(number_.size()),
      only_in_(number_.size()) {
  int32_t forwarding = 0;
  for (size_t n = 0; n < number_.size(); ++n) {
    if (ForwardsTraffic(topology.nodes()[n].kind)) number_[n] = forwarding++;
  }
  out_.resize(Index(forwarding));
  in_.resize(Index(forwarding));
  std::vector<bool> left(number_.size()), entered(number_.size());
  const auto note = [](std::vector<bool>* seen, std::vector<LinkId>* only, NodeId node, LinkId link) {
    (*only)[node.index()] = (*seen)[node.index()] ? LinkId() : link;
    (*seen)[node.index()] = true;
  };
  for (size_t l = 0; l < topology.links().size(); ++l) {
    const Link& link = topology.links()[l];
    const LinkId id(static_cast<int32_t>(l));
    note(&left, &only_out_, link.from, id);
    note(&entered, &only_in_, link.to, id);
    const int32_t from = number_[link.from.index()], to = number_[link.to.index()];
    if (from < 0 || to < 0) continue;
    out_[Index(from)].push_back({id, to, HopLength(link.kind)});
    in_[Index(to)].push_back({id, from, HopLength(link.kind)});
  }
}

std::vector<PathCatalog::Path> PathCatalog::Paths(NodeId from, NodeId to) {
  std::vector<Path> paths;
  if (from == to || limit_ == 0) return paths;
  const LinkId first = only_out_[from.index()], last = only_in_[to.index()];
  const int32_t near = first.valid() ? number_[topology_.link(first).to.index()] : -1;
  const int32_t far = last.valid() ? number_[topology_.link(last).from.index()] : -1;
  // Ends that forward could lie on each other's way.
  if (near < 0 || far < 0 || number_[from.index()] >= 0 || number_[to.index()] >= 0) {
    return topology_.ShortestPaths(from, to, limit_);
  }
  if (near == far) return {{first, last}};
  for (const Path& middle : Between(near, far)) {
    Path& path = paths.emplace_back();
    path.reserve(middle.size() + 2);
    path.push_back(first);
    path.insert(path.end(), middle.begin(), middle.end());
    path.push_back(last);
  }
  return paths;
}

/// The length left to `to` from every forwarding node.
const std::vector<int32_t>& PathCatalog::LengthsTo(int32_t to) {
  const auto [entry, added] = lengths_.try_emplace(to);
  std::vector<int32_t>& length = entry->second;
  if (!added) return length;
  length.assign(in_.size(), kFar);
  using Reached = std::pair<int32_t, int32_t>;
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue;
  length[Index(to)] = 0;
  queue.push({0, to});
  while (!queue.empty()) {
    const auto [reached, node] = queue.top();
    queue.pop();
    if (reached > length[Index(node)]) continue;
    for (const Hop& hop : in_[Index(node)]) {
      if (reached + hop.length >= length[Index(hop.node)]) continue;
      length[Index(hop.node)] = reached + hop.length;
      queue.push({length[Index(hop.node)], hop.node});
    }
  }
  return length;
}

/// Depth first along falling length; links leave a node by rising id, so that paths come out in lexical order.
const std::vector<PathCatalog::Path>& PathCatalog::Between(int32_t from, int32_t to) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(from)} << 32 | static_cast<uint32_t>(to);
  const auto [entry, added] = between_.try_emplace(key);
  std::vector<Path>& paths = entry->second;
  if (!added) return paths;
  const std::vector<int32_t>& length = LengthsTo(to);
  if (length[Index(from)] == kFar) return paths;
  Path path;
  std::vector<int32_t> nodes = {from};
  std::vector<size_t> next = {0};
  while (!next.empty() && paths.size() < limit_) {
    const int32_t node = nodes.back();
    if (node == to || next.back() == out_[Index(node)].size()) {
      if (node == to) paths.push_back(path);
      nodes.pop_back();
      next.pop_back();
      if (!path.empty()) path.pop_back();
      continue;
    }
    const Hop& hop = out_[Index(node)][next.back()++];
    if (length[Index(hop.node)] == kFar || length[Index(hop.node)] != length[Index(node)] - hop.length) continue;
    path.push_back(hop.link);
    nodes.push_back(hop.node);
    next.push_back(0);
  }
  return paths;
}

}  // namespace weft::planner::fabric

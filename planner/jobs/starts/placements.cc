#include "planner/jobs/starts/placements.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace weft::planner::inline jobs {
namespace {

using NodeSet = std::set<int32_t>;

std::vector<std::vector<NodeId>> Neighbours(const Topology& topology) {
  std::vector<std::vector<NodeId>> neighbours(topology.nodes().size());
  for (const Link& link : topology.links()) neighbours[link.from.index()].push_back(link.to);
  return neighbours;
}

/// The switches that traffic from `senders` comes to first.
NodeSet FirstSwitches(const Topology& topology, const std::vector<std::vector<NodeId>>& neighbours, const std::vector<NodeId>& senders) {
  NodeSet found;
  std::set<int32_t> seen;
  std::vector<NodeId> open;
  for (const NodeId sender : senders) {
    seen.insert(sender.value());
    open.push_back(sender);
  }
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    for (const NodeId next : neighbours[node.index()]) {
      const NodeKind kind = topology.node(next).kind;
      if (kind == NodeKind::kSwitch) {
        found.insert(next.value());
      } else if (kind != NodeKind::kHost && kind != NodeKind::kGpu && seen.insert(next.value()).second) {
        open.push_back(next);
      }
    }
  }
  return found;
}

/// The switches above these.
NodeSet Above(const Topology& topology, const std::vector<std::vector<NodeId>>& neighbours, const NodeSet& switches) {
  NodeSet found;
  for (const int32_t one : switches) {
    for (const NodeId next : neighbours[static_cast<size_t>(one)]) {
      if (topology.node(next).kind == NodeKind::kSwitch && !switches.contains(next.value())) found.insert(next.value());
    }
  }
  return found;
}

}  // namespace

PlaceMap::PlaceMap(const Topology& topology, std::span<const std::vector<NodeId>> senders) {
  const std::vector<std::vector<NodeId>> neighbours = Neighbours(topology);
  std::map<NodeSet, size_t> leaves, pods;
  for (const std::vector<NodeId>& place : senders) {
    const NodeSet switches = FirstSwitches(topology, neighbours, place);
    const auto [leaf, added] = leaves.try_emplace(switches, leaves.size());
    if (added) pod_.push_back(pods.try_emplace(Above(topology, neighbours, switches), pods.size()).first->second);
    leaf_.push_back(leaf->second);
  }
}

std::vector<std::vector<size_t>> PlaceMap::Sets(const std::vector<bool>& free, int32_t hosts, size_t most) const {
  const auto count = static_cast<size_t>(hosts);
  Leaves leaves(pod_.size());
  size_t in_all = 0;
  for (size_t p = 0; p < leaf_.size(); ++p) {
    if (!free[p]) continue;
    leaves[leaf_[p]].push_back(p);
    ++in_all;
  }
  std::vector<std::vector<size_t>> sets;
  if (in_all < count || count == 0) return sets;
  for (std::vector<size_t> set : {Packed(leaves, count, true), Packed(leaves, count, false), InEqualParts(leaves, count), InTurn(leaves, count)}) {
    if (set.size() != count) continue;
    std::stable_sort(set.begin(), set.end(), [&](size_t a, size_t b) {
      return std::pair(pod_[leaf_[a]], leaf_[a]) < std::pair(pod_[leaf_[b]], leaf_[b]);
    });
    if (sets.size() < most && std::ranges::find(sets, set) == sets.end()) sets.push_back(std::move(set));
  }
  return sets;
}

/// Below as few leaves as possible. `best_fit`: of those that take all that is left the fullest one, else the emptiest; leaves under
/// the same switches as the first one before others.
std::vector<size_t> PlaceMap::Packed(const Leaves& leaves, size_t hosts, bool best_fit) const {
  std::vector<bool> used(leaves.size(), false);
  std::vector<size_t> set;
  size_t pod = pod_.size();                          // of the first leaf
  while (set.size() < hosts) {
    const size_t left = hosts - set.size();
    size_t best = leaves.size();
    const auto better = [&](size_t a, size_t b) {
      if ((pod_[a] == pod) != (pod_[b] == pod)) return pod_[a] == pod;
      const size_t of_a = leaves[a].size(), of_b = leaves[b].size();
      const bool fits_a = of_a >= left, fits_b = of_b >= left;
      if (fits_a != fits_b) return fits_a;
      return fits_a && best_fit ? of_a < of_b : of_a > of_b;
    };
    for (size_t l = 0; l < leaves.size(); ++l) {
      if (!used[l] && !leaves[l].empty() && (best == leaves.size() || better(l, best))) best = l;
    }
    if (set.empty()) pod = pod_[best];
    used[best] = true;
    const std::vector<size_t>& from = leaves[best];
    set.insert(set.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(std::min(left, from.size())));
  }
  return set;
}

/// As many below each of as few leaves as possible, more than one; empty where that is not possible.
std::vector<size_t> PlaceMap::InEqualParts(const Leaves& leaves, size_t hosts) {
  for (size_t parts = 2; parts <= std::min(hosts, leaves.size()); ++parts) {
    if (hosts % parts != 0) continue;
    const size_t part = hosts / parts;
    std::vector<size_t> fits;
    for (size_t l = 0; l < leaves.size(); ++l) {
      if (leaves[l].size() >= part) fits.push_back(l);
    }
    if (fits.size() < parts) continue;
    std::stable_sort(fits.begin(), fits.end(), [&](size_t a, size_t b) { return leaves[a].size() > leaves[b].size(); });
    std::vector<size_t> set;
    for (size_t i = 0; i < parts; ++i) {
      set.insert(set.end(), leaves[fits[i]].begin(), leaves[fits[i]].begin() + static_cast<std::ptrdiff_t>(part));
    }
    return set;
  }
  return {};
}

std::vector<size_t> PlaceMap::InTurn(const Leaves& leaves, size_t hosts) {
  std::vector<size_t> set;
  for (size_t round = 0; set.size() < hosts; ++round) {
    for (size_t l = 0; l < leaves.size() && set.size() < hosts; ++l) {
      if (round < leaves[l].size()) set.push_back(leaves[l][round]);
    }
  }
  return set;
}

}  // namespace weft::planner::jobs

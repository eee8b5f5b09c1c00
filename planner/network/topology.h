// The fabric as a directed graph: hosts, switches, and one link per direction of a cable. Capacities are what is
// available, which telemetry may hold below what the cable was sold as.
//
// Leaves out: queues and buffers (the simulation is fluid), and anything inside a host but its NICs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::planner {

enum class NodeKind : uint8_t { kHost, kSwitch };

struct Node {
  std::string name;
  NodeKind kind = NodeKind::kSwitch;
};

/// One direction of a cable. `capacity` is the rate planned with, `line_rate` what the cable is configured for.
struct Link {
  NodeId from, to;
  BitsPerSecond line_rate;
  BitsPerSecond capacity;
};

/// A directed multigraph of named nodes. Names are unique; ids are dense and in order of insertion.
class Topology {
 public:
  /// The node of that name, added with `kind` if it is new (an existing node keeps its kind).
  NodeId AddNode(std::string_view name, NodeKind kind);

  /// The link from -> to, added with `rate` as line rate and capacity if it is new. Requires: valid ids, rate > 0.
  LinkId AddLink(NodeId from, NodeId to, BitsPerSecond rate);
  /// Both directions of a cable.
  void AddCable(NodeId a, NodeId b, BitsPerSecond rate);

  std::optional<NodeId> FindNode(std::string_view name) const;
  std::optional<LinkId> FindLink(NodeId from, NodeId to) const;

  /// "from->to", the name of a link in every output.
  std::string LinkName(LinkId link) const;

  void SetCapacity(LinkId link, BitsPerSecond capacity) { links_[link.index()].capacity = capacity; }

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Link> links() const { return links_; }
  const Link& link(LinkId id) const { return links_[id.index()]; }
  const Node& node(NodeId id) const { return nodes_[id.index()]; }

  /// All shortest paths from one host to another, each a list of links, in lexical order of their link ids; at most
  /// `limit`. Empty if there is none. Complexity: O(nodes + links + paths · hops).
  std::vector<std::vector<LinkId>> ShortestPaths(NodeId from, NodeId to, size_t limit = 64) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<std::vector<LinkId>> out_;
  std::unordered_map<std::string, NodeId> by_name_;
};

/// leaves × spines × hosts per leaf, every cable of `rate`. Names: "leaf1", "spine1", "h1" … in order of leaf.
Topology LeafSpine(int leaves, int spines, int hosts_per_leaf, BitsPerSecond rate);

}  // namespace weft::planner

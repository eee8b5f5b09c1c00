// Everything that bytes cross as one directed graph, from GPU to spine: hosts or what is in them, switches, and one
// link per direction of a cable. Capacities are what is available, which telemetry may hold below what the cable
// was sold as. Whole fabrics are built by fabrics.h, the inside of servers by servers.h.
//
// Leaves out: queues and buffers (the simulation is fluid).
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

namespace weft::planner::inline fabric {

/// Hosts and GPUs are where traffic starts and ends: nothing passes through them.
enum class NodeKind : uint8_t { kHost, kSwitch, kGpu, kNic, kPcieSwitch, kCpu, kNvSwitch };
/// What a link is made of. kCpuFabric joins the sockets of a server (UPI, xGMI).
enum class LinkKind : uint8_t { kNetwork, kNvlink, kPcie, kCpuFabric };
enum class LinkHealth : uint8_t { kUp, kDown };

struct Node {
  std::string name;
  NodeKind kind = NodeKind::kSwitch;
};

/// One direction of a cable. `capacity` is the rate planned with, 0 while the link is down; `line_rate` what the
/// cable is configured for; `measured` what the link gives while it is up.
struct Link {
  NodeId from, to;
  BitsPerSecond line_rate;
  BitsPerSecond capacity;
  LinkKind kind = LinkKind::kNetwork;
  LinkHealth health = LinkHealth::kUp;
  BitsPerSecond measured = line_rate;
};

/// What a link counts in the length of a path: hops, and inside a server NVLink before PCIe before the sockets' link.
int32_t HopLength(LinkKind kind);
/// Whether traffic passes through such nodes.
bool ForwardsTraffic(NodeKind kind);

/// A directed multigraph of named nodes. Names are unique; ids are dense and in order of insertion.
class Topology {
 public:
  /// The node of that name, added with `kind` if it is new (an existing node keeps its kind).
  NodeId AddNode(std::string_view name, NodeKind kind);

  /// The link from -> to, added with `rate` as line rate and capacity if it is new. Requires: valid ids, rate > 0.
  LinkId AddLink(NodeId from, NodeId to, BitsPerSecond rate, LinkKind kind = LinkKind::kNetwork);
  /// Both directions of a cable.
  void AddCable(NodeId a, NodeId b, BitsPerSecond rate, LinkKind kind = LinkKind::kNetwork);

  std::optional<NodeId> FindNode(std::string_view name) const;
  std::optional<LinkId> FindLink(NodeId from, NodeId to) const;

  /// "from->to", the name of a link in every output.
  std::string LinkName(LinkId link) const;

  /// What the link was measured to give; of a link that is down it counts when it is back. Requires: capacity ≥ 0.
  void SetCapacity(LinkId link, BitsPerSecond capacity);
  void SetHealth(LinkId link, LinkHealth health);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Link> links() const { return links_; }
  const Link& link(LinkId id) const { return links_[id.index()]; }
  const Node& node(NodeId id) const { return nodes_[id.index()]; }

  /// All shortest paths from one host or GPU to another, each a list of links, in lexical order of their link ids;
  /// at most `limit`. Empty if there is none. Fewest hops count; inside a server NVLink is preferred to PCIe and
  /// PCIe to the link between sockets. Links that are down count as any other: a path over one is a path that may
  /// come back. Complexity: O((nodes + links) log nodes + paths · hops).
  std::vector<std::vector<LinkId>> ShortestPaths(NodeId from, NodeId to, size_t limit = 64) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<std::vector<LinkId>> out_, in_;
  std::unordered_map<uint64_t, LinkId> by_ends_;
  std::unordered_map<std::string, NodeId> by_name_;
};

}  // namespace weft::planner::fabric

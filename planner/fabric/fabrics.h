// Whole clusters as one graph: fabrics of the kinds that GPU clusters are built with, with plain hosts or whole
// servers at their edge. Names are stable, so that a plan for a generated cluster can be read: "leaf1", "spine1",
// "h1" … count from 1.
//
//   const Cluster cluster = RailOptimised({.hosts = 64, .rails = 8, .spines = 8, .server = DgxH100()});
//   cluster.topology.ShortestPaths(cluster.hosts[0].gpus[3], cluster.hosts[40].gpus[3]);
#pragma once

#include <optional>
#include <vector>

#include "planner/fabric/servers.h"
#include "planner/fabric/topology.h"

namespace weft::planner::inline fabric {

/// A host at the edge of a fabric: its ports in order of rail, and what sends: the GPUs, or the host itself if it
/// is plain.
struct ClusterHost {
  std::vector<NodeId> ports;
  std::vector<NodeId> gpus;
};

struct Cluster {
  Topology topology;
  std::vector<ClusterHost> hosts;
};

/// Pods of leaves and aggregation switches, joined by cores: switch j of every pod goes to cores j ·
/// cores_per_aggregation …
struct ThreeTierSpec {
  int pods = 4;
  int leaves_per_pod = 2;
  int aggregations_per_pod = 2;
  int cores_per_aggregation = 2;
  int hosts_per_leaf = 2;
  BitsPerSecond host_rate = GigabitsPerSecond(400);
  BitsPerSecond fabric_rate = GigabitsPerSecond(400);    ///< leaf to aggregation
  BitsPerSecond core_rate = GigabitsPerSecond(400);      ///< aggregation to core
  std::optional<ServerSpec> server;                      ///< all NICs of a server go to its leaf
};
Cluster ThreeTierClos(const ThreeTierSpec& spec);

/// NIC i of every host of a group goes to leaf i of the group ("rail1-3": group 1, rail 3); all leaves go to all
/// spines.
struct RailSpec {
  int hosts = 8;
  int rails = 8;                                         ///< NICs per host; of a server: its NICs
  int hosts_per_group = 32;
  int spines = 8;
  BitsPerSecond host_rate = GigabitsPerSecond(400);
  BitsPerSecond fabric_rate = GigabitsPerSecond(400);
  std::optional<ServerSpec> server;
};
Cluster RailOptimised(const RailSpec& spec);

/// Every NIC has a port in each of two planes, each with leaves and spines of its own ("a-leaf1", "b-spine2"): a flow
/// stays in the plane that it starts in. Source: Alibaba HPN, SIGCOMM 2024, section 5.
struct DualPlaneSpec {
  int hosts = 8;
  int hosts_per_leaf = 4;
  int spines_per_plane = 4;
  BitsPerSecond port_rate = GigabitsPerSecond(200);      ///< of one of the two ports
  BitsPerSecond fabric_rate = GigabitsPerSecond(400);
  std::optional<ServerSpec> server;
};
Cluster DualPlane(const DualPlaneSpec& spec);

/// A torus of routers ("r0-1-2" by its coordinates), one plain host each, with wrap-around cables in every
/// dimension of more than two. A host's own link carries what all links of its router do.
struct TorusSpec {
  std::vector<int> extent = {4, 4};
  BitsPerSecond rate = GigabitsPerSecond(400);
};
Cluster Torus(const TorusSpec& spec);

}  // namespace weft::planner::fabric

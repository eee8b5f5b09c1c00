#include "planner/fabric/fabrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "planner/fabric/min_cut.h"

namespace weft::planner::inline fabric {
namespace {

NodeId AddSwitch(Topology* topology, const std::string& name) { return topology->AddNode(name, NodeKind::kSwitch); }

/// Host number `index`, from 0: a server, or a plain host with `ports` ports that are all the host itself.
ClusterHost AddHost(Topology* topology, int index, const std::optional<ServerSpec>& server, int ports) {
  const std::string name = fmt::format("h{}", index + 1);
  if (server) {
    Server added = AddServer(topology, name, *server);
    return {.ports = std::move(added.nics), .gpus = std::move(added.gpus)};
  }
  const NodeId host = topology->AddNode(name, NodeKind::kHost);
  return {.ports = std::vector<NodeId>(static_cast<size_t>(ports), host), .gpus = {host}};
}

void Join(Topology* topology, const std::vector<NodeId>& below, const std::vector<NodeId>& above, BitsPerSecond rate) {
  for (const NodeId a : below) {
    for (const NodeId b : above) topology->AddCable(a, b, rate);
  }
}

std::vector<NodeId> AddSwitches(Topology* topology, const std::string& prefix, int count) {
  std::vector<NodeId> switches;
  for (int i = 1; i <= count; ++i) switches.push_back(AddSwitch(topology, fmt::format("{}{}", prefix, i)));
  return switches;
}

}  // namespace

Cluster ThreeTierClos(const ThreeTierSpec& spec) {
  Cluster cluster;
  Topology* topology = &cluster.topology;
  const std::vector<NodeId> cores =
      AddSwitches(topology, "core", spec.aggregations_per_pod * spec.cores_per_aggregation);
  for (int pod = 1; pod <= spec.pods; ++pod) {
    const std::vector<NodeId> aggregations =
        AddSwitches(topology, fmt::format("agg{}-", pod), spec.aggregations_per_pod);
    const std::vector<NodeId> leaves = AddSwitches(topology, fmt::format("leaf{}-", pod), spec.leaves_per_pod);
    Join(topology, leaves, aggregations, spec.fabric_rate);
    for (size_t j = 0; j < aggregations.size(); ++j) {
      const auto first = cores.begin() + static_cast<std::ptrdiff_t>(j) * spec.cores_per_aggregation;
      Join(topology, {aggregations[j]}, {first, first + spec.cores_per_aggregation}, spec.core_rate);
    }
    for (const NodeId leaf : leaves) {
      for (int i = 0; i < spec.hosts_per_leaf; ++i) {
        cluster.hosts.push_back(AddHost(topology, static_cast<int>(cluster.hosts.size()), spec.server, 1));
        Join(topology, cluster.hosts.back().ports, {leaf}, spec.host_rate);
      }
    }
  }
  return cluster;
}

Cluster RailOptimised(const RailSpec& spec) {
  WEFT_CHECK(!spec.server || spec.server->nics == spec.rails, "a server whose NICs are not as many as the rails");
  Cluster cluster;
  Topology* topology = &cluster.topology;
  const std::vector<NodeId> spines = AddSwitches(topology, "spine", spec.spines);
  std::vector<NodeId> leaves;
  for (int h = 0; h < spec.hosts; ++h) {
    if (h % spec.hosts_per_group == 0) {
      leaves = AddSwitches(topology, fmt::format("rail{}-", h / spec.hosts_per_group + 1), spec.rails);
      Join(topology, leaves, spines, spec.fabric_rate);
    }
    cluster.hosts.push_back(AddHost(topology, h, spec.server, spec.rails));
    for (size_t rail = 0; rail < leaves.size(); ++rail) {
      topology->AddCable(cluster.hosts.back().ports[rail], leaves[rail], spec.host_rate);
    }
  }
  return cluster;
}

Cluster DualPlane(const DualPlaneSpec& spec) {
  Cluster cluster;
  Topology* topology = &cluster.topology;
  for (int h = 0; h < spec.hosts; ++h) cluster.hosts.push_back(AddHost(topology, h, spec.server, 1));
  for (const char plane : {'a', 'b'}) {
    const std::vector<NodeId> spines = AddSwitches(topology, fmt::format("{}-spine", plane), spec.spines_per_plane);
    const int leaf_count = (spec.hosts + spec.hosts_per_leaf - 1) / spec.hosts_per_leaf;
    const std::vector<NodeId> leaves = AddSwitches(topology, fmt::format("{}-leaf", plane), leaf_count);
    Join(topology, leaves, spines, spec.fabric_rate);
    for (size_t h = 0; h < cluster.hosts.size(); ++h) {
      Join(topology, cluster.hosts[h].ports, {leaves[h / static_cast<size_t>(spec.hosts_per_leaf)]}, spec.port_rate);
    }
  }
  return cluster;
}

Cluster Torus(const TorusSpec& spec) {
  WEFT_CHECK(!spec.extent.empty(), "a torus without dimensions");
  Cluster cluster;
  Topology* topology = &cluster.topology;
  int count = 1, degree = 0;
  for (const int extent : spec.extent) {
    WEFT_CHECK(extent >= 1, "a torus with an empty dimension");
    count *= extent;
    degree += extent == 1 ? 0 : extent == 2 ? 1 : 2;
  }
  // Router i has coordinates in mixed radix, the last dimension fastest.
  std::vector<NodeId> routers;
  for (int i = 0; i < count; ++i) {
    std::string name;
    for (int rest = i, below = count; const int extent : spec.extent) {
      below /= extent;
      name += fmt::format("{}{}", name.empty() ? "r" : "-", rest / below);
      rest %= below;
    }
    routers.push_back(AddSwitch(topology, name));
    cluster.hosts.push_back(AddHost(topology, i, std::nullopt, 1));
    topology->AddCable(cluster.hosts.back().ports[0], routers.back(), spec.rate * std::max(1, degree));
  }
  for (int stride = count; const int extent : spec.extent) {
    stride /= extent;
    for (int i = 0; i < count && extent > 1; ++i) {
      const int at = i / stride % extent;
      const int next = i + ((at + 1) % extent - at) * stride;
      topology->AddCable(routers[static_cast<size_t>(i)], routers[static_cast<size_t>(next)], spec.rate);
    }
  }
  return cluster;
}

}  // namespace weft::planner::fabric

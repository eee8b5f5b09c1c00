#include "formats/scenario_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "formats/one_line.h"
#include "formats/scenario_import.h"

namespace weft::formats {
namespace {

using planner::Cluster;
using planner::ClusterHost;
using planner::NodeKind;

// What fits into memory and a person's patience; 65,536 hosts are above the largest published training clusters.
constexpr int64_t kMostHosts = 65'536;
constexpr int64_t kMostCables = 250'000;
constexpr int64_t kMostOfAKind = 16'384;

int64_t Count(FabricInput& in, std::string_view key) { return in.fields.Integer(key, 1, kMostOfAKind); }

BitsPerSecond RateOr(FabricInput& in, std::string_view key, BitsPerSecond otherwise) {
  return in.fields.Value(key) != nullptr ? in.fields.Rate(key) : otherwise;
}

/// Of a host's cable: a server's NICs have a rate, plain hosts must name one.
BitsPerSecond HostRate(FabricInput& in, std::string_view key) {
  return in.server ? RateOr(in, key, in.server->nic) : in.fields.Rate(key);
}

/// Refuses what is too large, at `key`.
void Bound(FabricInput& in, std::string_view key, int64_t hosts, int64_t cables) {
  if (in.server) cables += hosts * (2 * in.server->gpus + in.server->nics + in.server->pcie_switches + in.server->cpus);
  if (hosts > kMostHosts || cables > kMostCables) {
    in.fields.Reject(key, fmt::format("a fabric of {} hosts and {} cables, expected at most {} and {}", hosts, cables,
                                      kMostHosts, kMostCables));
  }
}

int Whole(int64_t count) { return static_cast<int>(count); }

BuiltFabric Named(Cluster cluster) {
  BuiltFabric built{.cluster = std::move(cluster), .names = {}};
  for (size_t i = 0; i < built.cluster.hosts.size(); ++i) built.names.push_back(fmt::format("h{}", i + 1));
  return built;
}

struct LeafSpineSizes {
  int64_t leaves, spines, hosts_per_leaf;
  BitsPerSecond host_rate, fabric_rate;
};

Cluster BuildLeafSpine(const LeafSpineSizes& sizes, const std::optional<planner::ServerSpec>& server) {
  Cluster cluster;
  planner::Topology& topology = cluster.topology;
  std::vector<NodeId> spines;
  for (int64_t s = 1; s <= sizes.spines; ++s)
    spines.push_back(topology.AddNode(fmt::format("spine{}", s), NodeKind::kSwitch));
  for (int64_t l = 1; l <= sizes.leaves; ++l) {
    const NodeId leaf = topology.AddNode(fmt::format("leaf{}", l), NodeKind::kSwitch);
    for (const NodeId spine : spines) topology.AddCable(leaf, spine, sizes.fabric_rate);
    for (int64_t h = 0; h < sizes.hosts_per_leaf; ++h) {
      const std::string name = fmt::format("h{}", cluster.hosts.size() + 1);
      ClusterHost host;
      if (server) {
        planner::Server added = planner::AddServer(&topology, name, *server);
        host = {.ports = std::move(added.nics), .gpus = std::move(added.gpus)};
      } else {
        host.ports = host.gpus = {topology.AddNode(name, NodeKind::kHost)};
      }
      for (const NodeId port : host.ports) topology.AddCable(port, leaf, sizes.host_rate);
      cluster.hosts.push_back(std::move(host));
    }
  }
  return cluster;
}

FabricBuilder ReadLeafSpine(FabricInput& in) {
  LeafSpineSizes sizes{.leaves = Count(in, "leaves"), .spines = Count(in, "spines"),
                       .hosts_per_leaf = Count(in, "hosts_per_leaf"), .host_rate = HostRate(in, "host_rate"),
                       .fabric_rate = BitsPerSecond(0)};
  sizes.fabric_rate = RateOr(in, "fabric_rate", sizes.host_rate);
  const int64_t hosts = sizes.leaves * sizes.hosts_per_leaf;
  Bound(in, "leaves", hosts, hosts + sizes.leaves * sizes.spines);
  return [sizes, server = in.server] { return Named(BuildLeafSpine(sizes, server)); };
}

FabricBuilder ReadThreeTier(FabricInput& in) {
  planner::ThreeTierSpec spec;
  spec.pods = Whole(Count(in, "pods"));
  spec.leaves_per_pod = Whole(Count(in, "leaves_per_pod"));
  spec.aggregations_per_pod = Whole(Count(in, "aggregations_per_pod"));
  spec.cores_per_aggregation = Whole(Count(in, "cores_per_aggregation"));
  spec.hosts_per_leaf = Whole(Count(in, "hosts_per_leaf"));
  spec.host_rate = HostRate(in, "host_rate");
  spec.fabric_rate = RateOr(in, "fabric_rate", spec.host_rate);
  spec.core_rate = RateOr(in, "core_rate", spec.fabric_rate);
  spec.server = in.server;
  // As real numbers: five factors of up to 16,384 do not fit into an integer.
  const double leaves = double(spec.pods) * spec.leaves_per_pod, hosts = leaves * spec.hosts_per_leaf;
  const double cables = hosts + leaves * spec.aggregations_per_pod +
                        double(spec.pods) * spec.aggregations_per_pod * spec.cores_per_aggregation;
  Bound(in, "pods", static_cast<int64_t>(std::min(hosts, 1e12)), static_cast<int64_t>(std::min(cables, 1e12)));
  return [spec] { return Named(planner::ThreeTierClos(spec)); };
}

FabricBuilder ReadRail(FabricInput& in) {
  planner::RailSpec spec;
  spec.hosts = Whole(in.fields.Integer("hosts", 1, kMostHosts));
  spec.rails = Whole(in.fields.Integer("rails", 1, 64, in.server ? in.server->nics : 8));
  if (in.server && spec.rails != in.server->nics) {
    in.fields.Reject("rails",
                     fmt::format("value {}, expected {}, as many as the server has NICs", spec.rails, in.server->nics));
  }
  spec.hosts_per_group = Whole(in.fields.Integer("hosts_per_group", 1, kMostHosts, spec.hosts));
  spec.spines = Whole(Count(in, "spines"));
  spec.host_rate = HostRate(in, "host_rate");
  spec.fabric_rate = RateOr(in, "fabric_rate", spec.host_rate);
  spec.server = in.server;
  const int64_t groups = (spec.hosts + spec.hosts_per_group - 1) / spec.hosts_per_group;
  Bound(in, "hosts", spec.hosts, int64_t{spec.hosts} * spec.rails + groups * spec.rails * spec.spines);
  return [spec] { return Named(planner::RailOptimised(spec)); };
}

FabricBuilder ReadDualPlane(FabricInput& in) {
  planner::DualPlaneSpec spec;
  spec.hosts = Whole(in.fields.Integer("hosts", 1, kMostHosts));
  spec.hosts_per_leaf = Whole(in.fields.Integer("hosts_per_leaf", 1, kMostHosts));
  spec.spines_per_plane = Whole(Count(in, "spines_per_plane"));
  spec.port_rate = in.server ? RateOr(in, "port_rate", in.server->nic / 2) : in.fields.Rate("port_rate");
  spec.fabric_rate = RateOr(in, "fabric_rate", spec.port_rate);
  spec.server = in.server;
  const int64_t leaves = (spec.hosts + spec.hosts_per_leaf - 1) / spec.hosts_per_leaf;
  const int64_t ports = in.server ? in.server->nics : 1;
  Bound(in, "hosts", spec.hosts, 2 * (spec.hosts * ports + leaves * spec.spines_per_plane));
  return [spec] { return Named(planner::DualPlane(spec)); };
}

FabricBuilder ReadTorus(FabricInput& in) {
  planner::TorusSpec spec;
  spec.extent.clear();
  int64_t hosts = 1;
  for (const std::string& text : in.fields.TextList("extent")) {
    int extent = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || extent < 1 || extent > kMostHosts) {
      in.fields.Reject("extent", fmt::format("value {}, expected a list of integers from 1 to {}",
                                             OneLine(text, 40), kMostHosts));
      break;
    }
    spec.extent.push_back(extent);
    hosts = std::min(hosts * extent, kMostCables + 1);
  }
  if (spec.extent.empty() || spec.extent.size() > 8) {
    in.fields.Reject("extent", "expected a list of 1 to 8 sizes, as in [4, 4]");
  }
  spec.rate = in.fields.Rate("rate");
  Bound(in, "extent", hosts, hosts * (1 + static_cast<int64_t>(spec.extent.size())));
  return [spec] { return Named(planner::Torus(spec)); };
}

constexpr std::array kKinds = {
    FabricKind{"leaf-spine", true, true, ReadLeafSpine},   FabricKind{"three-tier", true, true, ReadThreeTier},
    FabricKind{"rail", true, true, ReadRail},              FabricKind{"dual-plane", true, true, ReadDualPlane},
    FabricKind{"torus", false, true, ReadTorus},           FabricKind{"links", false, false, ReadLinkList},
    FabricKind{"slurm", false, false, ReadSlurmFabric},    FabricKind{"nccl", false, false, ReadNcclFabric},
};

}  // namespace

std::span<const FabricKind> FabricKinds() { return kKinds; }

std::string FabricKindNames() {
  std::string names;
  for (const FabricKind& kind : kKinds) names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  return names;
}

bool IsScenarioName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name.find("->") == name.npos &&
         std::ranges::all_of(name, [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/' || c == ':');
         });
}

}  // namespace weft::formats

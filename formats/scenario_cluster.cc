#include "formats/scenario_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "formats/one_line.h"
#include "formats/scenario_fabric.h"
#include "planner/fabric/servers.h"

namespace weft::formats {
namespace {

struct ServerPreset {
  std::string_view name;
  planner::ServerSpec (*make)();
};
constexpr std::array kServers = {ServerPreset{"dgx-v100", planner::DgxV100}, ServerPreset{"dgx-a100", planner::DgxA100},
                                 ServerPreset{"dgx-h100", planner::DgxH100}};

/// What is in one host.
struct Machine {
  std::optional<planner::ServerSpec> server;
  std::optional<planner::ClusterSpec> spec;
  int64_t gpus_per_host = 1;
};

void ReadServer(YamlFields& fields, Machine* machine) {
  const std::string name = fields.Text("server");
  const auto* const preset = std::ranges::find(kServers, name, &ServerPreset::name);
  if (preset == kServers.end()) {
    std::string names;
    for (const ServerPreset& one : kServers) names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
    return fields.Reject("server", fmt::format("value \"{}\", expected one of {}", OneLine(name, 60), names));
  }
  machine->server = preset->make();
  // A job's library ties each GPU to one NIC. Where several hang on one PCIe switch the shortest paths would leave the
  // choice to the hash, and GPUs of one job would collide inside their host: so every NIC gets a switch, with its own
  // GPUs below it.
  machine->server->pcie_switches = std::max(machine->server->pcie_switches, machine->server->nics);
  machine->spec = planner::FindClusterPreset(name, 1);
  machine->gpus_per_host = machine->server->gpus;
}

/// Of plain hosts; `count_gpus` unless a file says how many there are.
void ReadDevice(YamlFields& fields, bool count_gpus, Machine* machine) {
  if (count_gpus) machine->gpus_per_host = fields.Integer("gpus_per_host", 1, 1024, 1);
  const std::string device = fields.Text("device", "");
  planner::ClusterSpec spec{.name = "scenario", .nodes = 1, .gpus_per_node = machine->gpus_per_host};
  const bool several = machine->gpus_per_host > 1 || !count_gpus;
  const bool rated = fields.Value("intra_node_rate") != nullptr;
  // A single GPU sends nothing inside its host: any rate will do.
  spec.intra_node_rate =
      rated || (several && !device.empty()) ? fields.Rate("intra_node_rate") : GigabitsPerSecond(1000);
  spec.intra_latency = fields.Duration("intra_latency", Seconds(4e-6));
  spec.nic_latency = fields.Duration("nic_latency", Seconds(12e-6));
  spec.network_efficiency = fields.Number("network_efficiency", 0.01, 1, 0.92);
  if (device.empty()) return;
  const auto known = planner::FindDevice(device);
  if (!known) {
    return fields.Reject("device",
                         fmt::format("value \"{}\", expected one of {}", OneLine(device, 60), planner::DeviceNames()));
  }
  spec.device = *known;
  machine->spec = std::move(spec);
}

/// What each host reaches the fabric by: the rates of its ports' cables and the first switch.
void FindPorts(const planner::Cluster& cluster, std::vector<ScenarioHost>* hosts) {
  std::map<NodeId, size_t> host_of;
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    for (const NodeId port : cluster.hosts[h].ports) host_of.emplace(port, h);
  }
  for (const planner::Link& link : cluster.topology.links()) {
    const auto found = host_of.find(link.from);
    if (link.kind != planner::LinkKind::kNetwork || found == host_of.end()) continue;
    ScenarioHost& host = (*hosts)[found->second];
    host.rate = host.rate + link.line_rate;
    if (!host.leaf.valid()) host.leaf = link.to;
  }
}

ScenarioCluster Finished(BuiltFabric built, const Machine& machine, bool generated) {
  ScenarioCluster cluster{.topology = {}, .hosts = {}, .gpus_per_host = machine.gpus_per_host, .machine = machine.spec,
                          .generated = generated};
  for (size_t h = 0; h < built.names.size(); ++h) {
    cluster.hosts.push_back(
        {.name = std::move(built.names[h]), .senders = built.cluster.hosts[h].gpus, .rate = {}, .leaf = {}});
  }
  FindPorts(built.cluster, &cluster.hosts);
  cluster.topology = std::move(built.cluster.topology);
  const auto& first = cluster.hosts.front().senders;
  const bool plain = cluster.topology.node(first.front()).kind == planner::NodeKind::kHost;
  if (!plain) cluster.gpus_per_host = static_cast<int64_t>(first.size());
  if (cluster.machine) cluster.machine->gpus_per_node = cluster.gpus_per_host;
  return cluster;
}

}  // namespace

Result<ScenarioCluster> ReadScenarioCluster(const YamlValue& map, std::string_view source, const std::string& folder,
                                            std::string_view place) {
  YamlFields fields(map, source, std::string(place));
  const std::string name = fields.Text("fabric");
  const auto kinds = FabricKinds();
  const auto kind = std::ranges::find(kinds, name, &FabricKind::name);
  if (kind == kinds.end()) {
    fields.Reject("fabric", fmt::format("value \"{}\", expected one of {}", OneLine(name, 60), FabricKindNames()));
    return Fail(fields.Finish().error());
  }
  Machine machine;
  if (kind->takes_server && fields.Value("server") != nullptr) {
    ReadServer(fields, &machine);
  } else {
    ReadDevice(fields, name != "nccl", &machine);
  }
  FabricInput input{.fields = fields, .server = machine.server, .source = std::string(source), .folder = folder};
  const FabricBuilder build = kind->read(input);
  WEFT_RETURN_IF_ERROR(fields.Finish());
  Result<BuiltFabric> built = build();
  if (!built) return Fail(built.error().WithContext(fmt::format("{}:{}: key \"{}file\"", source, map.line, place)));
  return Finished(std::move(*built), machine, kind->generated);
}

}  // namespace weft::formats

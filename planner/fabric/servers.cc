#include "planner/fabric/servers.h"

#include <fmt/format.h>

#include "common/check.h"

namespace weft::planner::inline fabric {
namespace {

/// `count` nodes "<server>/<what>0" …
std::vector<NodeId> AddNodes(Topology* topology, std::string_view server, std::string_view what, int count,
                             NodeKind kind) {
  std::vector<NodeId> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(topology->AddNode(fmt::format("{}/{}{}", server, what, i), kind));
  return nodes;
}

/// The one of `parents` that the i-th of `count` equal parts hangs on.
NodeId ParentOf(size_t i, size_t count, const std::vector<NodeId>& parents) {
  return parents[i * parents.size() / count];
}

void AddNvlink(Topology* topology, std::string_view server, const ServerSpec& spec, const std::vector<NodeId>& gpus) {
  if (spec.nvlink.value() <= 0) return;
  if (!spec.mesh.empty()) {
    for (const NvlinkPair& pair : spec.mesh) {
      topology->AddCable(gpus[static_cast<size_t>(pair.a)], gpus[static_cast<size_t>(pair.b)], spec.nvlink * pair.lanes,
                         LinkKind::kNvlink);
    }
    return;
  }
  const NodeId center = topology->AddNode(fmt::format("{}/nvswitch", server), NodeKind::kNvSwitch);
  for (const NodeId gpu : gpus) topology->AddCable(gpu, center, spec.nvlink, LinkKind::kNvlink);
}

/// One direction of 16 lanes: transfers per second and lane, 128b/130b coding.
BitsPerSecond PcieX16(double gigatransfers) { return GigabitsPerSecond(gigatransfers * 16 * 128 / 130); }

}  // namespace

Server AddServer(Topology* topology, std::string_view name, const ServerSpec& spec) {
  WEFT_CHECK(spec.gpus >= 1 && spec.pcie_switches >= 1 && spec.cpus >= 1 && spec.pcie.value() > 0,
             "a server without GPUs, PCIe or sockets");
  Server server;
  server.gpus = AddNodes(topology, name, "gpu", spec.gpus, NodeKind::kGpu);
  server.nics = AddNodes(topology, name, "nic", spec.nics, NodeKind::kNic);
  const std::vector<NodeId> pcie = AddNodes(topology, name, "pcie", spec.pcie_switches, NodeKind::kPcieSwitch);
  const std::vector<NodeId> cpus = AddNodes(topology, name, "cpu", spec.cpus, NodeKind::kCpu);
  AddNvlink(topology, name, spec, server.gpus);
  for (size_t i = 0; i < server.gpus.size(); ++i) {
    topology->AddCable(server.gpus[i], ParentOf(i, server.gpus.size(), pcie), spec.pcie, LinkKind::kPcie);
  }
  for (size_t i = 0; i < server.nics.size(); ++i) {
    topology->AddCable(server.nics[i], ParentOf(i, server.nics.size(), pcie), spec.pcie, LinkKind::kPcie);
  }
  for (size_t i = 0; i < pcie.size(); ++i) {
    topology->AddCable(pcie[i], ParentOf(i, pcie.size(), cpus), spec.pcie, LinkKind::kPcie);
  }
  for (size_t i = 0; i < cpus.size(); ++i) {
    for (size_t j = i + 1; j < cpus.size(); ++j) {
      topology->AddCable(cpus[i], cpus[j], spec.cpu_fabric, LinkKind::kCpuFabric);
    }
  }
  return server;
}

ServerSpec DgxV100() {
  return {.name = "dgx-v100", .nics = 4, .nvlink = GigabytesPerSecond(25),
          .mesh = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                   {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}},
          .pcie = PcieX16(8), .cpu_fabric = GigabytesPerSecond(38.4), .nic = GigabitsPerSecond(100)};
}

ServerSpec DgxA100() {
  return {.name = "dgx-a100", .nvlink = GigabytesPerSecond(300), .pcie = PcieX16(16),
          .cpu_fabric = GigabytesPerSecond(96), .nic = GigabitsPerSecond(200)};
}

ServerSpec DgxH100() {
  return {.name = "dgx-h100", .nvlink = GigabytesPerSecond(450), .pcie = PcieX16(32),
          .cpu_fabric = GigabytesPerSecond(96), .nic = GigabitsPerSecond(400)};
}

}  // namespace weft::planner::fabric

#include "planner/fabric/cluster_spec.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::planner::inline fabric {
namespace {

// Rates per direction from NVIDIA's system data sheets. DGX-1V: six NVLink 2 of 25 GB/s per GPU, four 100 Gbit/s NICs.
// DGX A100: twelve NVLink 3 of 25 GB/s, eight 200 Gbit/s NICs. DGX H100 and H200: eighteen NVLink 4 of 25 GB/s, eight
// 400 Gbit/s. DGX B200: eighteen NVLink 5 of 50 GB/s, eight 400 Gbit/s. GB200 NVL72: the same NVLink over 72 GPUs, one
// 400 Gbit/s NIC for each.
// Latency of one step: order of NCCL's model for the Simple protocol over NVLink and over InfiniBand (src/graph/tuning.cc).
// Efficiency: ring bus bandwidth of large transfers over line rate, 0.92 at 1 GiB on two nodes (SimAI's published tables).
struct Preset {
  const char* name;
  const char* device;
  int64_t gpus_per_node;
  double intra_gigabytes;
  double nic_gigabits;
  int64_t hosts_per_node = 1;
};
constexpr std::array kPresets = {
    Preset{"dgx-v100", "v100-32", 8, 150, 4 * 100},     Preset{"dgx-a100", "a100-80", 8, 300, 8 * 200},
    Preset{"dgx-h100", "h100-80", 8, 450, 8 * 400},     Preset{"dgx-h200", "h200", 8, 450, 8 * 400},
    Preset{"dgx-b200", "b200", 8, 900, 8 * 400},        Preset{"gb200-nvl72", "gb200", 72, 900, 72 * 400, 18},
};

/// `device` and `other` at once: every rate and amount the lesser, every time the longer.
DeviceSpec Common(DeviceSpec device, const DeviceSpec& other) {
  if (device.name != other.name) device.name += "+" + other.name;
  for (size_t i = 0; i < kPrecisions; ++i) {
    const auto precision = static_cast<Precision>(i);
    device.peak[i] = std::min(device.Peak(precision), other.Peak(precision));
  }
  device.memory = std::min(device.memory, other.memory);
  device.reserved = std::max(device.reserved, other.reserved);
  device.memory_rate = std::min(device.memory_rate, other.memory_rate);
  if (device.slot_rate.value() <= 0 || (other.slot_rate.value() > 0 && other.slot_rate < device.slot_rate)) device.slot_rate = other.slot_rate;
  device.gemm_efficiency = std::min(device.gemm_efficiency, other.gemm_efficiency);
  device.kernel_launch = std::max(device.kernel_launch, other.kernel_launch);
  if (device.source != other.source) device.source += "; " + other.source;
  return device;
}

}  // namespace

std::vector<NodeGroup> ClusterSpec::Groups() const {
  if (!groups.empty()) return groups;
  return {NodeGroup{.name = name, .nodes = nodes, .gpus_per_node = gpus_per_node, .device = device,
                    .intra_node_rate = intra_node_rate, .nic_rate = nic_rate, .intra_latency = intra_latency,
                    .nic_latency = nic_latency}};
}

int64_t ClusterSpec::TotalGpus() const {
  int64_t count = 0;
  for (const NodeGroup& group : groups) count += group.gpus();
  return groups.empty() ? nodes * gpus_per_node : count;
}

ClusterSpec MakeCluster(std::string name, std::vector<NodeGroup> groups, double network_efficiency) {
  const NodeGroup& first = groups.front();
  ClusterSpec cluster{.name = std::move(name), .nodes = 0, .gpus_per_node = first.gpus_per_node, .device = first.device,
                      .intra_node_rate = first.intra_node_rate, .nic_rate = first.nic_rate,
                      .intra_latency = first.intra_latency, .nic_latency = first.nic_latency,
                      .network_efficiency = network_efficiency};
  for (const NodeGroup& group : groups) {
    cluster.nodes += group.nodes;
    cluster.gpus_per_node = std::min(cluster.gpus_per_node, group.gpus_per_node);
    if (&group != &first) cluster.device = Common(std::move(cluster.device), group.device);
    cluster.intra_node_rate = std::min(cluster.intra_node_rate, group.intra_node_rate);
    cluster.nic_rate = std::min(cluster.nic_rate, group.nic_rate);
    cluster.intra_latency = std::max(cluster.intra_latency, group.intra_latency);
    cluster.nic_latency = std::max(cluster.nic_latency, group.nic_latency);
  }
  if (groups.size() > 1) cluster.groups = std::move(groups);
  return cluster;
}

std::optional<ClusterSpec> FindClusterPreset(std::string_view name, int64_t nodes) {
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    return ClusterSpec{.name = std::string(name),
                       .nodes = nodes,
                       .gpus_per_node = preset.gpus_per_node,
                       .device = *FindDevice(preset.device),
                       .intra_node_rate = GigabytesPerSecond(preset.intra_gigabytes),
                       .nic_rate = GigabitsPerSecond(preset.nic_gigabits),
                       .intra_latency = Seconds(4e-6),
                       .nic_latency = Seconds(12e-6),
                       .network_efficiency = 0.92,
                       .hosts_per_node = preset.hosts_per_node};
  }
  return std::nullopt;
}

std::string ClusterPresetNames() {
  std::string names;
  for (const Preset& preset : kPresets) names += (names.empty() ? "" : ", ") + std::string(preset.name);
  return names;
}

}  // namespace weft::planner::fabric

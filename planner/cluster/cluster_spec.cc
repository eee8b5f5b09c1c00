#include "planner/cluster/cluster_spec.h"

#include <array>

namespace weft::planner {
namespace {

// Rates per direction from NVIDIA's system data sheets. DGX-1V: six NVLink 2 of 25 GB/s per GPU, four 100 Gbit/s NICs.
// DGX A100: twelve NVLink 3 of 25 GB/s, eight 200 Gbit/s NICs. DGX H100: eighteen NVLink 4 of 25 GB/s, eight 400 Gbit/s.
// Latency of one step: order of NCCL's model for the Simple protocol over NVLink and over InfiniBand (src/graph/tuning.cc).
// Efficiency: ring bus bandwidth of large transfers over line rate, 0.92 at 1 GiB on two nodes (SimAI's published tables).
struct Preset {
  const char* name;
  const char* device;
  double intra_gigabytes;
  double nic_gigabits;
};
constexpr std::array kPresets = {
    Preset{"dgx-v100", "v100-32", 150, 4 * 100},
    Preset{"dgx-a100", "a100-80", 300, 8 * 200},
    Preset{"dgx-h100", "h100-80", 450, 8 * 400},
};

}  // namespace

std::optional<ClusterSpec> FindClusterPreset(std::string_view name, int64_t nodes) {
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    return ClusterSpec{.name = std::string(name),
                       .nodes = nodes,
                       .gpus_per_node = 8,
                       .device = *FindDevice(preset.device),
                       .intra_node_rate = GigabytesPerSecond(preset.intra_gigabytes),
                       .nic_rate = GigabitsPerSecond(preset.nic_gigabits),
                       .intra_latency = Seconds(4e-6),
                       .nic_latency = Seconds(12e-6),
                       .network_efficiency = 0.92};
  }
  return std::nullopt;
}

std::string ClusterPresetNames() {
  std::string names;
  for (const Preset& preset : kPresets) names += (names.empty() ? "" : ", ") + std::string(preset.name);
  return names;
}

}  // namespace weft::planner

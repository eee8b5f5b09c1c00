// The machines that a job may use, as a preset or a YAML file names them (formats/cluster_yaml.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/units.h"
#include "planner/workload/device_spec.h"

namespace weft::planner {

struct ClusterSpec {
  std::string name;
  int64_t nodes = 0;
  int64_t gpus_per_node = 0;
  DeviceSpec device;
  BitsPerSecond intra_node_rate;  ///< per GPU and direction
  BitsPerSecond nic_rate;         ///< per node and direction, all NICs together
  Seconds intra_latency{0};       ///< α of one step inside a node
  Seconds nic_latency{0};         ///< α of one step across nodes
  double network_efficiency = 0.9;///< goodput over line rate of a long transfer
};

/// "dgx-v100", "dgx-a100", "dgx-h100" with `nodes` nodes; nullopt if unknown. Sources in the .cc file.
std::optional<ClusterSpec> FindClusterPreset(std::string_view name, int64_t nodes);
/// The names that FindClusterPreset knows, for messages.
std::string ClusterPresetNames();

}  // namespace weft::planner

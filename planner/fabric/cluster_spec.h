// The machines that a job may use, as a preset or a YAML file names them (formats/cluster_yaml.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/units.h"
#include "planner/fabric/device_spec.h"
#include "planner/fabric/fabric_tiers.h"

namespace weft::planner::inline fabric {

/// What NICs speak, where it sets what a transfer starts with and reaches. kPlain: InfiniBand and RoCE; kEfaStaged: the first EFA,
/// which reads no GPU's memory: all goes through the host's.
enum class NicKind : uint8_t { kPlain, kEfa, kEfaStaged, kSlingshot };

/// Nodes that are alike. A node is what one fast fabric (NVLink, PCIe) joins: a server, or a whole NVL72 rack.
struct NodeGroup {
  std::string name;
  int64_t nodes = 0;
  int64_t gpus_per_node = 0;
  DeviceSpec device;
  BitsPerSecond intra_node_rate;  ///< per GPU and direction
  BitsPerSecond nic_rate;         ///< per node and direction, all NICs together
  Seconds intra_latency{0};       ///< α of one step inside a node
  Seconds nic_latency{0};         ///< α of one step across nodes

  int64_t gpus() const { return nodes * gpus_per_node; }
};

/// A constant of the cost model (planner/parallelism/calibration.h) as it was measured on a cluster.
struct MeasuredConstant {
  std::string name;
  double value = 0;
};

/// Of a cluster with several groups the fields beside `groups` hold what every node has: the slowest device and rates, the
/// least GPUs per node and memory, the longest latencies; `nodes` is the sum. Code that knows no groups then errs on the
/// safe side.
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
  std::vector<NodeGroup> groups;  ///< two or more where nodes differ, else empty; read through Groups()
  BitsPerSecond between_groups_rate;  ///< per node and direction between groups; 0: the slower group's nic_rate
  Seconds between_groups_latency{0};  ///< 0: the longer nic_latency
  bool switch_sums = false;           ///< switches between nodes can sum (SHARP and the like)
  int64_t hosts_per_node = 1;         ///< operating systems that make one node: 18 in an NVL72 rack
  /// What the nodes hang on, in order of rank; empty: a network that blocks nobody.
  std::vector<FabricTier> tiers = {};
  std::vector<std::string> node_names = {};  ///< [nodes] in order of rank, where a fabric names them
  int64_t nics_per_node = 0;          ///< 0: not known; as many as GPUs, where each has 100 Gbit/s of `nic_rate` at least, else fewer
  NicKind nic_kind = NicKind::kPlain;
  std::vector<MeasuredConstant> measured = {};  ///< win over the constants compiled in

  /// The groups, in order of rank; one, made of the fields above, for a homogeneous cluster.
  std::vector<NodeGroup> Groups() const;
  bool heterogeneous() const { return groups.size() > 1; }
  int64_t TotalGpus() const;
  /// Whether several GPUs send by one NIC.
  bool SharesNics() const {
    return nics_per_node > 0 ? nics_per_node < gpus_per_node : nic_rate.value() < 100e9 * static_cast<double>(gpus_per_node);
  }
  int64_t GpusPerHost() const { return gpus_per_node / hosts_per_node; }
};

/// A cluster of `groups` (at least one), the common fields computed as said above.
ClusterSpec MakeCluster(std::string name, std::vector<NodeGroup> groups, double network_efficiency);

/// "dgx-v100", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72" with `nodes` nodes; nullopt if unknown.
/// Sources in the .cc file.
std::optional<ClusterSpec> FindClusterPreset(std::string_view name, int64_t nodes);
/// The names that FindClusterPreset knows, for messages.
std::string ClusterPresetNames();

}  // namespace weft::planner::fabric

// The machines of a cluster as a YAML file:
//
//   version: 1
//   name: lab
//   nodes: 4
//   gpus_per_node: 8
//   device: a100-80            # planner/fabric/device_spec.h
//   device_memory: 80GiB       # optional, in place of the device's own
//   device_efficiency: 0.47    # optional: share of peak over a whole layer
//   intra_node_rate: 300GB/s   # per GPU and direction
//   nic_rate: 1.6Tbit/s        # per node and direction, all NICs together
//   intra_latency: 4us         # optional, as are the two below
//   nic_latency: 12us
//   network_efficiency: 0.92
//   hosts_per_node: 1          # optional: 18 for an NVL72 rack, whose node is one NVLink domain
//   nics_per_node: 8           # optional: fewer than GPUs share them, and a GPU's rings use one of several
//   nic_kind: plain            # optional: efa, efa-staged or slingshot, which start a transfer later than InfiniBand and RoCE
//   switch_sums: false         # optional: whether the switches can sum gradients
//   calibration: lab.calibration.yaml   # optional, relative to this file: constants that `weft calibrate` measured
//   fabric: {fabric: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2, host_rate: 1.6Tbit/s}
//                              # optional, what the nodes hang on: `cluster` of scenario_cluster.h; nodes and nic_rate then
//                              # need not be given. Without it a network that blocks nobody
//
// Where nodes differ, `groups` stands in place of the keys of one kind of node:
//
//   version: 1
//   name: old-and-new
//   groups:
//     - {nodes: 2, gpus_per_node: 8, device: h100-80, intra_node_rate: 450GB/s, nic_rate: 3.2Tbit/s}
//     - {name: old, nodes: 4, gpus_per_node: 8, device: a100-80, intra_node_rate: 300GB/s, nic_rate: 1.6Tbit/s}
//   between_groups_rate: 100Gbit/s    # optional: per node; the slower group's nic_rate
//   between_groups_latency: 5ms       # optional: the longer nic_latency
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "planner/fabric/cluster_spec.h"

namespace weft::formats {

/// `folder`: what file names are relative to. Errors: kNotFound for a missing file; kInvalidArgument naming file, line, key, value and what was expected.
[[nodiscard]] Result<planner::ClusterSpec> ReadClusterYaml(const std::string& path);
[[nodiscard]] Result<planner::ClusterSpec> ParseClusterYaml(std::string_view text, std::string_view source_name,
                                                            const std::string& folder = "");

/// CLUSTER of the command line: "dgx-a100:384" (preset and number of nodes), several of these joined by '+'
/// ("dgx-h100:2+dgx-a100:4", one group each), or a YAML file.
/// Errors: as above; kInvalidArgument for a preset without a count or with a wrong one; kNotFound naming the presets.
[[nodiscard]] Result<planner::ClusterSpec> ResolveCluster(const std::string& name);

}  // namespace weft::formats

// The `cluster` of a scenario file: a generated fabric, a list of links, or a file that another tool wrote.
//
//   cluster: {fabric: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4, host_rate: 100Gbit/s}
//   cluster: {fabric: three-tier, pods: 2, leaves_per_pod: 2, aggregations_per_pod: 2, cores_per_aggregation: 2,
//             hosts_per_leaf: 4, host_rate: 100Gbit/s, fabric_rate: 100Gbit/s, core_rate: 50Gbit/s}
//   cluster: {fabric: rail, hosts: 16, rails: 8, hosts_per_group: 8, spines: 8, host_rate: 400Gbit/s}
//   cluster: {fabric: dual-plane, hosts: 16, hosts_per_leaf: 4, spines_per_plane: 4, port_rate: 200Gbit/s}
//   cluster: {fabric: torus, extent: [4, 4], rate: 100Gbit/s}
//   cluster: {fabric: links, hosts: [a, b], links: [{from: a, to: s, rate: 10Gbit/s}, {from: s, to: b, rate: 5Gbit/s}]}
//   cluster: {fabric: slurm, file: topology.conf, rate: 100Gbit/s}
//   cluster: {fabric: nccl, file: topology.xml, hosts: 2}
//
// The first four take `server: dgx-a100` (dgx-v100, dgx-h100) in place of plain hosts and of a rate. Where a model is
// to be planned on other hosts, `device`, `gpus_per_host` and `intra_node_rate` say what is in one. Internal to
// formats/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "formats/yaml_fields.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/fabric/topology.h"

namespace weft::formats {

struct ScenarioHost {
  std::string name;
  std::vector<NodeId> senders;   ///< its GPUs in the topology, or the host itself
  BitsPerSecond rate;                     ///< of all its ports together, towards the fabric
  NodeId leaf;                   ///< the first switch; invalid where the host stands alone
};

struct ScenarioCluster {
  planner::Topology topology;
  std::vector<ScenarioHost> hosts;        ///< at least one
  int64_t gpus_per_host = 1;
  /// What models are planned on; `nodes` and `nic_rate` are the job's matter. None where no device is named.
  std::optional<planner::ClusterSpec> machine;
  bool generated = false;                 ///< every host reaches every other by construction
};

/// `folder` is what file names are relative to, `place` what stands before every key in messages.
/// Errors: kInvalidArgument naming file, line, key, value and what was expected; kNotFound for a missing file.
[[nodiscard]] Result<ScenarioCluster> ReadScenarioCluster(const YamlValue& map, std::string_view source,
                                                          const std::string& folder, std::string_view place = "cluster.");

}  // namespace weft::formats

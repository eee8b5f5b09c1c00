#include "controller/job_network.h"

#include <algorithm>

namespace weft::controller {

planner::GroupNetwork JobNetwork(const planner::ClusterSpec& cluster, int64_t ranks_per_host, std::optional<BitsPerSecond> node_rate,
                                 planner::CollectiveLibrary library) {
  planner::GroupNetwork network = planner::MakeGroupNetwork(cluster, library, planner::Calibration());
  const auto ranks = static_cast<double>(ranks_per_host);
  // More ranks than the cluster's machines have GPUs share what there is; fewer do not get more than their own NICs.
  network.nic_rate *= std::min(1.0, static_cast<double>(cluster.gpus_per_node) / ranks);
  if (node_rate) network.nic_rate = node_rate->bytes_per_second() / ranks;
  network.gpus_per_node = ranks_per_host;
  return network;
}

}  // namespace weft::controller

// Jobs of a scenario file whose hosts are the policy's to choose: `placement: any`, or a range of GPUs. Internal to formats/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/scenario_cluster.h"
#include "formats/scenario_yaml.h"
#include "formats/yaml_fields.h"

namespace weft::formats {

/// The numbers of hosts that such a job may get, ascending, at most planner::kMostSizes; empty for a job of given hosts. Of a long range
/// some are left out between its ends. What is wrong is rejected in `fields`.
std::vector<int64_t> ReadSizes(YamlFields& fields, const ScenarioCluster& cluster);

/// The hosts of the cluster, as policies give them to jobs.
std::vector<planner::ScenarioPlace> PlacesOf(const ScenarioCluster& cluster);

/// The senders of the first `hosts` hosts, which stand for any others.
std::vector<planner::TrafficEnd> FirstEnds(const ScenarioCluster& cluster, int64_t hosts);

}  // namespace weft::formats

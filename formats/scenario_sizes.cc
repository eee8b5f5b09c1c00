#include "formats/scenario_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/jobs/simulate/scenario.h"

namespace weft::formats {
namespace {

/// kMostSizes of the numbers from `least` to `most`, each about as much above the one before, relatively.
std::vector<int64_t> Between(int64_t least, int64_t most) {
  std::vector<int64_t> sizes;
  const auto count = static_cast<int64_t>(planner::kMostSizes);
  if (most - least < count) {
    for (int64_t n = least; n <= most; ++n) sizes.push_back(n);
    return sizes;
  }
  const double ratio = static_cast<double>(most) / static_cast<double>(least);
  for (int64_t i = 0; i < count; ++i) {
    const double exact = static_cast<double>(least) * std::pow(ratio, static_cast<double>(i) / static_cast<double>(count - 1));
    const auto rounded = std::clamp(static_cast<int64_t>(std::lround(exact)), least, most);
    if (sizes.empty() || rounded > sizes.back()) sizes.push_back(rounded);
  }
  return sizes;
}

}  // namespace

std::vector<int64_t> ReadSizes(YamlFields& fields, const ScenarioCluster& cluster) {
  const bool range = fields.Value("min_gpus") != nullptr || fields.Value("max_gpus") != nullptr;
  const bool any = fields.Value("placement") != nullptr && fields.Text("placement", "") == "any";
  if (!range && !any) return {};
  const auto hosts = static_cast<int64_t>(cluster.hosts.size()), each = cluster.gpus_per_host;
  if (fields.Value("gpus_per_host") != nullptr) fields.Reject("gpus_per_host", "expected only for a job of given hosts: such a job gets whole ones");
  for (const ScenarioHost& host : cluster.hosts) {
    if (host.senders.size() == cluster.hosts.front().senders.size()) continue;
    fields.Reject(range ? "min_gpus" : "placement", fmt::format("hosts \"{}\" and \"{}\" differ, expected hosts alike where a job can get any of them",
                                                                cluster.hosts.front().name, host.name));
    return {};
  }
  if (!range) {
    if (fields.Value("hosts") == nullptr || fields.Value("hosts")->kind == YamlValue::Kind::kList) {
      fields.Reject("placement", "value \"any\", expected hosts as a number, or min_gpus and max_gpus");
      return {};
    }
    return {fields.Integer("hosts", 1, hosts)};
  }
  if (fields.Value("hosts") != nullptr) fields.Reject("hosts", "expected either hosts, or min_gpus and max_gpus");
  const int64_t least = fields.Integer("min_gpus", 1, hosts * each, 1), most = fields.Integer("max_gpus", 1, hosts * each, hosts * each);
  const int64_t from = (least + each - 1) / each, to = most / each;
  if (from > to) {
    fields.Reject("max_gpus", fmt::format("no number of whole hosts has {} to {} GPUs, expected a multiple of {} in between", least, most, each));
    return {};
  }
  return Between(from, to);
}

std::vector<planner::ScenarioPlace> PlacesOf(const ScenarioCluster& cluster) {
  std::vector<planner::ScenarioPlace> places;
  for (const ScenarioHost& host : cluster.hosts) places.push_back({host.name, host.senders});
  return places;
}

std::vector<planner::TrafficEnd> FirstEnds(const ScenarioCluster& cluster, int64_t hosts) {
  std::vector<planner::TrafficEnd> ends;
  for (int64_t h = 0; h < hosts; ++h) ends.push_back(cluster.hosts[static_cast<size_t>(h)].senders);
  return ends;
}

}  // namespace weft::formats

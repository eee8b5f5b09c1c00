#include "formats/scenario_hosts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace weft::formats {

std::optional<Placement> ParsePlacement(std::string_view text) {
  if (text == "packed") return Placement::kPacked;
  if (text == "spread") return Placement::kSpread;
  if (text == "random") return Placement::kRandom;
  return std::nullopt;
}

HostBook::HostBook(const ScenarioCluster& cluster, uint64_t seed)
    : cluster_(cluster), jobs_(cluster.hosts.size()), uses_(cluster.hosts.size()), random_(seed) {
  std::map<NodeId, std::pair<size_t, size_t>> leaves;  // switch -> its number, hosts under it until now
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    const ScenarioHost& host = cluster.hosts[h];
    by_name_.emplace(host.name, h);
    uses_[h].resize(host.senders.size());
    for (const NodeId sender : host.senders) host_of_gpu_.emplace(sender.value(), h);
    auto& [number, under] = leaves.emplace(host.leaf, std::pair(leaves.size(), size_t{0})).first->second;
    spread_.emplace_back(under++, number);
  }
}

JobHost HostBook::TakeHost(size_t host, int64_t gpus) {
  ++jobs_[host];
  const std::vector<NodeId>& all = cluster_.hosts[host].senders;
  JobHost taken{.host = host, .senders = {}, .gpus = gpus};
  if (cluster_.topology.node(all.front()).kind == planner::NodeKind::kHost) {
    taken.senders = all;  // plain: what its GPUs send leaves through the host
    return taken;
  }
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t gpu) { return uses_[host][gpu]; });
  order.resize(static_cast<size_t>(gpus));
  std::ranges::sort(order);
  for (const size_t gpu : order) {
    ++uses_[host][gpu];
    taken.senders.push_back(all[gpu]);
  }
  return taken;
}

std::vector<JobHost> HostBook::Place(int64_t count, Placement placement, int64_t gpus) {
  const auto size = static_cast<size_t>(count);
  std::vector<size_t> order(cluster_.hosts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (placement == Placement::kRandom) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
  } else if (placement == Placement::kSpread) {
    std::ranges::stable_sort(order, {}, [&](size_t host) { return spread_[host]; });
  }
  std::ranges::stable_sort(order, {}, [&](size_t host) { return jobs_[host]; });
  order.resize(size);
  if (placement == Placement::kPacked) std::ranges::sort(order);
  std::vector<JobHost> hosts;
  for (const size_t host : order) hosts.push_back(TakeHost(host, gpus));
  return hosts;
}

bool HostBook::Knows(std::string_view name) const {
  if (by_name_.contains(name)) return true;
  const std::optional<NodeId> node = cluster_.topology.FindNode(name);
  return node && host_of_gpu_.contains(node->value());
}

std::optional<JobHost> HostBook::Take(std::string_view name, int64_t gpus) {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return TakeHost(found->second, gpus);
  const std::optional<NodeId> node = cluster_.topology.FindNode(name);
  const auto found = node ? host_of_gpu_.find(node->value()) : host_of_gpu_.end();
  if (found == host_of_gpu_.end()) return std::nullopt;
  const std::vector<NodeId>& all = cluster_.hosts[found->second].senders;
  ++uses_[found->second][static_cast<size_t>(std::ranges::find(all, *node) - all.begin())];
  ++jobs_[found->second];
  return JobHost{.host = found->second, .senders = {*node}, .gpus = 1};
}

}  // namespace weft::formats

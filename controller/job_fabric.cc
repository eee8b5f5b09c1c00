#include "controller/job_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/parse_units.h"

namespace weft::controller {
namespace {

using planner::FabricTier;
using planner::NodeTiers;

constexpr double kTold = 0.95;       // of a rate: less is a difference that a strategy is searched for
constexpr double kLeastLeft = 0.02;  // of a link's rate, as controller/link_monitor.h: with nothing left no path would exist

/// End points of the hosts. Errors: kFailedPrecondition naming the first that probes have not shown.
Result<std::vector<std::vector<NodeId>>> SendersOf(const std::vector<std::string>& hosts, const planner::Topology& topology) {
  std::vector<std::vector<NodeId>> senders;
  for (const std::string& host : hosts) {
    const auto node = topology.FindNode(host);
    if (!node || topology.node(*node).kind != planner::NodeKind::kHost) {
      return Fail(Code::kFailedPrecondition, fmt::format("no probe has shown what {} hangs on", host));
    }
    senders.push_back({*node});
  }
  if (const auto lone = planner::FindUnjoinedNode(topology, senders)) {
    return Fail(Code::kFailedPrecondition, fmt::format("no probe went both ways between {} and {}", hosts.front(), hosts[*lone]));
  }
  return senders;
}

/// The fabric with nobody on it, and with what is left of each link.
std::pair<planner::Topology, planner::Topology> Fabrics(const PlacementView& view) {
  std::pair<planner::Topology, planner::Topology> both{view.topology, view.topology};
  for (size_t i = 0; i < view.topology.links().size(); ++i) {
    const planner::Link& link = view.topology.links()[i];
    const LinkId id(static_cast<int32_t>(i));
    both.first.SetCapacity(id, link.line_rate);
    const double carried = i < view.carried.size() ? view.carried[i].value() : 0;
    both.second.SetCapacity(id, BitsPerSecond(std::max(link.capacity.value() - carried, kLeastLeft * link.line_rate.value())));
  }
  return both;
}

/// `cluster` on tiers whose rates are in `scale`ths of its own; without tiers where they hold nobody back.
planner::ClusterSpec On(planner::ClusterSpec cluster, const NodeTiers& found, double scale) {
  if (found.node_out.value() > 0) cluster.nic_rate = std::min(cluster.nic_rate, found.node_out * scale);
  bool binds = false;
  cluster.tiers = found.tiers;
  for (FabricTier& tier : cluster.tiers) {
    tier.out = tier.out * scale;
    binds |= tier.out.value() > 0 && tier.out < cluster.nic_rate * (1 - 1e-9);
  }
  if (!binds) cluster.tiers.clear();
  return cluster;
}

/// What a node of a unit of `nodes` can send out of it.
BitsPerSecond OutOf(const planner::ClusterSpec& cluster, int64_t nodes) {
  BitsPerSecond least = cluster.nic_rate;
  for (const FabricTier& tier : cluster.tiers) {
    if (tier.nodes <= nodes && tier.out.value() > 0) least = std::min(least, tier.out);
  }
  return least;
}

void Compare(JobFabric& fabric) {
  const auto say = [&](const std::string& where, BitsPerSecond now, BitsPerSecond alone) {
    if (now >= alone * kTold) return;
    fabric.loaded = true;
    fabric.why.push_back(fmt::format("fabric now: {} {}, {} if nobody else sent: other jobs carry the rest, or links give less than "
                                     "configured", where, FormatRate(now), FormatRate(alone)));
  };
  say("a node can send", fabric.now.nic_rate, fabric.alone.nic_rate);
  for (const FabricTier& tier : fabric.now.tiers) {
    if (tier.out.value() <= 0) continue;
    say(fmt::format("out of a {} of {} of the job's nodes each can send", tier.name, tier.nodes), OutOf(fabric.now, tier.nodes),
        OutOf(fabric.alone, tier.nodes));
  }
}

}  // namespace

JobFabric LookAtFabric(const std::vector<std::string>& hosts, const PlacementView& view, const planner::ClusterSpec& cluster) {
  JobFabric fabric{.alone = cluster, .now = cluster, .known = false, .loaded = false, .order = hosts, .why = {}};
  if (hosts.size() < 2) return fabric;
  const auto senders = SendersOf(hosts, view.topology);
  if (!senders) {
    fabric.why.push_back(fmt::format("fabric: {}: planned for a network that blocks nobody", senders.error().message()));
    return fabric;
  }
  fabric.known = true;
  const auto [idle, left] = Fabrics(view);
  const NodeTiers found_idle = planner::FindNodeTiers(idle, *senders), found_left = planner::FindNodeTiers(left, *senders);
  const double scale = found_idle.node_out.value() > 0 ? cluster.nic_rate / found_idle.node_out : 1;
  fabric.alone = On(cluster, found_idle, scale);
  fabric.now = On(cluster, found_left, scale);
  // Two tiers are leaves and all, whose hosts lie together as they are given.
  if (found_idle.tiers.size() > 2) {
    std::vector<std::string> order;
    for (const int32_t node : found_idle.order) order.push_back(hosts[static_cast<size_t>(node)]);
    fabric.order = std::move(order);
  }
  for (const FabricTier& tier : fabric.alone.tiers) {
    if (tier.out.value() <= 0) continue;
    fabric.why.push_back(fmt::format("fabric: out of a {} of {} nodes each can send {}, where its own links carry {}", tier.name,
                                     tier.nodes, FormatRate(tier.out), FormatRate(fabric.alone.nic_rate)));
  }
  Compare(fabric);
  return fabric;
}

}  // namespace weft::controller

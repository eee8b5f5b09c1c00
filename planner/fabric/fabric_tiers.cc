#include "planner/fabric/fabric_tiers.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>

#include "common/check.h"
#include "planner/fabric/fabric_cuts.h"

namespace weft::planner::inline fabric {
namespace {

/// "leaf" of "below leaf12 and 3 more".
std::string TierName(std::string_view cut) {
  if (cut.starts_with("below ")) cut.remove_prefix(6);
  size_t end = 0;
  while (end < cut.size() && std::isdigit(static_cast<unsigned char>(cut[end])) == 0 && cut[end] != ' ') ++end;
  std::string name(cut.substr(0, end));
  while (!name.empty() && (name.back() == '-' || name.back() == '_' || name.back() == '.')) name.pop_back();
  return name.empty() ? "tier" : name;
}

/// Switches that lie in no cut: what joins everything.
std::string TopName(const Topology& topology, const FabricCuts& cuts) {
  const std::vector<bool> inside = cuts.NodesInside();
  std::string name = "network";
  for (size_t n = 0; n < topology.nodes().size(); ++n) {
    if (topology.nodes()[n].kind != NodeKind::kSwitch) continue;
    name = TierName(topology.nodes()[n].name);
    if (!inside[n]) return name;
  }
  return name;
}

/// The cuts around all of a node's senders, outermost first.
std::vector<int32_t> AroundAll(const FabricCuts& cuts, const std::vector<NodeId>& senders) {
  std::map<int32_t, size_t> count;
  for (const NodeId sender : senders) {
    for (const int32_t cut : cuts.Around(sender)) ++count[cut];
  }
  std::vector<int32_t> around;
  for (const int32_t cut : cuts.Around(senders.front())) {
    if (count[cut] == senders.size()) around.insert(around.begin(), cut);
  }
  return around;
}

/// The cuts of one height that hold several nodes, but not all.
struct Level {
  int64_t least_nodes = 0;
  BitsPerSecond least_out;
  std::string name;
};

/// Which nodes of the topology `from` reaches, or, `backward`, which reach it.
std::vector<bool> Reached(const Topology& topology, NodeId from, bool backward) {
  std::vector<std::vector<size_t>> next(topology.nodes().size());
  for (const Link& link : topology.links()) {
    if (link.capacity.value() <= 0) continue;
    const size_t a = link.from.index(), b = link.to.index();
    next[backward ? b : a].push_back(backward ? a : b);
  }
  std::vector<bool> reached(next.size());
  std::vector<size_t> open = {from.index()};
  reached[from.index()] = true;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    for (const size_t n : next[node]) {
      if (reached[n]) continue;
      reached[n] = true;
      open.push_back(n);
    }
  }
  return reached;
}

}  // namespace

std::optional<size_t> FindUnjoinedNode(const Topology& topology, std::span<const std::vector<NodeId>> senders) {
  if (senders.empty()) return std::nullopt;
  const std::vector<bool> out = Reached(topology, senders.front().front(), false);
  const std::vector<bool> in = Reached(topology, senders.front().front(), true);
  for (size_t n = 0; n < senders.size(); ++n) {
    for (const NodeId sender : senders[n]) {
      if (!out[sender.index()] || !in[sender.index()]) return n;
    }
  }
  return std::nullopt;
}

NodeTiers FindNodeTiers(const Topology& topology, std::span<const std::vector<NodeId>> senders) {
  WEFT_CHECK(!senders.empty(), "a cluster of no nodes");
  const FabricCuts cuts(topology);
  const auto all = static_cast<int64_t>(senders.size());
  std::vector<std::vector<int32_t>> around(senders.size());  // outermost first
  std::map<int32_t, int64_t> nodes_in;
  for (size_t n = 0; n < senders.size(); ++n) {
    WEFT_CHECK(!senders[n].empty(), "a node without senders");
    around[n] = AroundAll(cuts, senders[n]);
    for (const int32_t cut : around[n]) ++nodes_in[cut];
  }
  NodeTiers found;
  std::map<int32_t, Level> levels;  // by height
  for (const auto& [index, nodes] : nodes_in) {
    if (nodes >= all && all > 1) continue;
    const FabricCut& cut = cuts.cuts()[static_cast<size_t>(index)];
    if (nodes == 1) {
      const BitsPerSecond out = std::min(cut.out, cut.in);
      if (found.node_out.value() == 0 || out < found.node_out) found.node_out = out;
      continue;
    }
    Level& level = levels[cut.height];
    const BitsPerSecond out = std::min(cut.out, cut.in) / static_cast<double>(nodes);
    if (level.least_nodes == 0 || out < level.least_out) level.least_out = out;
    if (level.least_nodes == 0 || nodes < level.least_nodes) level.least_nodes = nodes;
    if (level.name.empty()) level.name = TierName(cut.name);
  }
  for (const auto& [height, level] : levels) found.tiers.push_back({level.name, level.least_nodes, level.least_out});
  std::ranges::stable_sort(found.tiers, {}, &FabricTier::nodes);
  found.tiers.push_back({TopName(topology, cuts), all, BitsPerSecond(0)});
  found.order.resize(senders.size());
  std::iota(found.order.begin(), found.order.end(), 0);
  std::ranges::stable_sort(found.order, {}, [&](int32_t n) -> const std::vector<int32_t>& { return around[static_cast<size_t>(n)]; });
  return found;
}

}  // namespace weft::planner::fabric

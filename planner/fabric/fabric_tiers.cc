#include "planner/fabric/fabric_tiers.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>

#include "common/check.h"
#include "planner/fabric/fabric_cuts.h"

namespace weft::planner {
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

/// The cuts of one height that hold several nodes, but not all.
struct Level {
  int64_t least_nodes = 0;
  BitsPerSecond least_out;
  std::string name;
};

}  // namespace

NodeTiers FindNodeTiers(const Topology& topology, std::span<const std::vector<NodeId>> senders) {
  WEFT_CHECK(!senders.empty(), "a cluster of no nodes");
  const FabricCuts cuts(topology);
  const auto all = static_cast<int64_t>(senders.size());
  std::vector<std::vector<int32_t>> around(senders.size());  // outermost first
  std::map<int32_t, int64_t> nodes_in;
  for (size_t n = 0; n < senders.size(); ++n) {
    WEFT_CHECK(!senders[n].empty(), "a node without senders");
    for (const int32_t cut : cuts.Around(senders[n].front())) {
      if (cuts.cuts()[static_cast<size_t>(cut)].end_points < static_cast<int64_t>(senders[n].size())) continue;
      around[n].insert(around[n].begin(), cut);
      ++nodes_in[cut];
    }
  }
  std::map<int32_t, Level> levels;  // by height
  for (const auto& [index, nodes] : nodes_in) {
    if (nodes <= 1 || nodes >= all) continue;
    const FabricCut& cut = cuts.cuts()[static_cast<size_t>(index)];
    Level& level = levels[cut.height];
    const BitsPerSecond out = std::min(cut.out, cut.in) / static_cast<double>(nodes);
    if (level.least_nodes == 0 || out < level.least_out) level.least_out = out;
    if (level.least_nodes == 0 || nodes < level.least_nodes) level.least_nodes = nodes;
    if (level.name.empty()) level.name = TierName(cut.name);
  }
  NodeTiers found;
  for (const auto& [height, level] : levels) found.tiers.push_back({level.name, level.least_nodes, level.least_out});
  found.tiers.push_back({TopName(topology, cuts), all, BitsPerSecond(0)});
  found.order.resize(senders.size());
  std::iota(found.order.begin(), found.order.end(), 0);
  std::ranges::stable_sort(found.order, {}, [&](int32_t n) -> const std::vector<int32_t>& { return around[static_cast<size_t>(n)]; });
  return found;
}

}  // namespace weft::planner

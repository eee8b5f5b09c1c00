#include "controller/fabric_view.h"

namespace weft::controller {

using planner::NodeKind;

bool FabricView::SetHost(const std::string& host, std::span<const std::string> addresses) {
  bool changed = false;
  for (const std::string& address : addresses) {
    if (address.empty()) continue;
    std::string& owner = host_by_address_[address];
    if (owner == host) continue;
    owner = host;
    changed = true;
  }
  return changed;
}

const std::string* FabricView::HostOf(const std::string& address) const {
  const auto found = host_by_address_.find(address);
  return found == host_by_address_.end() ? nullptr : &found->second;
}

std::vector<LinkId> FabricView::AddPath(const std::string& from, std::span<const std::string> hops,
                                        const std::string& to) {
  std::vector<LinkId> links;
  NodeId at = topology_.AddNode(from, NodeKind::kHost);
  const auto step = [&](NodeId next) {
    if (next == at) return;  // a switch that answers twice, or a flow to itself: no link
    const auto rate = rates_.overrides.find({topology_.node(at).name, topology_.node(next).name});
    links.push_back(
        topology_.AddLink(at, next, rate == rates_.overrides.end() ? rates_.line_rate : rate->second));
    at = next;
  };
  for (const std::string& hop : hops) step(topology_.AddNode(hop, NodeKind::kSwitch));
  step(topology_.AddNode(to, NodeKind::kHost));
  if (!hops.empty()) leaf_by_host_[from] = hops.front();
  return links;
}

std::string FabricView::LeafOf(const std::string& host) const {
  const auto found = leaf_by_host_.find(host);
  return found == leaf_by_host_.end() ? std::string() : found->second;
}

bool FabricView::IsBetweenSwitches(LinkId link) const {
  const planner::Link& ends = topology_.link(link);
  return topology_.node(ends.from).kind == NodeKind::kSwitch && topology_.node(ends.to).kind == NodeKind::kSwitch;
}

}  // namespace weft::controller

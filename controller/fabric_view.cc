#include "controller/fabric_view.h"

#include <algorithm>

namespace weft::controller {

using planner::NodeKind;

bool FabricView::SetHost(const std::string& host, std::span<const std::string> addresses,
                         const std::function<bool(const std::string&)>& holds) {
  bool changed = false;
  std::vector<std::string>& owned = addresses_[host];
  for (const std::string& address : owned) {
    const auto known = host_by_address_.find(address);
    const bool lost = std::ranges::find(addresses, address) == addresses.end();
    if (lost && known != host_by_address_.end() && known->second == host) host_by_address_.erase(known);
  }
  owned.clear();
  for (const std::string& address : addresses) {
    if (address.empty()) continue;
    std::string& owner = host_by_address_[address];
    if (owner != host && !owner.empty() && holds(owner)) continue;
    owned.push_back(address);
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
    gone_.erase(links.back());
    at = next;
  };
  for (const std::string& hop : hops) step(topology_.AddNode(hop, NodeKind::kSwitch));
  step(topology_.AddNode(to, NodeKind::kHost));
  if (!hops.empty()) leaf_by_host_[from] = hops.front();
  return links;
}

planner::Topology FabricView::Present(std::vector<LinkId>* ids) const {
  planner::Topology present;
  for (const planner::Node& node : topology_.nodes()) present.AddNode(node.name, node.kind);
  ids->clear();
  for (size_t i = 0; i < topology_.links().size(); ++i) {
    const LinkId link(static_cast<int32_t>(i));
    if (IsGone(link)) continue;
    present.AddLink(topology_.link(link).from, topology_.link(link).to, topology_.link(link).line_rate);
    ids->push_back(link);
  }
  return present;
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

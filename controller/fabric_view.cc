#include "controller/fabric_view.h"

#include <algorithm>
#include <utility>

namespace weft::controller {

using planner::NodeKind;

namespace {

constexpr size_t kMostClaimed = 10'000;   // addresses that several hosts say are theirs

}  // namespace

bool FabricView::SetHost(const std::string& host, std::span<const std::string> addresses,
                         const std::function<bool(const std::string&)>& holds) {
  bool changed = false;
  std::vector<std::string>& owned = addresses_[host];
  const std::vector<std::string> before = std::exchange(owned, {});
  for (const std::string& address : before) {
    const auto known = host_by_address_.find(address);
    const bool lost = std::ranges::find(addresses, address) == addresses.end();
    if (!lost || known == host_by_address_.end() || known->second != host) continue;
    host_by_address_.erase(known);
    changed |= PassOn(address, host, holds);
  }
  for (const std::string& address : addresses) {
    if (address.empty()) continue;
    std::string& owner = host_by_address_[address];
    if (owner != host && !owner.empty() && holds(owner)) {
      if (claimed_.size() < kMostClaimed || claimed_.contains(address)) claimed_[address].insert(host);
      continue;
    }
    owned.push_back(address);
    if (owner == host) continue;
    owner = host;
    changed = true;
  }
  return changed;
}

bool FabricView::LeaveHost(const std::string& host, const std::function<bool(const std::string&)>& holds) {
  bool changed = false;
  const auto owned = addresses_.find(host);
  if (owned == addresses_.end()) return false;
  for (const std::string& address : owned->second) {
    const auto known = host_by_address_.find(address);
    if (known != host_by_address_.end() && known->second == host) changed |= PassOn(address, host, holds);
  }
  return changed;
}

/// To the first host that claims it and still is there; true if there is one.
bool FabricView::PassOn(const std::string& address, const std::string& from, const std::function<bool(const std::string&)>& holds) {
  const auto claimed = claimed_.find(address);
  if (claimed == claimed_.end()) return false;
  std::set<std::string>& hosts = claimed->second;
  while (!hosts.empty()) {
    const std::string next = *hosts.begin();
    hosts.erase(hosts.begin());
    if (next == from || !holds(next)) continue;
    host_by_address_[address] = next;
    addresses_[next].push_back(address);
    return true;
  }
  claimed_.erase(claimed);
  return false;
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

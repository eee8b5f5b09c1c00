// The link monitor's doubts: which links a flow may load whose path is not known yet.
#include <algorithm>
#include <limits>
#include <queue>

#include "controller/link_monitor.h"

namespace weft::controller {
namespace {

constexpr double kProbing = 10;        // seconds that a new flow's probes may take before it is judged without
constexpr double kWorthAsking = 0.05;  // of the line rate in a slot: who carries less explains nothing
constexpr size_t kMaxUnlocated = 256;  // pairs of hosts
constexpr size_t kMaxUnknown = 100'000;
constexpr int kFar = std::numeric_limits<int>::max() / 2;

/// Hops from `start` to every node, or to `start` from every node.
std::vector<int> Distances(const planner::Topology& topology, std::optional<NodeId> start, bool backward) {
  std::vector<int> distance(topology.nodes().size(), kFar);
  if (!start) return distance;
  std::vector<std::vector<NodeId>> next(topology.nodes().size());
  for (const planner::Link& link : topology.links()) {
    next[(backward ? link.to : link.from).index()].push_back(backward ? link.from : link.to);
  }
  distance[start->index()] = 0;
  std::queue<NodeId> open;
  for (open.push(*start); !open.empty(); open.pop()) {
    for (const NodeId node : next[open.front().index()]) {
      if (distance[node.index()] < kFar) continue;
      distance[node.index()] = distance[open.front().index()] + 1;
      open.push(node);
    }
  }
  return distance;
}

/// Links on a shortest way from one node to the other; where one is not known, the two nearest to the other.
void AddWays(const planner::Topology& topology, std::optional<NodeId> from, std::optional<NodeId> to, std::set<LinkId>* links) {
  const std::vector<int> ahead = Distances(topology, from, /*backward=*/false), behind = Distances(topology, to, /*backward=*/true);
  const int whole = from && to ? ahead[to->index()] : kFar;
  for (size_t i = 0; i < topology.links().size(); ++i) {
    const planner::Link& link = topology.links()[i];
    const int before = ahead[link.from.index()], after = behind[link.to.index()];
    const bool on_way = whole < kFar ? before + 1 + after == whole : std::min(before, after) <= 1;
    if (on_way) links->insert(LinkId(static_cast<int32_t>(i)));
  }
}

}  // namespace

/// Once only: a tenant who opens flows to addresses that nobody has gains nothing by it.
bool LinkMonitor::MayHangAnywhere(const std::string& host, double now_s) {
  if (fabric_->topology().FindNode(host)) return false;
  if (unknown_s_.size() >= kMaxUnknown && !unknown_s_.contains(host)) return false;
  return now_s - unknown_s_.try_emplace(host, now_s).first->second <= kProbing;
}

std::set<LinkId> LinkMonitor::Unsure(const FlowTable& table, int64_t slot, double now_s) {
  const double worth = kWorthAsking * fabric_->line_rate().value() / 8 * options_.slot.count();
  std::set<std::pair<std::string, std::string>> ends;
  for (const auto& [id, flow] : table.flows()) {
    if (flow.stale() || now_s - flow.opened_s > kProbing || ends.size() >= kMaxUnlocated) continue;
    double carried = 0;
    for (const auto& [port, lane] : flow.lanes) {
      if (flow.PathOf(port) == nullptr) carried += lane.carried.At(slot);
    }
    if (carried < worth) continue;
    const std::string* to = fabric_->HostOf(flow.identity.peer_address());
    ends.insert({flow.host, to == nullptr ? std::string() : *to});
  }
  std::set<LinkId> links;
  for (const auto& [from, to] : ends) {
    if (MayHangAnywhere(from, now_s) || MayHangAnywhere(to, now_s)) {
      for (size_t i = 0; i < fabric_->topology().links().size(); ++i) links.insert(LinkId(static_cast<int32_t>(i)));
      return links;
    }
    AddWays(fabric_->topology(), fabric_->topology().FindNode(from), fabric_->topology().FindNode(to), &links);
  }
  return links;
}

void LinkMonitor::Pause(const std::set<LinkId>& links) {
  for (const LinkId link : links) {
    if (const auto state = links_.find(link); state != links_.end()) state->second.confirmed_s += options_.slot.count();
  }
}

}  // namespace weft::controller

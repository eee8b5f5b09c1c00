// The link monitor's doubts: which links a flow may load whose path is not known yet.
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <queue>

#include "controller/link_monitor.h"

namespace weft::controller {
namespace {

constexpr double kProbing = 10;        // seconds that a new flow's probes may take before it is judged without
constexpr double kWorthAsking = 0.05;  // of the line rate in a slot: who carries less explains nothing
constexpr size_t kMaxUnlocated = 256;  // pairs of hosts; of more, as a large job's start has, any link may be theirs ...
constexpr double kCrowdEvery = 60;     // ... but not again within so many seconds: who opens flows without end blinds nobody
constexpr size_t kMaxUnknown = 100'000;
constexpr int kFar = std::numeric_limits<int>::max() / 2;

/// Hops between nodes. The neighbours of all nodes are gathered once, and the hops of a node once.
class Ways {
 public:
  explicit Ways(const planner::Topology& topology) : topology_(topology), next_(topology.nodes().size()), before_(topology.nodes().size()) {
    for (const planner::Link& link : topology.links()) {
      next_[link.from.index()].push_back(link.to);
      before_[link.to.index()].push_back(link.from);
    }
  }

  /// Links on a shortest way from one node to the other; where one is not known, the two nearest to the other.
  void Add(std::optional<NodeId> from, std::optional<NodeId> to, std::set<LinkId>* links) {
    const std::vector<int>&ahead = Distances(from, next_, &ahead_), &behind = Distances(to, before_, &behind_);
    const int whole = from && to ? ahead[to->index()] : kFar;
    for (size_t i = 0; i < topology_.links().size(); ++i) {
      const planner::Link& link = topology_.links()[i];
      const int before = ahead[link.from.index()], after = behind[link.to.index()];
      const bool on_way = whole < kFar ? before + 1 + after == whole : std::min(before, after) <= 1;
      if (on_way) links->insert(LinkId(static_cast<int32_t>(i)));
    }
  }

 private:
  using Neighbours = std::vector<std::vector<NodeId>>;
  using Known = std::map<int32_t, std::vector<int>>;   // by node; -1: of none

  /// Hops from `start` to every node along `next`.
  const std::vector<int>& Distances(std::optional<NodeId> start, const Neighbours& next, Known* known) {
    const auto [entry, added] = known->try_emplace(start ? start->value() : -1, topology_.nodes().size(), kFar);
    std::vector<int>& distance = entry->second;
    if (!added || !start) return distance;
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

  const planner::Topology& topology_;
  Neighbours next_, before_;
  Known ahead_, behind_;
};

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
    if (flow.stale() || now_s - flow.opened_s > kProbing || ends.size() > kMaxUnlocated) continue;
    double carried = 0;
    for (const auto& [port, lane] : flow.lanes) {
      if (flow.PathOf(port) == nullptr) carried += lane.carried.At(slot);
    }
    if (carried < worth) continue;
    const std::string* to = fabric_->HostOf(flow.identity.peer_address());
    ends.insert({flow.host, to == nullptr ? std::string() : *to});
  }
  std::set<LinkId> links;
  if (ends.empty()) return links;
  const planner::Topology& topology = fabric_->topology();
  bool anywhere = false;
  if (ends.size() > kMaxUnlocated) {
    if (now_s - crowded_since_s_ > kCrowdEvery) crowded_since_s_ = now_s;
    anywhere = now_s - crowded_since_s_ <= kProbing;
    ends.erase(std::prev(ends.end()));
  }
  for (const auto& [from, to] : ends) anywhere = anywhere || MayHangAnywhere(from, now_s) || MayHangAnywhere(to, now_s);
  if (anywhere) {
    for (size_t i = 0; i < topology.links().size(); ++i) links.insert(LinkId(static_cast<int32_t>(i)));
    return links;
  }
  Ways ways(topology);
  for (const auto& [from, to] : ends) ways.Add(topology.FindNode(from), topology.FindNode(to), &links);
  return links;
}

void LinkMonitor::Pause(const std::set<LinkId>& links) {
  for (const LinkId link : links) {
    const auto state = links_.find(link);
    if (state == links_.end()) continue;
    for (auto& [owner, own] : state->second.estimates) own.confirmed_s += options_.slot.count();
  }
}

}  // namespace weft::controller

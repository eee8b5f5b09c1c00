#include "planner/fabric/fabric_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "common/check.h"

namespace weft::planner::inline fabric {
namespace {

constexpr int32_t kUnreached = -1;

bool IsEndPoint(const Topology& topology, size_t node) {
  const NodeKind kind = topology.nodes()[node].kind;
  return kind == NodeKind::kHost || kind == NodeKind::kGpu;
}

/// Hops to the nearest end point, either way along a link.
std::vector<int32_t> Heights(const Topology& topology) {
  std::vector<std::vector<size_t>> next(topology.nodes().size());
  for (const Link& link : topology.links()) {
    next[link.from.index()].push_back(link.to.index());
    next[link.to.index()].push_back(link.from.index());
  }
  std::vector<int32_t> height(next.size(), kUnreached);
  std::vector<size_t> order;
  for (size_t n = 0; n < next.size(); ++n) {
    if (!IsEndPoint(topology, n)) continue;
    height[n] = 0;
    order.push_back(n);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const size_t n : next[order[i]]) {
      if (height[n] != kUnreached) continue;
      height[n] = height[order[i]] + 1;
      order.push_back(n);
    }
  }
  return height;
}

/// Sets of nodes that grow together.
class Parts {
 public:
  explicit Parts(size_t nodes) : parent_(nodes) { std::iota(parent_.begin(), parent_.end(), 0); }
  int32_t Root(size_t n) {
    while (parent_[n] != static_cast<int32_t>(n)) {
      parent_[n] = parent_[static_cast<size_t>(parent_[n])];
      n = static_cast<size_t>(parent_[n]);
    }
    return static_cast<int32_t>(n);
  }
  void Join(size_t a, size_t b) { parent_[static_cast<size_t>(Root(b))] = Root(a); }

 private:
  std::vector<int32_t> parent_;
};

/// "h3", or "below leaf1 and 3 more" by the highest nodes of a part.
std::string PartName(const Topology& topology, const std::vector<size_t>& nodes, const std::vector<int32_t>& height) {
  int32_t top = 0;
  for (const size_t n : nodes) top = std::max(top, height[n]);
  size_t first = topology.nodes().size(), count = 0;
  for (const size_t n : nodes) {
    if (height[n] != top) continue;
    first = std::min(first, n);
    ++count;
  }
  const std::string& name = topology.nodes()[first].name;
  if (top == 0) return name;
  return count == 1 ? fmt::format("below {}", name) : fmt::format("below {} and {} more", name, count - 1);
}

std::vector<CutLoad> Collect(const std::map<size_t, double>& bytes) {
  std::vector<CutLoad> loads;
  for (const auto& [cut, amount] : bytes) {
    if (amount > 0) loads.push_back({cut, amount});
  }
  return loads;
}

/// A connected part of the nodes up to some height.
struct Part {
  std::vector<size_t> nodes;
  std::vector<size_t> end_points;
  std::vector<LinkId> out, in;
};

BitsPerSecond SumOf(std::span<const LinkId> links, const auto& capacity) {
  BitsPerSecond sum(0);
  for (const LinkId link : links) sum = sum + capacity(link);
  return sum;
}

/// Parts by their root. `part` holds the root of each node's part.
std::map<int32_t, Part> Gather(const Topology& topology, const std::vector<int32_t>& part) {
  std::map<int32_t, Part> found;
  for (size_t n = 0; n < part.size(); ++n) {
    if (part[n] == kUnreached) continue;
    Part& p = found[part[n]];
    p.nodes.push_back(n);
    if (IsEndPoint(topology, n)) p.end_points.push_back(n);
  }
  for (size_t l = 0; l < topology.links().size(); ++l) {
    const Link& link = topology.links()[l];
    const int32_t from = part[link.from.index()], to = part[link.to.index()];
    if (from == to) continue;
    if (from != kUnreached) found[from].out.emplace_back(static_cast<int32_t>(l));
    if (to != kUnreached) found[to].in.emplace_back(static_cast<int32_t>(l));
  }
  return found;
}

}  // namespace

FabricCuts::FabricCuts(const Topology& topology) : inside_(topology.nodes().size()), around_(topology.nodes().size(), -1) {
  const std::vector<int32_t> height = Heights(topology);
  const auto all = static_cast<int64_t>(std::count(height.begin(), height.end(), 0));
  const int32_t highest = height.empty() ? -1 : *std::max_element(height.begin(), height.end());
  Parts parts(height.size());
  std::vector<int32_t> part(height.size(), kUnreached);
  constexpr int32_t kAlone = -1;  // end points by themselves first: GPUs of a mesh, hosts with a cable between them
  for (int32_t h = kAlone; h <= highest; ++h) {
    for (const Link& link : topology.links()) {
      const int32_t from = height[link.from.index()], to = height[link.to.index()];
      if (from != kUnreached && std::max(from, to) == h) parts.Join(link.from.index(), link.to.index());
    }
    for (size_t n = 0; n < part.size(); ++n) {
      part[n] = height[n] != kUnreached && height[n] <= std::max(h, 0) ? parts.Root(n) : kUnreached;
    }
    const auto capacity = [&](LinkId link) { return topology.link(link).capacity; };
    for (auto& [root, p] : Gather(topology, part)) {
      if (p.end_points.empty() || static_cast<int64_t>(p.end_points.size()) == all) continue;
      for (const size_t n : p.nodes) inside_[n] = true;
      FabricCut cut{PartName(topology, p.nodes, height), std::max(h, 0), static_cast<int64_t>(p.end_points.size()), SumOf(p.out, capacity),
                    SumOf(p.in, capacity), -1};
      Add(std::move(cut), {std::move(p.out), std::move(p.in)}, p.end_points);
    }
  }
}

int32_t FabricCuts::Outermost(size_t node) const {
  int32_t c = around_[node];
  while (c >= 0 && cuts_[static_cast<size_t>(c)].parent >= 0) c = cuts_[static_cast<size_t>(c)].parent;
  return c;
}

/// A cut around these end points; where there is one already it becomes as tight as `cut`.
void FabricCuts::Add(FabricCut cut, Border border, std::span<const size_t> end_points) {
  const int32_t outer = Outermost(end_points.front());
  if (outer >= 0 && cuts_[static_cast<size_t>(outer)].end_points == cut.end_points) {
    borders_[static_cast<size_t>(outer)].push_back(std::move(border));
    FabricCut& there = cuts_[static_cast<size_t>(outer)];
    if (std::min(cut.out, cut.in) < std::min(there.out, there.in)) {
      there.name = std::move(cut.name);
      there.height = cut.height;
    }
    there.out = std::min(there.out, cut.out);
    there.in = std::min(there.in, cut.in);
    return;
  }
  const auto index = static_cast<int32_t>(cuts_.size());
  cuts_.push_back(std::move(cut));
  borders_.push_back({std::move(border)});
  for (const size_t n : end_points) {
    const int32_t inner = Outermost(n);
    if (inner < 0) around_[n] = index;
    else if (inner != index) cuts_[static_cast<size_t>(inner)].parent = index;
  }
}

std::vector<int32_t> FabricCuts::Around(NodeId end_point) const {
  WEFT_CHECK(end_point.index() < around_.size(), "the cuts around an unknown node");
  std::vector<int32_t> found;
  for (int32_t c = around_[end_point.index()]; c >= 0; c = cuts_[static_cast<size_t>(c)].parent) found.push_back(c);
  return found;
}

std::vector<BitsPerSecond> FabricCuts::Capacities() const {
  std::vector<BitsPerSecond> capacity;
  for (const FabricCut& cut : cuts_) {
    capacity.push_back(cut.out);
    capacity.push_back(cut.in);
  }
  return capacity;
}

std::vector<BitsPerSecond> FabricCuts::Capacities(std::span<const BitsPerSecond> links) const {
  const auto given = [&](LinkId link) { return links[link.index()]; };
  std::vector<BitsPerSecond> capacity;
  for (const std::vector<Border>& borders : borders_) {
    BitsPerSecond out(std::numeric_limits<double>::infinity()), in = out;
    for (const Border& border : borders) {
      out = std::min(out, SumOf(border.out, given));
      in = std::min(in, SumOf(border.in, given));
    }
    capacity.push_back(out);
    capacity.push_back(in);
  }
  return capacity;
}

std::vector<CutLoad> FabricCuts::Loads(std::span<const CutTransfer> transfers) const {
  std::map<size_t, double> bytes;
  for (const CutTransfer& transfer : transfers) {
    WEFT_CHECK(transfer.from.index() < around_.size() && transfer.to.index() < around_.size(),
               "a transfer of an unknown end point");
    // Cuts of rising size: the smaller of the two goes up until both ways meet.
    int32_t from = around_[transfer.from.index()], to = around_[transfer.to.index()];
    while (from != to) {
      if (to < 0 || (from >= 0 && Size(from) <= Size(to))) {
        bytes[2 * static_cast<size_t>(from)] += transfer.bytes;
        from = cuts_[static_cast<size_t>(from)].parent;
      } else {
        bytes[2 * static_cast<size_t>(to) + 1] += transfer.bytes;
        to = cuts_[static_cast<size_t>(to)].parent;
      }
    }
  }
  return Collect(bytes);
}

// n ranks, s of them inside. All-gather of M: the outside must have the s M/n from inside, once at least, and the
// inside the (n-s) M/n from outside. Reduce-scatter is its mirror: a sum of the inside's parts for each chunk that
// is kept outside must leave. All-reduce: M of sums each way. All-to-all: each of s ranks has M/n for each of the
// n-s others.
std::vector<CutLoad> FabricCuts::Loads(GroupExchange exchange, double bytes, std::span<const NodeId> members) const {
  std::map<int32_t, double> inside;
  for (const NodeId member : members) {
    WEFT_CHECK(member.index() < around_.size(), "a member that is an unknown end point");
    for (int32_t c = around_[member.index()]; c >= 0; c = cuts_[static_cast<size_t>(c)].parent) ++inside[c];
  }
  const auto n = static_cast<double>(members.size());
  std::map<size_t, double> crossing;
  for (const auto& [cut, s] : inside) {
    if (s == n) continue;
    const size_t index = 2 * static_cast<size_t>(cut);
    switch (exchange) {
      case GroupExchange::kAllGather:
        crossing[index] = s / n * bytes;
        crossing[index + 1] = (n - s) / n * bytes;
        break;
      case GroupExchange::kReduceScatter:
        crossing[index] = (n - s) / n * bytes;
        crossing[index + 1] = s / n * bytes;
        break;
      case GroupExchange::kAllReduce: crossing[index] = crossing[index + 1] = bytes; break;
      case GroupExchange::kAllToAll: crossing[index] = crossing[index + 1] = s * (n - s) / n * bytes; break;
    }
  }
  return Collect(crossing);
}

}  // namespace weft::planner::fabric

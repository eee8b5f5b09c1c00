#include "planner/collectives/tree_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "planner/collectives/max_flow.h"

namespace weft::planner::inline collectives {
namespace {

Status CheckGraph(const PackingGraph& graph) {
  if (graph.ranks < 1 || graph.nodes < graph.ranks) {
    return Fail(Code::kInvalidArgument, fmt::format("tree packing: {} ranks among {} nodes, expected at least 1",
                                                    graph.ranks, graph.nodes));
  }
  for (const auto& cable : graph.cables) {
    const bool known = cable.a >= 0 && cable.a < graph.nodes && cable.b >= 0 && cable.b < graph.nodes;
    if (!known || cable.a == cable.b || cable.capacity < 1 || cable.capacity > int64_t{1} << 30) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("tree packing: cable {}-{} of capacity {}, expected two nodes below {} and 1 to 2^30",
                              cable.a, cable.b, cable.capacity, graph.nodes));
    }
  }
  return Ok();
}

/// Capacities times `scale`, and a source behind the last node that feeds `feed` to every rank.
FlowMatrix WithSource(const PackingGraph& graph, int64_t scale, int64_t feed) {
  FlowMatrix flow(graph.nodes + 1);
  for (const auto& cable : graph.cables) {
    flow.at(cable.a, cable.b) += cable.capacity * scale;
    flow.at(cable.b, cable.a) += cable.capacity * scale;
  }
  for (int32_t rank = 0; rank < graph.ranks; ++rank) flow.at(graph.nodes, rank) = feed;
  return flow;
}

struct Ratio {
  int64_t numerator, denominator;
};

Ratio Reduced(int64_t numerator, int64_t denominator) {
  const int64_t divisor = std::max<int64_t>(1, std::gcd(numerator, denominator));
  return {numerator / divisor, denominator / divisor};
}

/// B(S) / N(S) of the nodes on the source's side.
Ratio CutRatio(const PackingGraph& graph, const std::vector<bool>& inside) {
  int64_t leaving = 0, ranks = 0;
  for (const auto& cable : graph.cables) {
    if (inside[static_cast<size_t>(cable.a)] != inside[static_cast<size_t>(cable.b)]) leaving += cable.capacity;
  }
  for (int32_t rank = 0; rank < graph.ranks; ++rank) ranks += inside[static_cast<size_t>(rank)] ? 1 : 0;
  return Reduced(leaving, ranks);
}

/// The bottleneck ratio x, found from above: every cut that forbids the present value is a smaller one.
Result<Ratio> Bottleneck(const PackingGraph& graph) {
  std::vector<bool> all_but_last(static_cast<size_t>(graph.nodes), true);
  all_but_last[static_cast<size_t>(graph.ranks - 1)] = false;
  Ratio best = CutRatio(graph, all_but_last);
  for (bool lower = true; lower;) {
    lower = false;
    if (best.numerator == 0) {
      return Fail(Code::kInvalidArgument, "tree packing: some ranks cannot reach the others, expected a connected network");
    }
    const FlowMatrix flow = WithSource(graph, best.denominator, best.numerator);
    for (int32_t rank = 0; rank < graph.ranks && !lower; ++rank) {
      const FlowCut cut = MaxFlow(flow, graph.nodes, rank, best.numerator * graph.ranks);
      if (cut.source_side.empty()) continue;
      best = CutRatio(graph, cut.source_side);
      lower = true;
    }
  }
  return best;
}

/// Capacity between two nodes along one way.
struct Way {
  int32_t from, to;
  int64_t capacity;
  std::vector<int32_t> nodes;
};

/// Takes the switches out of the network, one pairing of an incoming with an outgoing way at a time.
class Splitter {
 public:
  Splitter(const PackingGraph& graph, int64_t scale, int64_t feed)
      : graph_(graph), need_(feed * graph.ranks), flow_(WithSource(graph, scale, feed)) {
    for (const auto& cable : graph.cables) {
      ways_.push_back({cable.a, cable.b, cable.capacity * scale, {cable.a, cable.b}});
      ways_.push_back({cable.b, cable.a, cable.capacity * scale, {cable.b, cable.a}});
    }
  }

  Status Run() {
    for (int32_t node = graph_.ranks; node < graph_.nodes; ++node) {
      for (size_t in = 0; in < ways_.size(); ++in) {
        if (ways_[in].to != node) continue;
        PairUp(in, node, false);
        if (ways_[in].capacity > 0) PairUp(in, node, true);
        if (ways_[in].capacity > 0) return Fail(Code::kInternal, fmt::format("tree packing: switch {} does not split", node));
      }
    }
    return Ok();
  }

  /// What is left between ranks.
  std::vector<Way> Ways() const {
    std::vector<Way> left;
    for (const Way& way : ways_) {
      if (way.capacity > 0 && way.from < graph_.ranks && way.to < graph_.ranks) left.push_back(way);
    }
    return left;
  }

 private:
  /// `back`: with ways back to where the capacity came from, which is capacity that nobody needs.
  void PairUp(size_t in, int32_t node, bool back) {
    for (size_t out = 0; out < ways_.size() && ways_[in].capacity > 0; ++out) {
      if (ways_[out].from != node || ways_[out].capacity == 0 || (ways_[out].to == ways_[in].from) != back) continue;
      const int64_t most = std::min(ways_[in].capacity, ways_[out].capacity);
      const int64_t amount = LargestSplit(ways_[in].from, node, ways_[out].to, most);
      if (amount > 0) Split(in, out, amount);
    }
  }

  int64_t LargestSplit(int32_t u, int32_t node, int32_t t, int64_t most) {
    if (Keeps(u, node, t, most)) return most;
    int64_t fits = 0, fails = most;
    while (fails - fits > 1) {
      const int64_t middle = fits + (fails - fits) / 2;
      (Keeps(u, node, t, middle) ? fits : fails) = middle;
    }
    return fits;
  }

  void Move(int32_t u, int32_t node, int32_t t, int64_t amount) {
    flow_.at(u, node) -= amount;
    flow_.at(node, t) -= amount;
    if (u != t) flow_.at(u, t) += amount;
  }

  /// Whether every rank can still draw what it must.
  bool Keeps(int32_t u, int32_t node, int32_t t, int64_t amount) {
    Move(u, node, t, amount);
    bool keeps = true;
    for (int32_t rank = 0; rank < graph_.ranks && keeps; ++rank) {
      keeps = MaxFlow(flow_, graph_.nodes, rank, need_).value >= need_;
    }
    Move(u, node, t, -amount);
    return keeps;
  }

  void Split(size_t in, size_t out, int64_t amount) {
    Move(ways_[in].from, ways_[out].from, ways_[out].to, amount);
    ways_[in].capacity -= amount;
    ways_[out].capacity -= amount;
    if (ways_[in].from == ways_[out].to) return;
    Way joined{ways_[in].from, ways_[out].to, amount, ways_[in].nodes};
    joined.nodes.insert(joined.nodes.end(), ways_[out].nodes.begin() + 1, ways_[out].nodes.end());
    ways_.push_back(std::move(joined));
  }

  const PackingGraph& graph_;
  const int64_t need_;
  FlowMatrix flow_;
  std::vector<Way> ways_;
};

/// Grows trees on ranks that are connected directly.
class Packer {
 public:
  Packer(int32_t ranks, const std::vector<Way>& ways, int64_t trees_per_root) : ranks_(ranks), left_(ranks) {
    for (const Way& way : ways) left_.at(way.from, way.to) += way.capacity;
    for (int32_t root = 0; root < ranks; ++root) {
      trees_.push_back({.tree = {.root = root, .weight = trees_per_root, .edges = {}}, .members = {root}});
    }
  }

  Result<std::vector<PackedTree>> Run() {
    for (size_t t = 0; t < trees_.size(); ++t) {
      while (static_cast<int32_t>(trees_[t].members.size()) < ranks_) {
        if (!Grow(t)) return Fail(Code::kInternal, fmt::format("tree packing: a tree of rank {} cannot grow", trees_[t].tree.root));
      }
    }
    std::vector<PackedTree> packed;
    for (Growing& growing : trees_) packed.push_back(std::move(growing.tree));
    return packed;
  }

 private:
  struct Growing {
    PackedTree tree;
    std::vector<int32_t> members;  // in order of joining
    bool Has(int32_t rank) const { return std::find(members.begin(), members.end(), rank) != members.end(); }
  };

  /// Adds one edge to tree `t`, from the member that joined first, so that trees stay flat. The part of its weight for which
  /// there is no room becomes a tree of its own.
  bool Grow(size_t t) {
    for (size_t m = 0; m < trees_[t].members.size(); ++m) {
      const int32_t x = trees_[t].members[m];
      for (int32_t step = 1; step < ranks_; ++step) {
        const int32_t y = (x + step) % ranks_;
        if (left_.at(x, y) == 0 || trees_[t].Has(y)) continue;
        const int64_t room = Room(t, x, y);
        if (room <= 0) continue;
        if (room < trees_[t].tree.weight) {
          Growing rest = trees_[t];
          rest.tree.weight -= room;
          trees_[t].tree.weight = room;
          trees_.push_back(std::move(rest));
        }
        left_.at(x, y) -= trees_[t].tree.weight;
        trees_[t].tree.edges.emplace_back(x, y);
        trees_[t].members.push_back(y);
        return true;
      }
    }
    return false;
  }

  /// How much of x -> y tree `t` may take so that the others can still be completed: every set that the edge enters must keep
  /// as much capacity into it as there are incomplete trees outside it.
  int64_t Room(size_t t, int32_t x, int32_t y) const {
    std::vector<size_t> others;
    for (size_t i = 0; i < trees_.size(); ++i) {
      if (i != t && static_cast<int32_t>(trees_[i].members.size()) < ranks_) others.push_back(i);
    }
    FlowMatrix flow(ranks_ + static_cast<int32_t>(others.size()));
    for (int32_t a = 0; a < ranks_; ++a) {
      for (int32_t b = 0; b < ranks_; ++b) flow.at(a, b) = left_.at(a, b);
    }
    int64_t demand = 0;
    for (size_t i = 0; i < others.size(); ++i) {
      const int32_t node = ranks_ + static_cast<int32_t>(i);
      const Growing& other = trees_[others[i]];
      flow.at(x, node) = other.tree.weight;
      for (const int32_t member : other.members) flow.at(node, member) = FlowMatrix::kUnlimited;
      demand += other.tree.weight;
    }
    const int64_t most = std::min(left_.at(x, y), trees_[t].tree.weight);
    return std::min(most, MaxFlow(flow, x, y, demand + most).value - demand);
  }

  int32_t ranks_;
  FlowMatrix left_;
  std::vector<Growing> trees_;
};

}  // namespace

Result<TreePacking> PackTrees(const PackingGraph& graph) {
  WEFT_RETURN_IF_ERROR(CheckGraph(graph));
  TreePacking packing{.ranks = graph.ranks, .trees_per_root = 1};
  if (graph.ranks == 1) {
    packing.trees.push_back({.root = 0, .weight = 1, .edges = {}});
    return packing;
  }
  WEFT_ASSIGN_OR_RETURN(const Ratio x, Bottleneck(graph));
  packing.trees_per_root = x.numerator;
  packing.scale = x.denominator;
  Splitter splitter(graph, packing.scale, packing.trees_per_root);
  WEFT_RETURN_IF_ERROR(splitter.Run());
  const std::vector<Way> ways = splitter.Ways();
  for (const Way& way : ways) packing.routes.push_back({way.nodes, way.capacity});
  WEFT_ASSIGN_OR_RETURN(packing.trees, Packer(graph.ranks, ways, packing.trees_per_root).Run());
  return packing;
}

}  // namespace weft::planner::collectives

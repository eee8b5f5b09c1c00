// The best that any all-gather can do on a given network, and spanning trees that reach it: for every rank a set of trees
// rooted at it, together filling the bottleneck cut of the network and overfilling no link. Switches forward, they do not
// copy, so a tree has only ranks as nodes.
//
// With B(S) what can leave a set S of nodes and N(S) the ranks in it, no rank can send to all others faster than
// x = min over S that leaves a rank out of B(S) / N(S). The trees reach x exactly:
//   1. x by max-flow: from a source that feeds x to every rank, every rank must be able to draw N x. A cut that forbids it
//      names a smaller ratio, which is tried next.
//   2. Switches are split off: capacity u -> switch -> t becomes capacity u -> t, as much as leaves step 1 true.
//   3. Trees grow edge by edge, each as thick as leaves room for all other trees to be completed.
//
// Source: Zhao et al., ForestColl, arXiv:2402.06787, sections 4 and 5; splitting: Bang-Jensen, Frank and Jackson 1995;
// packing: Bérczi and Frank 2010.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::planner::inline collectives {

/// Cables between nodes 0 to nodes - 1; the first `ranks` of them are ranks, the others switches. Capacities are whole
/// numbers of any unit, the same in both directions.
struct PackingGraph {
  struct Cable {
    int32_t a = 0, b = 0;
    int64_t capacity = 0;
  };
  int32_t ranks = 0;
  int32_t nodes = 0;
  std::vector<Cable> cables;
};

/// `weight` equal trees from `root`; edges run from a rank that is in the tree already to one that is not.
struct PackedTree {
  int32_t root = 0;
  int64_t weight = 0;
  std::vector<std::pair<int32_t, int32_t>> edges;
};

/// A way from rank to rank over switches only, with what it carries in units of capacity / scale.
struct PackedRoute {
  std::vector<int32_t> nodes;
  int64_t capacity = 0;
};

struct TreePacking {
  int32_t ranks = 0;
  int64_t trees_per_root = 0;     ///< the weights of one root's trees add up to it
  int64_t scale = 1;              ///< trees of weight 1 carry 1 / scale of the graph's unit each
  std::vector<PackedTree> trees;
  std::vector<PackedRoute> routes;

  /// x: what every root sends to all others, in the graph's unit.
  double rate_per_root() const { return static_cast<double>(trees_per_root) / static_cast<double>(scale); }
};

/// Errors: kInvalidArgument for nodes out of range, capacities < 1, or ranks that are not connected.
/// Complexity: polynomial, without regard to capacities; about 0.1 s for 16 ranks and 4 switches.
[[nodiscard]] Result<TreePacking> PackTrees(const PackingGraph& graph);

}  // namespace weft::planner::collectives

// Shortest paths for many pairs of one topology: what Topology::ShortestPaths() says, for hundreds of thousands of
// pairs per second. End points with a single cable have their switch's paths with a link before and one behind, and
// paths between two switches are found once.
//
//   PathCatalog catalog(topology);
//   for (...) paths = catalog.Paths(from, to);
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "planner/fabric/topology.h"

namespace weft::planner::inline fabric {

class PathCatalog {
 public:
  using Path = std::vector<LinkId>;

  /// `topology` must outlive the catalogue and stay as it is but for capacities and health; at most `limit` paths
  /// per pair.
  explicit PathCatalog(const Topology& topology, size_t limit = 64);

  /// topology.ShortestPaths(from, to, limit). Complexity: O(paths · hops) where both ends have one cable and their
  /// switches were asked for before; a search among the switches once per switch of a destination; else as
  /// ShortestPaths.
  std::vector<Path> Paths(NodeId from, NodeId to);

 private:
  /// A link between two nodes that forward, by their numbers among those.
  struct Hop {
    LinkId link;
    int32_t node = 0;
    int32_t length = 0;
  };

  const std::vector<Path>& Between(int32_t from, int32_t to);
  const std::vector<int32_t>& LengthsTo(int32_t to);

  const Topology& topology_;
  size_t limit_;
  std::vector<int32_t> number_;                 // per node: among those that forward; -1: it does not
  std::vector<LinkId> only_out_, only_in_;      // per node: its one link in that direction; invalid: none or several
  std::vector<std::vector<Hop>> out_, in_;      // per forwarding node
  std::unordered_map<int32_t, std::vector<int32_t>> lengths_;
  std::unordered_map<uint64_t, std::vector<Path>> between_;
};

}  // namespace weft::planner::fabric

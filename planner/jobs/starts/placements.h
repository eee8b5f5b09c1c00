// On which of the free hosts a job can be put: few sets that differ in what they ask of the fabric, the one that a scheduler would
// choose first.
//
//   const PlaceMap map(topology, senders);
//   map.Sets(free, 4, 3)[0]    // four free places, in order of rank
//
// Places that the same switches serve (a leaf, or the leaves of all rails of a group) lie together; so do leaves under the same
// aggregation switches. Leaves out: what the links carry, which is for those who choose among the sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "planner/fabric/topology.h"

namespace weft::planner::inline jobs {

/// Sets of places that one job is tried on, at most.
inline constexpr size_t kMostPlacements = 4;

class PlaceMap {
 public:
  /// `senders[p]`: GPUs of place p, or the host itself.
  PlaceMap(const Topology& topology, std::span<const std::vector<NodeId>> senders);

  size_t size() const { return leaf_.size(); }
  /// The number of the switches that serve place p; places without any are together.
  size_t leaf(size_t p) const { return leaf_[p]; }

  /// At most `most` different sets of `hosts` free places, each in order of rank: below as few leaves as possible where the free
  /// places fit best, then where most places are free, in equal parts, one below each leaf in turn. Empty where too few are free.
  /// Complexity: O(places log places).
  std::vector<std::vector<size_t>> Sets(const std::vector<bool>& free, int32_t hosts, size_t most = kMostPlacements) const;

 private:
  using Leaves = std::vector<std::vector<size_t>>;   ///< free places of each leaf that has any, by leaf

  std::vector<size_t> Packed(const Leaves& leaves, size_t hosts, bool best_fit) const;
  static std::vector<size_t> InEqualParts(const Leaves& leaves, size_t hosts);
  static std::vector<size_t> InTurn(const Leaves& leaves, size_t hosts);

  std::vector<size_t> leaf_;                         // per place
  std::vector<size_t> pod_;                          // per leaf
};

}  // namespace weft::planner::jobs

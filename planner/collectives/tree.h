// The double binary tree: two trees over all ranks, each carrying half of the data, in which a rank is an inner node of at
// most one of them. So every rank sends and receives the whole data once up and once down: 2 S per direction, with a depth
// of log2 n instead of the ring's n.
//
// Source: Sanders, Speck and Träff 2009, Two-tree algorithms for full bandwidth broadcast, reduction and scan.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/result.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

/// A tree over ranks: the parent of each (-1 for the root), and the ranks from the root downwards, parents first.
struct RankTree {
  std::vector<int32_t> parent;
  std::vector<int32_t> order;
};

/// The two trees. Requires: ranks ≥ 1.
std::array<RankTree, 2> DoubleBinaryTree(int32_t ranks);

/// All-reduce (up and down both trees) or broadcast (from `root` into the roots of both trees, then down).
/// The executor's slices are the pipeline. Errors: kInvalidArgument for another collective, ranks < 1 or a root out of
/// range.
[[nodiscard]] Result<Schedule> TreeSchedule(Collective collective, int32_t ranks, RankId root = RankId(0));

}  // namespace weft::planner::collectives

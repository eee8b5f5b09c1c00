// Reduce-scatter and all-gather inside groups of ranks, and the algorithms that are made of nothing else: what a group of
// p members does is one of three patterns, and a collective is a list of levels of groups. D is what each member holds of
// the group's data, a and b the latency and the time per byte of its links:
//
//   ring      (p-1) (a + D/p b)            each member only talks to its neighbours
//   halving   ceil(log2 p) a + (p-1)/p D b  pairs at halving distance; a circulant where p is no power of two
//   direct    a + (p-1)/p D b               everybody with everybody at once: for switches
//
// The all-gather is the reduce-scatter backwards, and costs the same. An all-reduce over levels 1 to L is the
// reduce-scatters of levels 1 to L, then the all-gathers of levels L to 1; every level sees only its share of the data.
//
// Source: Thakur, Rabenseifner and Gropp 2005 (halving, ring); Träff, arXiv:2410.14234 (circulants, any p);
// Cho et al., BlueConnect, MLSys 2019, and Mikami et al., arXiv:1811.05233 (levels).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

enum class GroupPattern { kRing, kHalving, kDirect };

/// Position `from` sends its partial sum of chunk `chunk` to position `to`, which adds it to its own. Rings and direct
/// exchanges are one round: what waits for what, the chunks say. In a halving each round has another partner.
struct GroupTransfer {
  int32_t round = 0, from = 0, to = 0, chunk = 0;
};

/// A reduce-scatter among `members` positions, after which position i has chunk i whole; in rounds, round by round.
/// Requires: members ≥ 1. Complexity: O(members²), as many transfers as there must be.
std::vector<GroupTransfer> ReduceScatterTransfers(GroupPattern pattern, int32_t members);

/// One group: `chunks[i]` are the chunks of the full buffer that stand for the pattern's chunk i.
struct ExchangeGroup {
  std::vector<int32_t> members;               ///< ranks, by position
  std::vector<std::vector<int32_t>> chunks;   ///< by position
};

/// Groups that work at the same time, in one pattern.
struct ExchangeLevel {
  GroupPattern pattern = GroupPattern::kRing;
  std::vector<ExchangeGroup> groups;
};

/// A collective made of levels. Each lane is a list of levels for its own part of the chunks; lanes run at the same time.
struct LevelPlan {
  Collective collective = Collective::kAllReduce;
  std::string algorithm;
  int32_t ranks = 0;
  int32_t chunks = 0;
  std::vector<std::vector<ExchangeLevel>> lanes;
};

/// Requires: an all-reduce, a reduce-scatter or an all-gather; for the latter two, chunk c ends at (begins from) rank
/// c · ranks / chunks.
Schedule BuildLevels(const LevelPlan& plan);

/// Plans for BuildLevels. One level: all ranks in one pattern.
LevelPlan FlatLevels(Collective collective, GroupPattern pattern, int32_t ranks);

/// Groups of `group` consecutive ranks (the last one may be smaller): inside a group in `inner` pattern, then across the
/// groups, ranks of equal share with each other, in `outer` pattern. Errors: kInvalidArgument when group < 1, or when an
/// all-gather or reduce-scatter is asked of unequal groups.
[[nodiscard]] Result<LevelPlan> HierarchicalLevels(Collective collective, int32_t ranks, int32_t group,
                                                   GroupPattern inner, GroupPattern outer);

/// Rings along both dimensions of a torus, rank = y · width + x. Half of the data goes along x first, the other half along y
/// first, so that the links of both dimensions are busy all the time. Errors: kInvalidArgument when `width` does not divide
/// `ranks`.
[[nodiscard]] Result<LevelPlan> TorusLevels(Collective collective, int32_t ranks, int32_t width);

}  // namespace weft::planner::collectives

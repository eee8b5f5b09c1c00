// Practical path choices: each flow's share in whole units (one unit: the flow unsplit), improved by moving units while
// the utilisations of the links concerned, worst first, get lexically smaller. The order is strict, so the search ends.
#pragma once

#include <cstdint>
#include <stop_token>
#include <utility>
#include <vector>

#include "planner/flows/instance.h"

namespace weft::planner::inline flows {

/// Units that a split flow is counted in; the coarsest that serves well is taken.
inline constexpr int32_t kSplitUnits[] = {16, 12, 24, 64};

/// Counts evaluations; what is left after the search tells whether it was cut short.
struct Budget {
  int64_t left = 0;
  std::stop_token stop = {};   ///< asked for: nothing is left
  bool Spend() {
    if (stop.stop_requested()) left = 0;
    return left-- > 0;
  }
  bool exhausted() const { return left < 0; }
};

class LocalSearch {
 public:
  /// `units` per flow, of which a move takes `grain` at least; `start[flow][path]` sum to it, or to 0 for a flow that
  /// Place() will place.
  LocalSearch(const Instance& instance, int32_t units, int32_t grain, std::vector<std::vector<int32_t>> start);

  /// Places flow f, all its units, on the usable path that ends up with the least loaded worst links; ties go to the first.
  void Place(size_t f);
  /// Moves units of the flows in `movable` until no move, and no pair of moves off the worst link, improves.
  void Descend(const std::vector<bool>& movable, Budget* budget);

  /// Takes flows off paths as long as no link concerned rises above `slack` times the worst of them before: fewer lanes.
  void Sparsify(double slack, Budget* budget);

  Shares AsShares() const;

 private:
  struct Move {
    size_t flow, from, to;
    int32_t units;
  };

  void Apply(const Move& move);
  void AddLoad(size_t f, size_t path, int32_t units);
  std::vector<double> Use(const Move* moves, size_t count) const;
  bool Keep(const Move* moves, size_t count);
  bool ImproveFlow(size_t f, Budget* budget);
  bool ImproveByPairs(const std::vector<bool>& movable, Budget* budget);
  using Users = std::vector<std::vector<size_t>>;
  Users UsersOf(const std::vector<bool>& movable) const;
  bool TryPairs(const Move& first, const Users& users, Budget* budget);
  double UseAt(int32_t link, double load) const;
  void AddChange(const PathLinks& path, double load);
  bool ChangeImproves();

  const Instance& instance_;
  const int32_t units_;
  const int32_t grain_;
  std::vector<std::vector<int32_t>> shares_;
  std::vector<double> load_;
  std::vector<std::pair<int32_t, double>> change_;   // load per link that a trial adds
  std::vector<double> before_, after_;               // its links' utilisations
};

/// Whole units in the proportion of each flow's shares, by largest remainder.
std::vector<std::vector<int32_t>> RoundShares(const Shares& shares, int32_t units);

}  // namespace weft::planner::flows

// Progressive filling over plain arrays: the work of MaxMinRates(). Internal to planner/network.
//
// A row is one capacity; an entry crosses rows and grows with its weight until a row or its own cap holds it. The
// level of an entry is its rate per weight; the level of a row is the common level of the entries that it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft::planner::inline network {

/// Level of a row that holds nobody, and cap of an entry without one.
inline constexpr double kNoLevel = std::numeric_limits<double>::infinity();
/// Less than this share of a row's capacity counts as nothing: it is the rounding of the sums that are taken from it.
inline constexpr double kDust = 1e-11;
/// Levels that are closer than this, relative, are one level.
inline constexpr double kLevelTie = 1e-12;
/// What holds an entry when no row does.
inline constexpr int32_t kHeldByCap = -1;

/// Entry e crosses rows[begin[e] .. begin[e + 1]), which are distinct.
struct FillingProblem {
  std::vector<double> capacity;      ///< per row: what is left for these entries, ≥ 0
  std::vector<uint32_t> begin = {0};
  std::vector<int32_t> rows;
  std::vector<double> weight;        ///< per entry, > 0
  std::vector<double> cap;           ///< per entry: level that it never passes; kNoLevel: none

  size_t entries() const { return weight.size(); }
};

struct FillingSolution {
  std::vector<double> level;        ///< per entry; of one without rows: its cap
  std::vector<int32_t> held_by;     ///< per entry: the row, or kHeldByCap
  std::vector<double> row_level;    ///< per row; kNoLevel if it holds nobody
};

/// Complexity: O((Σ rows of entries + rows) log rows).
FillingSolution Fill(const FillingProblem& problem);

}  // namespace weft::planner::network

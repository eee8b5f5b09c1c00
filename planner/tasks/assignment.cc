#include "planner/tasks/assignment.h"

#include <cstddef>
#include <limits>

namespace weft::planner::inline tasks {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 2;

/// Rows one by one; each takes the path of least cost from itself to a column that is free, along which others move over. Costs
/// are gains with the sign turned, less the prices of row and column, never negative for what is not chosen.
class Assignment {
 public:
  explicit Assignment(const std::vector<std::vector<int64_t>>& gain)
      : gain_(gain),
        rows_(gain.size()),
        columns_(gain.empty() ? 0 : gain[0].size()),
        row_price_(rows_, 0),
        column_price_(columns_, 0),
        row_of_(columns_, -1) {}

  std::vector<int32_t> Solve() {
    for (size_t row = 0; row < rows_; ++row) Add(row);
    std::vector<int32_t> column_of(rows_, -1);
    for (size_t column = 0; column < columns_; ++column) {
      if (row_of_[column] >= 0) column_of[static_cast<size_t>(row_of_[column])] = static_cast<int32_t>(column);
    }
    return column_of;
  }

 private:
  int64_t Cost(size_t row, size_t column) const { return -gain_[row][column] - row_price_[row] - column_price_[column]; }

  void Add(size_t start) {
    std::vector<int64_t> distance(columns_, kFar);
    std::vector<int32_t> from(columns_, -1);  // the column before it on the path; -1: the row itself
    std::vector<bool> done(columns_, false);
    size_t row = start;
    int64_t so_far = 0;
    int32_t last = -1;
    while (true) {
      int32_t next = -1;
      for (size_t c = 0; c < columns_; ++c) {
        if (done[c]) continue;
        if (const int64_t there = so_far + Cost(row, c); there < distance[c]) {
          distance[c] = there;
          from[c] = last;
        }
        if (next < 0 || distance[c] < distance[static_cast<size_t>(next)]) next = static_cast<int32_t>(c);
      }
      last = next;
      const auto at = static_cast<size_t>(next);
      so_far = distance[at];
      if (row_of_[at] < 0) break;
      done[at] = true;
      row = static_cast<size_t>(row_of_[at]);
    }
    row_price_[start] += so_far;
    for (size_t c = 0; c < columns_; ++c) {
      if (!done[c]) continue;
      row_price_[static_cast<size_t>(row_of_[c])] += so_far - distance[c];
      column_price_[c] -= so_far - distance[c];
    }
    while (from[static_cast<size_t>(last)] >= 0) {
      row_of_[static_cast<size_t>(last)] = row_of_[static_cast<size_t>(from[static_cast<size_t>(last)])];
      last = from[static_cast<size_t>(last)];
    }
    row_of_[static_cast<size_t>(last)] = static_cast<int32_t>(start);
  }

  const std::vector<std::vector<int64_t>>& gain_;
  const size_t rows_, columns_;
  std::vector<int64_t> row_price_, column_price_;
  std::vector<int32_t> row_of_;
};

}  // namespace

std::vector<int32_t> LargestAssignment(const std::vector<std::vector<int64_t>>& gain) { return Assignment(gain).Solve(); }

}  // namespace weft::planner::tasks

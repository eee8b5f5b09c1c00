// What a policy decided over a whole run, in words, within a fixed number of lines however often it was asked.
// Internal to planner/jobs.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace weft::planner::inline jobs {

/// Keeps the first and the last half of the lines; those between are counted only.
class DecisionLog {
 public:
  /// Requires: most ≥ 3.
  explicit DecisionLog(size_t most) : most_(most) {}

  void Add(std::string line);
  /// At most `most` lines: all of them, or one in the middle says how many are missing.
  std::vector<std::string> Take() &&;

 private:
  size_t most_;
  std::vector<std::string> first_;
  std::deque<std::string> last_;
  size_t left_out_ = 0;
};

}  // namespace weft::planner::jobs

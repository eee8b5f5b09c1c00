#include "planner/jobs/simulate/decision_log.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace weft::planner::inline jobs {

void DecisionLog::Add(std::string line) {
  if (first_.size() < most_ / 2) return first_.push_back(std::move(line));
  last_.push_back(std::move(line));
  if (last_.size() < most_ - most_ / 2) return;  // a line is kept for the one that says what is missing
  last_.pop_front();
  ++left_out_;
}

std::vector<std::string> DecisionLog::Take() && {
  std::vector<std::string> lines = std::move(first_);
  if (left_out_ > 0) lines.push_back(fmt::format("({} lines left out)", left_out_));
  lines.insert(lines.end(), std::make_move_iterator(last_.begin()), std::make_move_iterator(last_.end()));
  return lines;
}

}  // namespace weft::planner::jobs

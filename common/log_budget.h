// What keeps a log readable when somebody else decides how often there is something to say: a stalling connection, a
// process that is refused again and again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weft {

/// So many lines a minute for each key, and the number of those that were left out. Not thread-safe.
///
///   if (budget.Take(job, now_ns)) LogWarn("agent", "connection stands still", {{"job", job}});
///   for (const auto& [job, lines] : budget.TakeLeftOut(now_ns)) LogWarn("agent", "lines left out", {{"lines", lines}});
class LogBudget {
 public:
  static constexpr uint64_t kPeriodNs = 60'000'000'000;

  /// Requires: lines > 0.
  explicit LogBudget(int64_t lines) : lines_(lines) {}

  /// Whether a line about `key` may be logged. Its minute begins with its first line. Complexity: O(log keys).
  [[nodiscard]] bool Take(const std::string& key, uint64_t now_ns) {
    Minute& minute = minutes_.try_emplace(key, Minute{now_ns, 0}).first->second;
    return ++minute.asked <= lines_;
  }

  /// The keys whose minute is over and that were refused lines in it, with how many. Complexity: O(keys of the last
  /// minute).
  [[nodiscard]] std::vector<std::pair<std::string, int64_t>> TakeLeftOut(uint64_t now_ns) {
    std::vector<std::pair<std::string, int64_t>> left_out;
    std::erase_if(minutes_, [&](const auto& entry) {
      const auto& [key, minute] = entry;
      if (now_ns - minute.begin_ns < kPeriodNs) return false;
      if (minute.asked > lines_) left_out.emplace_back(key, minute.asked - lines_);
      return true;
    });
    return left_out;
  }

 private:
  struct Minute {
    uint64_t begin_ns;
    int64_t asked;
  };

  const int64_t lines_;
  std::map<std::string, Minute> minutes_;
};

}  // namespace weft

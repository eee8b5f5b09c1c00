#include "planner/parallelism/choice_knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "planner/parallelism/knapsack_core.h"
#include "planner/parallelism/knapsack_pass.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The corners of one group's lower hull, as segments; `options` ascend in memory.
void AppendHull(std::span<const KnapsackOption> options, uint32_t group, std::vector<uint32_t>& hull, std::vector<KnapsackSegment>& segments) {
  const auto rate = [&](uint32_t a, uint32_t b) {
    return (options[a].time - options[b].time) / static_cast<double>(options[b].memory - options[a].memory);
  };
  hull.clear();
  for (uint32_t i = 0; i < options.size(); ++i) {
    while (hull.size() >= 2 && rate(hull[hull.size() - 2], hull.back()) <= rate(hull.back(), i)) hull.pop_back();
    hull.push_back(i);
  }
  for (size_t i = 1; i < hull.size(); ++i) {
    const KnapsackOption &a = options[hull[i - 1]], &b = options[hull[i]];
    segments.push_back({rate(hull[i - 1], hull[i]), static_cast<double>(b.memory - a.memory), a.time - b.time, group, hull[i - 1], hull[i]});
  }
}

}  // namespace

double KnapsackCase::Relaxed(int64_t room, size_t* corner) const {
  if (!possible || room < least_memory) return kInfinity;
  const double spare = static_cast<double>(room - least_memory);
  const size_t place = static_cast<size_t>(std::upper_bound(memory.begin(), memory.end(), spare) - memory.begin()) - 1;
  if (corner != nullptr) *corner = place;
  double bought = time[place];
  if (place < segments.size()) bought += (spare - memory[place]) * segments[place].rate;
  return most_time - bought;
}

void ChoiceKnapsack::Fill(KnapsackCase& one, int64_t peak) {
  one.peak = peak;
  one.possible = true;
  one.options.clear();
  one.segments.clear();
  one.begin.assign(1, 0);
  one.counts.clear();
  one.choices.clear();
  one.least_memory = one.unit = 0;
  one.most_time = 0;
  std::vector<uint32_t> hull;
  size_t next = 0;
  for (const ChoiceGroup& group : groups_) {
    const size_t begin = one.options.size(), end = next + (group.count > 0 ? group.choices.size() : 0);
    for (; next < end; ++next) {
      const KnapsackOption& option = sorted_[next];
      if (group.choices[option.choice].peak > peak) continue;
      if (one.options.size() == begin || option.time < one.options.back().time) one.options.push_back(option);
    }
    one.begin.push_back(static_cast<uint32_t>(one.options.size()));
    one.counts.push_back(group.count);
    one.choices.push_back(group.choices.size());
    if (group.count == 0) continue;
    if (one.options.size() == begin) {
      one.possible = false;
      return;
    }
    const std::span<const KnapsackOption> options = one.Of(one.counts.size() - 1);
    one.least_memory += options.front().memory * group.count;
    one.most_time += options.front().time * static_cast<double>(group.count);
    for (size_t i = 1; i < options.size() && one.unit != 1; ++i) one.unit = std::gcd(one.unit, options[i].memory - options.front().memory);
    AppendHull(options, static_cast<uint32_t>(one.counts.size() - 1), hull, one.segments);
  }
  std::sort(one.segments.begin(), one.segments.end(), [](const KnapsackSegment& a, const KnapsackSegment& b) {
    return a.rate != b.rate ? a.rate > b.rate : std::tie(a.group, a.from) < std::tie(b.group, b.from);
  });
  one.memory.assign(1, 0.0);
  one.time.assign(1, 0.0);
  for (const KnapsackSegment& segment : one.segments) {
    const auto times = static_cast<double>(one.counts[segment.group]);
    one.memory.push_back(one.memory.back() + segment.memory * times);
    one.time.push_back(one.time.back() + segment.time * times);
  }
}

void ChoiceKnapsack::Prepare(std::span<const ChoiceGroup> groups) {
  groups_.assign(groups.begin(), groups.end());
  sorted_.clear();
  peaks_.assign(1, 0);
  for (const ChoiceGroup& group : groups_) {
    if (group.count == 0) continue;
    const auto begin = static_cast<std::ptrdiff_t>(sorted_.size());
    for (uint32_t i = 0; i < group.choices.size(); ++i) {
      sorted_.push_back({group.choices[i].time, group.choices[i].memory, i});
      peaks_.push_back(group.choices[i].peak);
    }
    std::sort(sorted_.begin() + begin, sorted_.end(), [](const KnapsackOption& a, const KnapsackOption& b) {
      return std::tie(a.memory, a.time, a.choice) < std::tie(b.memory, b.time, b.choice);
    });
  }
  std::sort(peaks_.begin(), peaks_.end());
  peaks_.erase(std::unique(peaks_.begin(), peaks_.end()), peaks_.end());
  count_ = peaks_.size();
  if (cases_.size() < count_) cases_.resize(count_);
  least_ = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < count_; ++i) {
    Fill(cases_[i], peaks_[i]);
    if (cases_[i].possible) least_ = std::min(least_, cases_[i].peak + cases_[i].least_memory);
  }
}

double ChoiceKnapsack::Relaxed(int64_t budget) const {
  double least = kInfinity;
  for (size_t i = 0; i < count_; ++i) least = std::min(least, cases_[i].Relaxed(cases_[i].Room(budget)));
  return least;
}

KnapsackAnswer ChoiceKnapsack::Solve(int64_t budget, const KnapsackLimits& limits) {
  struct Bounded {
    double bound;
    const KnapsackCase* at;
  };
  std::vector<Bounded> cases;
  for (size_t i = 0; i < count_; ++i) cases.push_back({cases_[i].Relaxed(cases_[i].Room(budget)), &cases_[i]});
  std::stable_sort(cases.begin(), cases.end(), [](const Bounded& a, const Bounded& b) { return a.bound < b.bound; });
  KnapsackAnswer answer;
  answer.time = limits.upper;
  answer.lower_bound = cases.front().bound;
  for (const Bounded& one : cases) {
    if (one.bound >= answer.time * (1 - limits.tolerance)) break;
    if (SolveCore(*one.at, budget, limits, answer)) continue;
    SolveByPasses(*one.at, budget, one.bound, limits, answer);
  }
  if (answer.complete && answer.feasible) {
    answer.lower_bound = std::max(answer.lower_bound, answer.time * (1 - limits.tolerance));
  }
  return answer;
}

}  // namespace weft::planner::parallelism

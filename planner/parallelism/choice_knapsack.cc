#include "planner/parallelism/choice_knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// States per step: narrow passes find an answer that is often within the tolerance, the last one proves it.
constexpr size_t kWidths[] = {8, 64, 512, std::numeric_limits<size_t>::max()};

struct Option {
  double time;
  int64_t memory;
  size_t choice;  // place in the group's list
};

/// A step from one corner of a group's lower hull to the next: memory that buys time.
struct Segment {
  double rate;      // seconds per byte
  double memory;    // of one item
  double time;
  size_t group;
};

/// One group as one peak allows it.
struct Items {
  std::vector<Option> options;  // ascending memory, descending time
  int64_t count = 0;
};

/// The undominated choices with a peak of at most `peak`.
std::vector<Option> Undominated(const ChoiceGroup& group, int64_t peak) {
  std::vector<Option> all;
  for (size_t i = 0; i < group.choices.size(); ++i) {
    if (group.choices[i].peak <= peak) all.push_back({group.choices[i].time, group.choices[i].memory, i});
  }
  std::sort(all.begin(), all.end(), [](const Option& a, const Option& b) {
    if (a.memory != b.memory) return a.memory < b.memory;
    return a.time != b.time ? a.time < b.time : a.choice < b.choice;
  });
  std::vector<Option> kept;
  for (const Option& option : all) {
    if (kept.empty() || option.time < kept.back().time) kept.push_back(option);
  }
  return kept;
}

void AppendHull(const Items& items, size_t group, std::vector<Segment>& segments) {
  std::vector<Option> hull;
  for (const Option& option : items.options) {
    while (hull.size() >= 2) {
      const Option &a = hull[hull.size() - 2], &b = hull.back();
      const double ab = (a.time - b.time) / static_cast<double>(b.memory - a.memory);
      const double bc = (b.time - option.time) / static_cast<double>(option.memory - b.memory);
      if (ab > bc) break;
      hull.pop_back();
    }
    hull.push_back(option);
  }
  for (size_t i = 1; i < hull.size(); ++i) {
    const double memory = static_cast<double>(hull[i].memory - hull[i - 1].memory);
    const double time = hull[i - 1].time - hull[i].time;
    segments.push_back({time / memory, memory, time, group});
  }
}

/// The knapsack of one peak.
class Problem {
 public:
  Problem(std::span<const ChoiceGroup> groups, int64_t budget, int64_t peak) : budget_(budget - peak) {
    int64_t unit = 0;
    for (const ChoiceGroup& group : groups) {
      Items items{Undominated(group, peak), group.count};
      if (items.count == 0) items.options.clear();
      if (group.count > 0 && items.options.empty()) {
        possible_ = false;
        return;
      }
      if (group.count > 0) {
        least_memory_ += items.options.front().memory * group.count;
        for (const Option& option : items.options) {
          unit = std::gcd(unit, option.memory - items.options.front().memory);
        }
      }
      AppendHull(items, items_.size(), segments_);
      items_.push_back(std::move(items));
    }
    possible_ = least_memory_ <= budget_;
    // What cannot be filled is no budget: it makes the relaxation meet whole answers.
    if (possible_ && unit > 0) budget_ -= (budget_ - least_memory_) % unit;
    std::sort(segments_.begin(), segments_.end(), [](const Segment& a, const Segment& b) {
      return a.rate != b.rate ? a.rate > b.rate : a.group < b.group;
    });
  }

  bool possible() const { return possible_; }
  int64_t budget() const { return budget_; }
  const std::vector<Items>& items() const { return items_; }

  /// The relaxation of what is left when group `first` has `left` items to go and later groups have all of theirs.
  struct Rest {
    std::vector<double> memory, time;  // bought so far, ascending
    std::vector<double> rate;          // from each corner on
    double base_time = 0;
    int64_t base_memory = 0;
  };
  void FillRest(size_t first, int64_t left, Rest& rest) const {
    rest.memory.assign(1, 0.0);
    rest.time.assign(1, 0.0);
    rest.rate.clear();
    rest.base_time = 0;
    rest.base_memory = 0;
    const auto count = [&](size_t group) { return group == first ? left : items_[group].count; };
    for (size_t g = first; g < items_.size(); ++g) {
      if (count(g) == 0) continue;
      rest.base_time += items_[g].options.front().time * static_cast<double>(count(g));
      rest.base_memory += items_[g].options.front().memory * count(g);
    }
    for (const Segment& segment : segments_) {
      if (segment.group < first || count(segment.group) == 0) continue;
      const auto times = static_cast<double>(count(segment.group));
      rest.memory.push_back(rest.memory.back() + segment.memory * times);
      rest.time.push_back(rest.time.back() + segment.time * times);
      rest.rate.push_back(segment.rate);
    }
  }

 private:
  std::vector<Items> items_;
  std::vector<Segment> segments_;  // steepest first
  int64_t budget_ = 0, least_memory_ = 0;
  bool possible_ = true;
};

/// Least time of the rest within `memory` bytes. `place` is a hint: start at the last corner, pass it on to calls with
/// less and less memory.
double Relaxed(const Problem::Rest& rest, int64_t memory, size_t& place) {
  const double spare = static_cast<double>(memory - rest.base_memory);
  if (spare < 0) return kInfinity;
  while (rest.memory[place] > spare) --place;
  double bought = rest.time[place];
  if (place + 1 < rest.memory.size()) {
    bought += (spare - rest.memory[place]) * rest.rate[place];
  }
  return rest.base_time - bought;
}

double Relaxed(const Problem& problem) {
  if (!problem.possible()) return kInfinity;
  Problem::Rest rest;
  problem.FillRest(0, problem.items().empty() ? 0 : problem.items().front().count, rest);
  size_t place = rest.memory.size() - 1;
  return Relaxed(rest, problem.budget(), place);
}

struct State {
  int64_t memory;
  double time;
  uint32_t parent;
  uint32_t option;
  double bound;
};

/// Dynamic programming over the items of one Problem.
class Pass {
 public:
  Pass(const Problem& problem, size_t width, int64_t most_states)
      : problem_(problem), width_(width), most_states_(most_states) {}

  /// Looks for an answer below `upper`; true if there is one (always the least, unless cut by width or states).
  bool Run(double upper, double tolerance) {
    cut_ = upper * (1 - std::max(tolerance, 1e-15));
    layers_.assign(1, {State{0, 0, 0, 0, 0}});
    for (size_t g = 0; g < problem_.items().size(); ++g) {
      for (int64_t left = problem_.items()[g].count; left > 0; --left) {
        if (!Step(g, left - 1)) return false;
      }
    }
    return true;
  }

  int64_t states() const { return states_; }
  bool complete() const { return complete_; }
  bool narrowed() const { return narrowed_; }
  double time() const { return layers_.back().back().time; }
  int64_t memory() const { return layers_.back().back().memory; }

  /// The choices of the answer: the last state is the one with the least time.
  std::vector<std::vector<int64_t>> Taken(std::span<const ChoiceGroup> groups) const {
    std::vector<std::vector<int64_t>> taken;
    for (const ChoiceGroup& group : groups) taken.emplace_back(group.choices.size(), 0);
    size_t layer = layers_.size() - 1, place = layers_.back().size() - 1;
    for (size_t g = groups.size(); g-- > 0;) {
      for (int64_t i = 0; i < groups[g].count; ++i, --layer) {
        const State& state = layers_[layer][place];
        ++taken[g][problem_.items()[g].options[state.option].choice];
        place = state.parent;
      }
    }
    return taken;
  }

 private:
  bool Step(size_t group, int64_t left) {
    problem_.FillRest(group, left, rest_);
    const std::vector<State>& from = layers_.back();
    const std::vector<Option>& options = problem_.items()[group].options;
    std::vector<State> next;
    const auto before = [](const State& a, const State& b) {
      if (a.memory != b.memory) return a.memory < b.memory;
      if (a.time != b.time) return a.time < b.time;
      return a.parent != b.parent ? a.parent < b.parent : a.option < b.option;
    };
    for (size_t k = 0; k < options.size(); ++k) {
      const auto run = static_cast<std::ptrdiff_t>(next.size());
      size_t place = rest_.memory.size() - 1;
      for (size_t i = 0; i < from.size(); ++i) {
        const int64_t memory = from[i].memory + options[k].memory;
        const double time = from[i].time + options[k].time;
        const double bound = time + Relaxed(rest_, problem_.budget() - memory, place);
        if (bound == kInfinity) break;  // what holds more does not fit either
        if (bound < cut_) next.push_back({memory, time, static_cast<uint32_t>(i), static_cast<uint32_t>(k), bound});
      }
      std::inplace_merge(next.begin(), next.begin() + run, next.end(), before);
    }
    states_ += static_cast<int64_t>(from.size() * options.size());
    if (states_ > most_states_) {
      complete_ = false;
      return false;
    }
    size_t kept = 0;
    for (const State& state : next) {
      if (kept == 0 || state.time < next[kept - 1].time) next[kept++] = state;
    }
    next.resize(kept);
    Narrow(next);
    if (next.empty()) return false;
    layers_.push_back(std::move(next));
    return true;
  }

  void Narrow(std::vector<State>& states) {
    if (states.size() <= width_) return;
    narrowed_ = true;
    // Equal bounds are common (every byte buys the same time): then what is fullest is nearest to an answer.
    std::stable_sort(states.begin(), states.end(), [](const State& a, const State& b) {
      return a.bound != b.bound ? a.bound < b.bound : a.memory > b.memory;
    });
    states.resize(width_);
    std::sort(states.begin(), states.end(), [](const State& a, const State& b) { return a.memory < b.memory; });
  }

  const Problem& problem_;
  size_t width_;
  int64_t most_states_;
  double cut_ = kInfinity;
  int64_t states_ = 0;
  bool complete_ = true, narrowed_ = false;
  Problem::Rest rest_;
  std::vector<std::vector<State>> layers_;
};

/// Which peaks an answer can have, ascending.
std::vector<int64_t> Peaks(std::span<const ChoiceGroup> groups) {
  std::vector<int64_t> peaks = {0};
  for (const ChoiceGroup& group : groups) {
    for (const Choice& choice : group.choices) peaks.push_back(choice.peak);
  }
  std::sort(peaks.begin(), peaks.end());
  peaks.erase(std::unique(peaks.begin(), peaks.end()), peaks.end());
  return peaks;
}

struct Case {
  int64_t peak;
  double bound;
};

std::vector<Case> Cases(std::span<const ChoiceGroup> groups, int64_t budget) {
  std::vector<Case> cases;
  for (const int64_t peak : Peaks(groups)) cases.push_back({peak, Relaxed(Problem(groups, budget, peak))});
  std::stable_sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.bound < b.bound; });
  return cases;
}

}  // namespace

double RelaxedKnapsack(std::span<const ChoiceGroup> groups, int64_t budget) {
  return Cases(groups, budget).front().bound;
}

KnapsackAnswer SolveChoiceKnapsack(std::span<const ChoiceGroup> groups, int64_t budget, const KnapsackLimits& limits) {
  KnapsackAnswer answer;
  answer.time = limits.upper;
  const std::vector<Case> cases = Cases(groups, budget);
  answer.lower_bound = cases.front().bound;
  for (const Case& at : cases) {
    if (at.bound >= answer.time * (1 - limits.tolerance)) break;
    const Problem problem(groups, budget, at.peak);
    for (const size_t width : kWidths) {
      if (at.bound >= answer.time * (1 - limits.tolerance)) break;
      Pass pass(problem, width, limits.states - answer.states);
      const bool found = pass.Run(answer.time, limits.tolerance);
      answer.states += pass.states();
      answer.complete = answer.complete && pass.complete();
      const bool proved = !pass.narrowed();
      if (!found && proved) break;
      if (!found) continue;
      answer.feasible = true;
      answer.time = pass.time();
      answer.memory = pass.memory() + at.peak;
      answer.taken = pass.Taken(groups);
      if (proved) break;
    }
  }
  if (answer.complete && answer.feasible) {
    answer.lower_bound = std::max(answer.lower_bound, answer.time * (1 - limits.tolerance));
  }
  return answer;
}

}  // namespace weft::planner::parallelism

#include "planner/parallelism/knapsack_pass.h"

#include <algorithm>
#include <limits>
#include <span>

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// States per step: a narrow pass finds an answer that is often within the tolerance, the last one proves it.
constexpr size_t kWidths[] = {64, std::numeric_limits<size_t>::max()};

struct State {
  int64_t memory;
  double time;
  double bound;
  uint32_t parent;
  uint32_t option;
};

/// The relaxation of `left` items of each group.
class Rest {
 public:
  void Fill(const KnapsackCase& one, std::span<const int64_t> left) {
    memory_.assign(1, 0.0);
    time_.assign(1, 0.0);
    rate_.clear();
    base_time_ = 0;
    base_memory_ = 0;
    for (size_t g = 0; g < left.size(); ++g) {
      if (left[g] == 0) continue;
      base_time_ += one.Of(g).front().time * static_cast<double>(left[g]);
      base_memory_ += one.Of(g).front().memory * left[g];
    }
    for (const KnapsackSegment& segment : one.segments) {
      const auto times = static_cast<double>(left[segment.group]);
      if (times == 0) continue;
      memory_.push_back(memory_.back() + segment.memory * times);
      time_.push_back(time_.back() + segment.time * times);
      rate_.push_back(segment.rate);
    }
  }
  size_t corners() const { return memory_.size(); }

  /// Least time within `room` bytes. `place` is a hint: start at the last corner, pass it on to calls with less and less room.
  double Relaxed(int64_t room, size_t& place) const {
    const double spare = static_cast<double>(room - base_memory_);
    if (spare < 0) return kInfinity;
    while (memory_[place] > spare) --place;
    double bought = time_[place];
    if (place < rate_.size()) bought += (spare - memory_[place]) * rate_[place];
    return base_time_ - bought;
  }

 private:
  std::vector<double> memory_, time_;  // bought so far, ascending
  std::vector<double> rate_;           // from each corner on
  double base_time_ = 0;
  int64_t base_memory_ = 0;
};

/// Items that decide one after the other: the group of each, and the undominated states behind each.
struct Chain {
  std::vector<uint32_t> groups;
  std::vector<std::vector<State>> layers;  // [items + 1]
};

/// Both halves of the items decide by themselves, each state cut by the relaxation of all other items; then each of one half's
/// states meets the best that fits it of the other half. Half the items have far fewer states than all.
class Pass {
 public:
  Pass(const KnapsackCase& one, int64_t room, size_t width, int64_t most_states)
      : one_(one), room_(room), width_(width), most_states_(most_states) {}

  /// Looks for an answer below `upper`; true if there is one (always the least, unless cut by width or states).
  bool Run(double upper, double tolerance) {
    cut_ = upper * (1 - std::max(tolerance, 1e-15));
    FindUsable();
    for (uint32_t g = 0; g < one_.counts.size(); ++g) front_.groups.insert(front_.groups.end(), static_cast<size_t>(one_.counts[g]), g);
    const auto half = static_cast<std::ptrdiff_t>((front_.groups.size() + 1) / 2);
    back_.groups.assign(front_.groups.begin() + half, front_.groups.end());
    front_.groups.resize(static_cast<size_t>(half));
    if (!Grow(front_)) return false;
    // Of identical items the front's first ones are the back.
    if (std::equal(back_.groups.begin(), back_.groups.end(), front_.groups.begin())) {
      back_.layers.assign(front_.layers.begin(), front_.layers.begin() + static_cast<std::ptrdiff_t>(back_.groups.size() + 1));
    } else if (!Grow(back_)) {
      return false;
    }
    return Meet();
  }

  int64_t states() const { return states_; }
  bool complete() const { return complete_; }
  bool narrowed() const { return narrowed_; }
  double time() const { return time_; }
  int64_t memory() const { return memory_; }

  /// The choices of the answer.
  std::vector<std::vector<int64_t>> Taken() const {
    std::vector<std::vector<int64_t>> taken;
    for (const size_t choices : one_.choices) taken.emplace_back(choices, 0);
    Follow(front_, front_place_, taken);
    Follow(back_, back_place_, taken);
    return taken;
  }

 private:
  /// Choices that by themselves cost too much at the relaxation's price of memory are in no answer below the cut.
  void FindUsable() {
    size_t corner = 0;
    const double bound = one_.Relaxed(room_, &corner);
    const double price = corner < one_.segments.size() ? one_.segments[corner].rate : 0;
    usable_.assign(one_.counts.size(), {});
    for (size_t g = 0; g < one_.counts.size(); ++g) {
      const auto options = one_.Of(g);
      const auto cost = [&](const KnapsackOption& option) { return option.time + price * static_cast<double>(option.memory); };
      double cheapest = kInfinity;
      for (const KnapsackOption& option : options) cheapest = std::min(cheapest, cost(option));
      for (uint32_t i = 0; i < options.size(); ++i) {
        if (bound + (cost(options[i]) - cheapest) * (1 - 1e-9) < cut_) usable_[g].push_back(i);
      }
    }
  }

  bool Grow(Chain& chain) {
    chain.layers.assign(1, {State{}});
    std::vector<int64_t> left = one_.counts;
    for (const uint32_t group : chain.groups) {
      --left[group];
      rest_.Fill(one_, left);
      if (!Step(group, chain)) return false;
    }
    return true;
  }

  bool Step(uint32_t group, Chain& chain) {
    const std::vector<State>& from = chain.layers.back();
    for (const uint32_t option : usable_[group]) {
      run_.clear();
      Extend(from, option, one_.Of(group)[option]);
      Add();
    }
    std::vector<State> next = Collect();
    states_ += static_cast<int64_t>(from.size() * usable_[group].size());
    if (states_ > most_states_) {
      complete_ = false;
      return false;
    }
    Narrow(next);
    if (next.empty()) return false;
    chain.layers.push_back(std::move(next));
    return true;
  }

  bool Meet() {
    const std::vector<State>&front = front_.layers.back(), &back = back_.layers.back();
    time_ = cut_;
    bool found = false;
    size_t place = back.size();  // with more memory in front less fits behind
    for (size_t i = 0; i < front.size(); ++i) {
      while (place > 0 && front[i].memory + back[place - 1].memory > room_) --place;
      if (place == 0) break;
      const double time = front[i].time + back[place - 1].time;
      if (time >= time_) continue;
      time_ = time;
      memory_ = front[i].memory + back[place - 1].memory;
      front_place_ = i;
      back_place_ = place - 1;
      found = true;
    }
    return found;
  }

  void Follow(const Chain& chain, size_t place, std::vector<std::vector<int64_t>>& taken) const {
    for (size_t item = chain.groups.size(); item-- > 0;) {
      const State& state = chain.layers[item + 1][place];
      const uint32_t group = chain.groups[item];
      ++taken[group][one_.Of(group)[state.option].choice];
      place = state.parent;
    }
  }

  /// All states of `from` with one more item that takes `option`, ascending in memory, descending in time.
  void Extend(const std::vector<State>& from, uint32_t index, const KnapsackOption& option) {
    size_t place = rest_.corners() - 1;
    for (size_t i = 0; i < from.size(); ++i) {
      const int64_t memory = from[i].memory + option.memory;
      const double time = from[i].time + option.time;
      const double bound = time + rest_.Relaxed(room_ - memory, place);
      if (bound == kInfinity) break;  // what holds more does not fit either
      if (bound < cut_) run_.push_back({memory, time, bound, static_cast<uint32_t>(i), index});
    }
  }

  /// Puts the run among the others. Like a binary counter: levels_[i] holds 2^i runs or none, so that a state moves few times.
  void Add() {
    for (size_t level = 0; !run_.empty(); ++level) {
      if (level == levels_.size()) levels_.emplace_back();
      if (levels_[level].empty()) return levels_[level].swap(run_);
      Merge(levels_[level], run_);
      levels_[level].clear();
      run_.swap(merged_);
    }
  }

  std::vector<State> Collect() {
    run_.clear();
    for (std::vector<State>& level : levels_) {
      Merge(level, run_);
      level.clear();
      run_.swap(merged_);
    }
    return run_;
  }

  /// Both together without what is dominated then. Of equal ones the first argument's stays: it is the earlier option's.
  void Merge(const std::vector<State>& earlier, const std::vector<State>& later) {
    merged_.clear();
    size_t a = 0, b = 0;
    const auto keep = [this](const State& state) {
      if (merged_.empty() || state.time < merged_.back().time) merged_.push_back(state);
    };
    while (a < earlier.size() && b < later.size()) {
      const State &x = earlier[a], &y = later[b];
      const bool first = x.memory != y.memory ? x.memory < y.memory : x.time <= y.time;
      keep(first ? x : y);
      ++(first ? a : b);
    }
    for (; a < earlier.size(); ++a) keep(earlier[a]);
    for (; b < later.size(); ++b) keep(later[b]);
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

  const KnapsackCase& one_;
  const int64_t room_;
  size_t width_;
  int64_t most_states_;
  double cut_ = kInfinity;
  int64_t states_ = 0;
  bool complete_ = true, narrowed_ = false;
  Rest rest_;
  std::vector<std::vector<uint32_t>> usable_;  // [group]: options, ascending in memory
  std::vector<State> run_, merged_;
  std::vector<std::vector<State>> levels_;
  Chain front_, back_;
  size_t front_place_ = 0, back_place_ = 0;
  double time_ = 0;
  int64_t memory_ = 0;
};

}  // namespace

void SolveByPasses(const KnapsackCase& one, int64_t budget, double bound, const KnapsackLimits& limits, KnapsackAnswer& answer) {
  for (const size_t width : kWidths) {
    if (bound >= answer.time * (1 - limits.tolerance)) return;
    Pass pass(one, one.Room(budget), width, limits.states - answer.states);
    const bool found = pass.Run(answer.time, limits.tolerance);
    answer.states += pass.states();
    answer.complete = answer.complete && pass.complete();
    if (found) {
      answer.feasible = true;
      answer.time = pass.time();
      answer.memory = pass.memory() + one.peak;
      answer.taken = pass.Taken();
    }
    if (!pass.narrowed()) return;
  }
}

}  // namespace weft::planner::parallelism

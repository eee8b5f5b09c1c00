#include "planner/parallelism/knapsack_pass.h"

#include <algorithm>
#include <limits>

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

/// The relaxation of what is left when group `first` has `left` items to go and later groups have all of theirs.
class Rest {
 public:
  void Fill(const KnapsackCase& one, size_t first, int64_t left) {
    memory_.assign(1, 0.0);
    time_.assign(1, 0.0);
    rate_.clear();
    base_time_ = 0;
    base_memory_ = 0;
    const auto count = [&](size_t group) { return group < first ? 0 : group == first ? left : one.counts[group]; };
    for (size_t g = first; g < one.counts.size(); ++g) {
      if (count(g) == 0) continue;
      base_time_ += one.Of(g).front().time * static_cast<double>(count(g));
      base_memory_ += one.Of(g).front().memory * count(g);
    }
    for (const KnapsackSegment& segment : one.segments) {
      const auto times = static_cast<double>(count(segment.group));
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

class Pass {
 public:
  Pass(const KnapsackCase& one, int64_t room, size_t width, int64_t most_states)
      : one_(one), room_(room), width_(width), most_states_(most_states) {}

  /// Looks for an answer below `upper`; true if there is one (always the least, unless cut by width or states).
  bool Run(double upper, double tolerance) {
    cut_ = upper * (1 - std::max(tolerance, 1e-15));
    FindUsable();
    layers_.assign(1, {State{}});
    for (size_t g = 0; g < one_.counts.size(); ++g) {
      for (int64_t left = one_.counts[g]; left > 0; --left) {
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
  std::vector<std::vector<int64_t>> Taken() const {
    std::vector<std::vector<int64_t>> taken;
    for (const size_t choices : one_.choices) taken.emplace_back(choices, 0);
    size_t layer = layers_.size() - 1, place = layers_.back().size() - 1;
    for (size_t g = one_.counts.size(); g-- > 0;) {
      for (int64_t i = 0; i < one_.counts[g]; ++i, --layer) {
        const State& state = layers_[layer][place];
        ++taken[g][one_.Of(g)[state.option].choice];
        place = state.parent;
      }
    }
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

  bool Step(size_t group, int64_t left) {
    rest_.Fill(one_, group, left);
    const std::vector<State>& from = layers_.back();
    std::vector<State> next;
    for (const uint32_t option : usable_[group]) {
      run_.clear();
      Extend(from, option, one_.Of(group)[option]);
      Merge(next);
    }
    states_ += static_cast<int64_t>(from.size() * usable_[group].size());
    if (states_ > most_states_) {
      complete_ = false;
      return false;
    }
    Narrow(next);
    if (next.empty()) return false;
    layers_.push_back(std::move(next));
    return true;
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

  /// Puts the run's states among those of `into`, without what is dominated then. Of equal ones the earlier option's stays.
  void Merge(std::vector<State>& into) {
    if (run_.empty()) return;
    merged_.clear();
    size_t a = 0, b = 0;
    while (a < into.size() || b < run_.size()) {
      const bool first = b == run_.size() || (a < into.size() && (into[a].memory != run_[b].memory ? into[a].memory < run_[b].memory
                                                                                                   : into[a].time <= run_[b].time));
      const State& state = first ? into[a++] : run_[b++];
      if (merged_.empty() || state.time < merged_.back().time) merged_.push_back(state);
    }
    into.swap(merged_);
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
  std::vector<std::vector<State>> layers_;
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

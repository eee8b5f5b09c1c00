// With λ seconds per byte, the rate at the relaxation's last corner, a choice costs time + λ · memory. In every group the
// relaxation takes the cheapest one, and in the critical group the two ends of the last segment, which cost the same. Any
// whole answer takes
//   relaxation + Σ (what its choices cost above the cheapest) + λ · (bytes left over),
// where no term is negative. So choices that cost more above the cheapest than the best answer known is above the
// relaxation are out, and a set of others is followed only as far as its sum stays below that. For each set the rest of
// the critical group takes as many of the upper end as fit.
#include "planner/parallelism/knapsack_core.h"

#include <algorithm>
#include <tuple>

namespace weft::planner::inline parallelism {
namespace {

struct Candidate {
  double reduced;        // s above the cheapest
  double time;           // s, beside the cheapest's
  int64_t memory;        // the same
  uint32_t group, option;
};

class Core {
 public:
  Core(const KnapsackCase& one, int64_t budget, const KnapsackLimits& limits, KnapsackAnswer& answer)
      : one_(one), room_(one.Room(budget)), tolerance_(limits.tolerance), answer_(answer),
        most_steps_(std::min(limits.enumerated, limits.states - answer.states)) {
    bound_ = one_.Relaxed(room_, &corner_);
    left_ = one_.counts;
  }

  bool Run() {
    Base();
    Collect();
    Follow(0, bound_, time_, memory_);
    answer_.states += steps_;
    if (found_) Write();
    return steps_ <= most_steps_;
  }

 private:
  double Cut() const { return answer_.time * (1 - std::max(tolerance_, 1e-15)); }

  /// The relaxation's choices: of the critical group the lower end.
  void Base() {
    base_.assign(one_.counts.size(), 0);
    for (size_t i = 0; i < corner_; ++i) base_[one_.segments[i].group] = one_.segments[i].to;
    for (size_t g = 0; g < base_.size(); ++g) {
      if (one_.counts[g] == 0) continue;
      const KnapsackOption& option = one_.Of(g)[base_[g]];
      time_ += option.time * static_cast<double>(one_.counts[g]);
      memory_ += option.memory * one_.counts[g];
    }
    if (corner_ == one_.segments.size()) return;
    critical_ = one_.segments[corner_].group;
    upper_ = one_.segments[corner_].to;
    price_ = one_.segments[corner_].rate;
    Narrow();
  }

  /// Choices on the last segment itself stand nearer to each other than its ends: takes the two round the relaxation.
  void Narrow() {
    const std::span<const KnapsackOption> options = one_.Of(critical_);
    const auto count = static_cast<double>(one_.counts[critical_]);
    const uint32_t lower = base_[critical_];
    const double share = static_cast<double>(room_ - memory_) / count;
    const double cheapest = options[lower].time + price_ * static_cast<double>(options[lower].memory);
    uint32_t below = lower, above = upper_;
    for (uint32_t i = lower + 1; i < upper_; ++i) {
      const double cost = options[i].time + price_ * static_cast<double>(options[i].memory);
      if (cost - cheapest > 1e-12 * cheapest) continue;
      if (static_cast<double>(options[i].memory - options[lower].memory) <= share) {
        below = i;
      } else {
        above = std::min(above, i);
      }
    }
    base_[critical_] = below;
    upper_ = above;
    time_ += (options[below].time - options[lower].time) * count;
    memory_ += (options[below].memory - options[lower].memory) * one_.counts[critical_];
    step_ = options[above].memory - options[below].memory;
    gain_ = options[below].time - options[above].time;
  }

  void Collect() {
    Close(time_, memory_);  // the relaxation rounded down: a first answer
    for (uint32_t g = 0; g < base_.size(); ++g) {
      if (one_.counts[g] == 0) continue;
      const std::span<const KnapsackOption> options = one_.Of(g);
      const KnapsackOption& base = options[base_[g]];
      for (uint32_t i = 0; i < options.size(); ++i) {
        if (i == base_[g] || (step_ > 0 && g == critical_ && i == upper_)) continue;
        const double time = options[i].time - base.time;
        const int64_t memory = options[i].memory - base.memory;
        const double reduced = std::max(0.0, time + price_ * static_cast<double>(memory));
        if (bound_ + reduced < Cut()) candidates_.push_back({reduced, time, memory, g, i});
      }
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.reduced, a.group, a.option) < std::tie(b.reduced, b.group, b.option);
    });
  }

  /// The set taken so far with the rest of the critical group.
  void Close(double time, int64_t memory) {
    if (memory > room_) return;
    int64_t uppers = 0;
    if (step_ > 0) {
      uppers = std::min(left_[critical_], (room_ - memory) / step_);
      time -= static_cast<double>(uppers) * gain_;
    }
    if (time >= Cut()) return;
    answer_.time = time;
    best_ = taken_;
    uppers_ = uppers;
    found_ = true;
  }

  /// All sets that add candidates from `first` on to the one taken.
  void Follow(size_t first, double bound, double time, int64_t memory) {
    for (size_t i = first; i < candidates_.size(); ++i) {
      const Candidate& next = candidates_[i];
      if (bound + next.reduced >= Cut()) return;
      if (left_[next.group] == 0) continue;
      if (++steps_ > most_steps_) return;
      --left_[next.group];
      taken_.push_back(static_cast<uint32_t>(i));
      Close(time + next.time, memory + next.memory);
      Follow(i, bound + next.reduced, time + next.time, memory + next.memory);
      taken_.pop_back();
      ++left_[next.group];
    }
  }

  void Write() {
    answer_.feasible = true;
    answer_.memory = one_.peak;
    answer_.taken.assign(one_.counts.size(), {});
    std::vector<int64_t> rest = one_.counts;
    const auto take = [&](uint32_t group, uint32_t option, int64_t count) {
      if (count == 0) return;
      const KnapsackOption& taken = one_.Of(group)[option];
      rest[group] -= count;
      answer_.memory += taken.memory * count;
      answer_.taken[group][taken.choice] += count;
    };
    for (uint32_t g = 0; g < rest.size(); ++g) answer_.taken[g].assign(one_.choices[g], 0);
    for (const uint32_t i : best_) take(candidates_[i].group, candidates_[i].option, 1);
    if (step_ > 0) take(critical_, upper_, uppers_);
    for (uint32_t g = 0; g < rest.size(); ++g) take(g, base_[g], rest[g]);
  }

  const KnapsackCase& one_;
  const int64_t room_;
  const double tolerance_;
  KnapsackAnswer& answer_;
  const int64_t most_steps_;
  size_t corner_ = 0;
  double bound_ = 0, time_ = 0, price_ = 0, gain_ = 0;
  int64_t memory_ = 0, step_ = 0, steps_ = 0, uppers_ = 0;
  uint32_t critical_ = 0, upper_ = 0;
  std::vector<uint32_t> base_, taken_, best_;
  std::vector<int64_t> left_;
  std::vector<Candidate> candidates_;
  bool found_ = false;
};

}  // namespace

bool SolveCore(const KnapsackCase& one, int64_t budget, const KnapsackLimits& limits, KnapsackAnswer& answer) {
  return Core(one, budget, limits, answer).Run();
}

}  // namespace weft::planner::parallelism

#include "planner/parallelism/stage_partition.h"

#include <algorithm>
#include <limits>

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Times of all (stage, first, count), and cuts through them.
class Cuts {
 public:
  Cuts(const PartitionProblem& problem, const StageTimeFunction& time)
      : layers_(problem.layers), stages_(problem.stages),
        times_(static_cast<size_t>(stages_ * (layers_ + 1) * (layers_ + 1)), kInfinity) {
    for (int64_t stage = 0; stage < stages_; ++stage) {
      for (int64_t first = stage; first < layers_; ++first) {
        if (stage == 0 && first > 0) break;
        // Every later stage needs a layer.
        const int64_t most = layers_ - first - (stages_ - 1 - stage);
        for (int64_t count = stage + 1 == stages_ ? most : 1; count <= most; ++count) {
          At(stage, first, count) = time(stage, first, count);
        }
      }
    }
  }

  /// All times, ascending, each once.
  std::vector<double> Candidates() const {
    std::vector<double> all;
    std::copy_if(times_.begin(), times_.end(), std::back_inserter(all), [](double t) { return t < kInfinity; });
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  /// The cut with the least sum in which no stage takes more than `most`; sum is infinite if there is none.
  StagePartition LeastSum(double most) const {
    const auto cells = static_cast<size_t>((stages_ + 1) * (layers_ + 1));
    std::vector<double> sum(cells, kInfinity), uneven(cells, 0);
    std::vector<int64_t> taken(cells, 0);
    const auto cell = [&](int64_t stage, int64_t first) { return static_cast<size_t>(stage * (layers_ + 1) + first); };
    sum[cell(stages_, layers_)] = 0;
    const double even = static_cast<double>(layers_) / static_cast<double>(stages_);
    for (int64_t stage = stages_ - 1; stage >= 0; --stage) {
      for (int64_t first = stage; first < layers_; ++first) {
        for (int64_t count = 1; first + count <= layers_; ++count) {
          const double own = At(stage, first, count);
          const double rest = sum[cell(stage + 1, first + count)];
          if (own > most || rest == kInfinity) continue;
          const double off = static_cast<double>(count) - even;
          const double unevenness = off * off + uneven[cell(stage + 1, first + count)];
          const size_t here = cell(stage, first);
          const bool ties = own + rest <= sum[here] * (1 + 1e-12) && own + rest >= sum[here] * (1 - 1e-12);
          if (ties ? unevenness >= uneven[here] : own + rest > sum[here]) continue;
          sum[here] = own + rest;
          uneven[here] = unevenness;
          taken[here] = count;
        }
      }
    }
    StagePartition cut{.sum = sum[cell(0, 0)]};
    cut.feasible = cut.sum < kInfinity;
    if (!cut.feasible) return cut;
    for (int64_t stage = 0, first = 0; stage < stages_; ++stage) {
      const int64_t count = taken[cell(stage, first)];
      cut.layers.push_back(count);
      cut.slowest = std::max(cut.slowest, At(stage, first, count));
      first += count;
    }
    return cut;
  }

 private:
  double& At(int64_t stage, int64_t first, int64_t count) {
    return times_[static_cast<size_t>((stage * (layers_ + 1) + first) * (layers_ + 1) + count)];
  }
  double At(int64_t stage, int64_t first, int64_t count) const {
    return times_[static_cast<size_t>((stage * (layers_ + 1) + first) * (layers_ + 1) + count)];
  }

  int64_t layers_, stages_;
  std::vector<double> times_;
};

}  // namespace

StagePartition PartitionStages(const PartitionProblem& problem, const StageTimeFunction& time) {
  StagePartition best;
  if (problem.stages < 1 || problem.layers < problem.stages) return best;
  const Cuts cuts(problem, time);
  const std::vector<double> candidates = cuts.Candidates();
  const StagePartition least = cuts.LeastSum(kInfinity);
  if (!least.feasible) return best;
  const double rounds = static_cast<double>(problem.micro_batches - 1);
  // The smallest possible slowest stage, by bisection: feasibility is monotone in it.
  size_t low = 0, high = candidates.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (cuts.LeastSum(candidates[middle]).feasible) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  for (size_t i = low; i < candidates.size(); ++i) {
    // Sums are at least the least sum: a slower slowest stage cannot win any more.
    if (best.feasible && least.sum + rounds * candidates[i] >= best.iteration) break;
    StagePartition cut = cuts.LeastSum(candidates[i]);
    cut.iteration = cut.sum + rounds * cut.slowest;
    if (!best.feasible || cut.iteration < best.iteration * (1 - 1e-12)) best = std::move(cut);
  }
  return best;
}

}  // namespace weft::planner::parallelism

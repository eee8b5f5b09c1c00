#include "planner/search/best_first.h"

#include <algorithm>
#include <numeric>

namespace weft::planner {

BestFirstResult BestFirst(std::span<const double> bounds, size_t keep, int64_t budget,
                          const std::function<double(size_t)>& evaluate) {
  BestFirstResult result;
  std::vector<size_t> order(bounds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bounds[a] < bounds[b]; });
  const auto better = [](const Ranked& a, const Ranked& b) {
    return a.value != b.value ? a.value < b.value : a.candidate < b.candidate;
  };
  for (size_t i = 0; i < order.size(); ++i) {
    // A bound equal to the worst kept value could still tie and win by its place in the list.
    if (keep == 0 || (result.best.size() == keep && bounds[order[i]] * (1 - 1e-12) > result.best.back().value)) {
      result.pruned = static_cast<int64_t>(order.size() - i);
      break;
    }
    if (result.evaluated == budget) {
      result.complete = false;
      break;
    }
    ++result.evaluated;
    result.best.push_back({order[i], evaluate(order[i])});
    std::sort(result.best.begin(), result.best.end(), better);
    if (result.best.size() > keep) result.best.pop_back();
  }
  return result;
}

}  // namespace weft::planner

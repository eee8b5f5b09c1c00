#include "planner/collectives/max_flow.h"

#include <algorithm>

namespace weft::planner::inline collectives {
namespace {

/// Breadth-first predecessors in the residual graph; -1 where it does not reach.
std::vector<int32_t> Reach(const FlowMatrix& residual, int32_t from) {
  std::vector<int32_t> previous(static_cast<size_t>(residual.nodes()), -1);
  previous[static_cast<size_t>(from)] = from;
  std::vector<int32_t> queue{from};
  for (size_t next = 0; next < queue.size(); ++next) {
    for (int32_t node = 0; node < residual.nodes(); ++node) {
      if (previous[static_cast<size_t>(node)] >= 0 || residual.at(queue[next], node) <= 0) continue;
      previous[static_cast<size_t>(node)] = queue[next];
      queue.push_back(node);
    }
  }
  return previous;
}

}  // namespace

FlowCut MaxFlow(const FlowMatrix& graph, int32_t from, int32_t to, int64_t enough) {
  FlowMatrix residual = graph;
  FlowCut result;
  while (result.value < enough) {
    const std::vector<int32_t> previous = Reach(residual, from);
    if (previous[static_cast<size_t>(to)] < 0) {
      for (const int32_t p : previous) result.source_side.push_back(p >= 0);
      return result;
    }
    int64_t amount = enough - result.value;
    for (int32_t node = to; node != from; node = previous[static_cast<size_t>(node)]) {
      amount = std::min(amount, residual.at(previous[static_cast<size_t>(node)], node));
    }
    for (int32_t node = to; node != from; node = previous[static_cast<size_t>(node)]) {
      residual.at(previous[static_cast<size_t>(node)], node) -= amount;
      residual.at(node, previous[static_cast<size_t>(node)]) += amount;
    }
    result.value += amount;
  }
  return result;
}

}  // namespace weft::planner::collectives

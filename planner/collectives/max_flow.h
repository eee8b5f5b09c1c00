// Max-flow on a dense graph of few nodes, whole capacities. Internal to planner/collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft::planner::inline collectives {

class FlowMatrix {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 8;

  explicit FlowMatrix(int32_t nodes) : nodes_(nodes), capacity_(static_cast<size_t>(nodes) * static_cast<size_t>(nodes)) {}

  int32_t nodes() const { return nodes_; }
  int64_t& at(int32_t from, int32_t to) {
    return capacity_[static_cast<size_t>(from) * static_cast<size_t>(nodes_) + static_cast<size_t>(to)];
  }
  int64_t at(int32_t from, int32_t to) const {
    return capacity_[static_cast<size_t>(from) * static_cast<size_t>(nodes_) + static_cast<size_t>(to)];
  }

 private:
  int32_t nodes_;
  std::vector<int64_t> capacity_;
};

struct FlowCut {
  int64_t value = 0;
  std::vector<bool> source_side;  ///< of a cut of that value; empty when the flow was stopped at `enough`
};

/// Flow from `from` to `to`, stopped when it has reached `enough`. Complexity: O(nodes² · augmentations), each along a
/// shortest way.
FlowCut MaxFlow(const FlowMatrix& graph, int32_t from, int32_t to, int64_t enough = FlowMatrix::kUnlimited);

}  // namespace weft::planner::collectives

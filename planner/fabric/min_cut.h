// Least cut of a directed graph with whole capacities, by Dinic's blocking flows.
//
// Source: Dinic 1970, Algorithm for solution of a problem of maximum flow in networks with power estimation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::planner::inline fabric {

class MinCut {
 public:
  static constexpr int64_t kUncuttable = int64_t{1} << 60;

  explicit MinCut(size_t nodes) : out_(nodes) {}

  /// Requires: nodes in range, 0 ≤ capacity ≤ kUncuttable.
  void AddEdge(size_t from, size_t to, int64_t capacity);

  /// The source's side of the least cut that has the fewest nodes there; true: with the source. May be called once.
  /// Complexity: O(nodes² · edges), far less on layered graphs.
  std::vector<bool> SourceSide(size_t source, size_t sink);

  /// Of that cut: the greatest flow. Requires: SourceSide() was called, and some cut holds no uncuttable edge.
  int64_t value() const { return value_; }

 private:
  struct Edge {
    size_t to;
    int64_t left;
  };

  bool Layer(size_t source, size_t sink);
  int64_t Push(size_t source, size_t sink);

  int64_t value_ = 0;
  std::vector<Edge> edges_;                // edge e and its reverse e ^ 1
  std::vector<std::vector<size_t>> out_;
  std::vector<int32_t> depth_;
  std::vector<size_t> next_;
};

}  // namespace weft::planner::fabric

#include "planner/fabric/min_cut.h"

#include <algorithm>

namespace weft::planner::inline fabric {

void MinCut::AddEdge(size_t from, size_t to, int64_t capacity) {
  out_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  out_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

/// Distances from the source over edges with capacity left; whether they reach the sink.
bool MinCut::Layer(size_t source, size_t sink) {
  depth_.assign(out_.size(), -1);
  depth_[source] = 0;
  std::vector<size_t> queue{source};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const size_t e : out_[queue[i]]) {
      if (edges_[e].left == 0 || depth_[edges_[e].to] >= 0) continue;
      depth_[edges_[e].to] = depth_[queue[i]] + 1;
      queue.push_back(edges_[e].to);
    }
  }
  return depth_[sink] >= 0;
}

/// One augmenting path down the layers, without recursion: graphs may be deep. 0 when there is none left.
int64_t MinCut::Push(size_t source, size_t sink) {
  std::vector<size_t> path;
  size_t at = source;
  while (at != sink) {
    bool advanced = false;
    for (; next_[at] < out_[at].size(); ++next_[at]) {
      const size_t e = out_[at][next_[at]];
      if (edges_[e].left == 0 || depth_[edges_[e].to] != depth_[at] + 1) continue;
      path.push_back(e);
      at = edges_[e].to;
      advanced = true;
      break;
    }
    if (advanced) continue;
    if (path.empty()) return 0;
    at = edges_[path.back() ^ 1].to;
    path.pop_back();
    ++next_[at];
  }
  int64_t least = kUncuttable;
  for (const size_t e : path) least = std::min(least, edges_[e].left);
  for (const size_t e : path) {
    edges_[e].left -= least;
    edges_[e ^ 1].left += least;
  }
  return least;
}

std::vector<bool> MinCut::SourceSide(size_t source, size_t sink) {
  while (Layer(source, sink)) {
    next_.assign(out_.size(), 0);
    while (const int64_t pushed = Push(source, sink)) value_ += pushed;
  }
  std::vector<bool> side(out_.size());
  for (size_t v = 0; v < side.size(); ++v) side[v] = depth_[v] >= 0;
  return side;
}

}  // namespace weft::planner::fabric

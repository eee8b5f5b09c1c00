#include "planner/network/filling.h"

#include <algorithm>

namespace weft::planner::inline network {
namespace {

/// A row's filling level: the level at which it is full. Levels only rise while entries freeze, so a key that has
/// become stale is too small, never too large: it is brought up to date when it comes to the top.
struct Key {
  double level;
  int32_t row;  // past the rows: the cap of entry `row - rows`
  friend bool operator<(const Key& a, const Key& b) { return a.level != b.level ? a.level < b.level : a.row < b.row; }
};

/// A heap whose top can be replaced in place, which the standard one cannot: most tops are stale.
class KeyHeap {
 public:
  explicit KeyHeap(std::vector<Key> keys) : keys_(std::move(keys)) {
    for (size_t i = keys_.size() / 2; i-- > 0;) SiftDown(i, keys_[i]);
  }
  bool empty() const { return keys_.empty(); }
  const Key& top() const { return keys_.front(); }
  void ReplaceTop(Key key) { SiftDown(0, key); }
  void Pop() {
    const Key last = keys_.back();
    keys_.pop_back();
    if (!keys_.empty()) SiftDown(0, last);
  }

 private:
  void SiftDown(size_t hole, Key key) {
    for (;;) {
      size_t child = 2 * hole + 1;
      if (child >= keys_.size()) break;
      if (child + 1 < keys_.size() && keys_[child + 1] < keys_[child]) ++child;
      if (!(keys_[child] < key)) break;
      keys_[hole] = keys_[child];
      hole = child;
    }
    keys_[hole] = key;
  }

  std::vector<Key> keys_;
};

class Filling {
 public:
  explicit Filling(const FillingProblem& problem)
      : problem_(problem), rows_(problem.capacity.size()), begin_(problem.capacity.size() + 1, 0) {
    solution_.level.assign(problem.entries(), -1);
    solution_.held_by.assign(problem.entries(), kHeldByCap);
    solution_.row_level.assign(rows_.size(), kNoLevel);
    for (size_t r = 0; r < rows_.size(); ++r) rows_[r].left = problem.capacity[r];
    for (size_t e = 0; e < problem.entries(); ++e) {
      for (uint32_t i = problem.begin[e]; i < problem.begin[e + 1]; ++i) {
        Row& row = rows_[Index(problem.rows[i])];
        row.weight += problem.weight[e];
        ++row.growing;
      }
    }
    uint32_t end = 0;
    for (size_t r = 0; r < rows_.size(); ++r) {
      begin_[r] = end;
      end += rows_[r].growing;
      rows_[r].peak = rows_[r].weight;
    }
    begin_.back() = end;
    crossing_.resize(end);
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t e = 0; e < problem.entries(); ++e) {
      for (uint32_t i = problem.begin[e]; i < problem.begin[e + 1]; ++i) {
        crossing_[next[Index(problem.rows[i])]++] = static_cast<int32_t>(e);
      }
    }
  }

  FillingSolution Run() {
    KeyHeap heap(Keys());
    while (!heap.empty()) {
      const Key top = heap.top();
      const size_t index = Index(top.row);
      if (index >= rows_.size()) {
        heap.Pop();
        const size_t entry = index - rows_.size();
        if (solution_.level[entry] < 0) Freeze(entry, problem_.cap[entry], kHeldByCap);
        continue;
      }
      if (rows_[index].growing == 0) {
        heap.Pop();
        continue;
      }
      if (const double now = LevelOf(index); now > top.level) {
        heap.ReplaceTop({now, top.row});
        continue;
      }
      heap.Pop();
      solution_.row_level[index] = top.level;
      for (uint32_t i = begin_[index]; i < begin_[index + 1]; ++i) {
        const size_t entry = Index(crossing_[i]);
        if (solution_.level[entry] < 0) Freeze(entry, top.level, top.row);
      }
    }
    return std::move(solution_);
  }

 private:
  struct Row {
    double left = 0;    // capacity that no frozen entry has
    double weight = 0;  // of the entries that still grow
    double peak = 0;    // weight when it was last summed
    uint32_t growing = 0;
  };

  static size_t Index(int32_t id) { return static_cast<size_t>(id); }

  double LevelOf(size_t r) const {
    return rows_[r].left > kDust * problem_.capacity[r] ? rows_[r].left / rows_[r].weight : 0;
  }

  std::vector<Key> Keys() {
    std::vector<Key> keys;
    keys.reserve(rows_.size());
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].growing > 0) keys.push_back({LevelOf(r), static_cast<int32_t>(r)});
    }
    for (size_t e = 0; e < problem_.entries(); ++e) {
      if (problem_.begin[e] == problem_.begin[e + 1]) {
        solution_.level[e] = problem_.cap[e];
      } else if (problem_.cap[e] < kNoLevel) {
        keys.push_back({problem_.cap[e], static_cast<int32_t>(rows_.size() + e)});
      }
    }
    return keys;
  }

  void Freeze(size_t entry, double level, int32_t held_by) {
    solution_.level[entry] = level;
    solution_.held_by[entry] = held_by;
    const double weight = problem_.weight[entry];
    for (uint32_t i = problem_.begin[entry]; i < problem_.begin[entry + 1]; ++i) {
      Row& row = rows_[Index(problem_.rows[i])];
      row.left -= level * weight;
      row.weight -= weight;
      --row.growing;
      // What is left of a difference of nearly equal sums is rounding: add up again what still grows.
      if (row.weight < 1e-6 * row.peak && row.growing > 0) Resum(Index(problem_.rows[i]));
    }
  }

  void Resum(size_t r) {
    rows_[r].weight = 0;
    for (uint32_t i = begin_[r]; i < begin_[r + 1]; ++i) {
      const size_t other = Index(crossing_[i]);
      if (solution_.level[other] < 0) rows_[r].weight += problem_.weight[other];
    }
    rows_[r].peak = rows_[r].weight;
  }

  const FillingProblem& problem_;
  std::vector<Row> rows_;
  std::vector<uint32_t> begin_;    // of each row's entries in crossing_
  std::vector<int32_t> crossing_;
  FillingSolution solution_;
};

}  // namespace

FillingSolution Fill(const FillingProblem& problem) { return Filling(problem).Run(); }

}  // namespace weft::planner::network

// Branch and bound over a tree of decisions that knows nothing of what is decided. The space says what the children
// of a node are, bounds a node from below, and prices a leaf; the engine finds the `keep` best leaves, or the whole
// front of (value, second value), and proves it: a subtree is left out only if its bound is above what is already
// known.
//
// It owns no thread: any number of threads call Work() at the same time, each with a Scratch of its own. Leaves that
// tie rank by the space's total order, and what could tie is never cut, so that the answer is the same for any number
// of threads and any timing, unless a budget or a stop request ends the search early.
//
//   BranchAndBound search(space, {.keep = 3});
//   search.Work(scratch);                       // or from several threads
//   for (const auto& found : search.Best()) use(found.leaf, found.value);
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

namespace weft::planner::inline search {

/// A tree of decisions. Node is copyable; Scratch is one thread's memory.
///   Roots(out)            appends the first decisions: what threads share between them; some hundreds are good.
///   IsLeaf(node)
///   Children(node, out)   appends the children; never called for a leaf.
///   Bound(node, scratch)  no feasible leaf below has a value under it (up to 1e-12, relative); +infinity: none is
/// feasible.
///   Evaluate(leaf, scratch)  {value, second, feasible}: value is minimised; second is the front's other axis, e.g.
/// memory.
///   Leaves(node)          how many leaves the subtree has: for the statistics of what was cut.
///   Late(node)            whether the node waits until all others have been visited: what is dear to price is then cut by
///                         good answers. Optional: none is late.
///   Before(a, b)          a strict total order of leaves: which comes first when values are equal.
template <typename S>
concept SearchSpace = requires(const S& space, const typename S::Node& node, typename S::Scratch& scratch,
                               std::vector<typename S::Node>& out) {
  space.Roots(out);
  { space.IsLeaf(node) } -> std::convertible_to<bool>;
  space.Children(node, out);
  { space.Bound(node, scratch) } -> std::convertible_to<double>;
  { space.Evaluate(node, scratch).value } -> std::convertible_to<double>;
  { space.Evaluate(node, scratch).second } -> std::convertible_to<double>;
  { space.Evaluate(node, scratch).feasible } -> std::convertible_to<bool>;
  { space.Leaves(node) } -> std::convertible_to<int64_t>;
  { space.Before(node, node) } -> std::convertible_to<bool>;
};

/// Whether `space` wants the node to wait.
template <typename S, typename Node>
bool IsLate(const S& space, const Node& node) {
  if constexpr (requires { { space.Late(node) } -> std::convertible_to<bool>; }) {
    return space.Late(node);
  } else {
    return false;
  }
}

struct SearchOptions {
  size_t keep = 1;                    ///< best leaves wanted
  bool exhaustive = false;            ///< evaluate every leaf, cut nothing
  double front_slack = 0;             ///< > 0: also the front of (value, second) up to (1 + slack) · the best value
  int64_t node_budget = std::numeric_limits<int64_t>::max();  ///< leaves evaluated
  double most = std::numeric_limits<double>::infinity();      ///< leaves above it are of no interest
};

struct SearchStatistics {
  int64_t evaluated = 0;              ///< leaves priced, infeasible ones included
  int64_t infeasible = 0;             ///< of them
  int64_t pruned = 0;                 ///< leaves that a bound ruled out
  int64_t left = 0;                   ///< leaves that the budget or a stop request left undecided
  bool complete() const { return left == 0; }
};

template <SearchSpace S>
class BranchAndBound {
 public:
  using Node = typename S::Node;
  using Scratch = typename S::Scratch;
  struct Found {
    Node leaf;
    double value = 0, second = 0;
  };

  /// The space must outlive the search.
  BranchAndBound(const S& space, const SearchOptions& options) : space_(space), options_(options) {
    space_.Roots(roots_);
    root_order_.resize(roots_.size());
    for (size_t i = 0; i < roots_.size(); ++i) root_order_[i] = {0, i};
    ordered_ = late_ready_ = roots_.empty();
    cut_ = top_cut_ = options.most;
  }

  /// Searches until nothing is left, the budget is spent or `stop` asks. Threads: any number at once.
  void Work(Scratch& scratch, const std::stop_token& stop = {}) {
    BoundRoots(scratch, stop);
    Local local;
    // Roots are handed out by bound: the first ones find good answers, which cut the later ones.
    for (size_t i = next_root_.fetch_add(1); i < roots_.size(); i = next_root_.fetch_add(1)) {
      Visit(roots_[root_order_[i].index], root_order_[i].bound, 0, local, scratch, stop);
      FinishRoot();
    }
    WaitForLate();
    local.late = true;
    for (size_t i = next_late_.fetch_add(1); i < late_order_.size(); i = next_late_.fetch_add(1)) {
      // Only now bounded by itself: most are cut by what they inherit.
      const Node& node = LateNode(late_order_[i].index);
      double bound = late_order_[i].bound;
      if (!options_.exhaustive && !Above(bound, Cut(local))) bound = std::max(bound, space_.Bound(node, scratch));
      Enter(node, bound, 0, local, scratch, stop);
    }
    const std::lock_guard lock(mutex_);
    statistics_.evaluated += local.statistics.evaluated;
    statistics_.infeasible += local.statistics.infeasible;
    statistics_.pruned += local.statistics.pruned;
    statistics_.left += local.statistics.left;
  }

  /// Best first; at most `keep`. Requires: no Work() is running (as all below).
  const std::vector<Found>& Best() const { return best_; }
  /// The front by value: each later one has a smaller second value. Of leaves below late nodes it knows those among the
  /// best. Empty without front_slack.
  std::vector<Found> Front() const {
    std::vector<Found> all = front_, front;
    if (options_.front_slack > 0) {
      for (const Found& found : best_) OfferToFront(found, all);
    }
    for (const Found& found : all) {
      if (!best_.empty() && found.value <= FrontLimit(best_.front().value)) front.push_back(found);
    }
    return front;
  }
  /// The infeasible leaf with the least second value, if no feasible leaf exists.
  const std::optional<Found>& Nearest() const { return nearest_; }
  const SearchStatistics& statistics() const { return statistics_; }
  /// No feasible leaf of the whole space is below: by the roots' bounds alone. Requires: Work() has run.
  double RootBound() const {
    return roots_.empty() ? std::numeric_limits<double>::infinity() : root_order_.front().bound;
  }
  /// Nothing that the budget or a stop request left undecided is below; +infinity if nothing was.
  double OpenBound() const { return open_bound_; }
  const SearchOptions& options() const { return options_; }

  /// Leaves priced until now and the best value. Threads: any, also while Work() runs.
  int64_t EvaluatedSoFar() const { return spent_.load(std::memory_order_relaxed); }
  double BestSoFar() const { return best_value_.load(std::memory_order_relaxed); }

 private:
  /// Nodes are large and stay where they are; these are put in order in their place.
  struct Bounded {
    double bound = 0;
    size_t index = 0;
    friend bool operator<(const Bounded& a, const Bounded& b) {
      return a.bound != b.bound ? a.bound < b.bound : a.index < b.index;
    }
  };
  /// One thread's.
  struct Local {
    SearchStatistics statistics;
    bool late = false;                          // visiting what waited
    std::vector<std::vector<Node>> children;    // [depth], kept to allocate once
    std::vector<std::vector<Bounded>> bounded;
  };

  /// All threads bound roots in chunks; the one that finishes last puts them in order, and the others wait for it.
  void BoundRoots(Scratch& scratch, const std::stop_token& stop) {
    constexpr size_t kChunk = 512;
    for (size_t i = next_bound_.fetch_add(kChunk); i < roots_.size(); i = next_bound_.fetch_add(kChunk)) {
      const size_t end = std::min(i + kChunk, roots_.size());
      // Once it is to stop nothing is entered: what is not bounded stays below nothing.
      for (size_t k = i; k < end && !stop.stop_requested(); ++k) root_order_[k].bound = space_.Bound(roots_[k], scratch);
      const std::lock_guard lock(mutex_);
      bounded_ += end - i;
      if (bounded_ < roots_.size()) continue;
      std::sort(root_order_.begin(), root_order_.end());
      ordered_ = true;
      all_bounded_.notify_all();
    }
    std::unique_lock lock(mutex_);
    all_bounded_.wait(lock, [this] { return ordered_; });
  }

  const Node& LateNode(size_t index) const { return late_[index / kLateChunk][index % kLateChunk]; }

  void Defer(const Node& node, double bound) {
    const std::lock_guard lock(mutex_);
    if (late_.empty() || late_.back().size() == kLateChunk) late_.emplace_back().reserve(kLateChunk);
    late_order_.push_back({bound, (late_.size() - 1) * kLateChunk + late_.back().size()});
    late_.back().push_back(node);
  }

  /// The thread that finishes the last root orders what waits and is not cut by now; the others wait for it.
  void FinishRoot() {
    const std::lock_guard lock(mutex_);
    if (++finished_ < roots_.size()) return;
    std::erase_if(late_order_, [this](const Bounded& b) {
      const bool cut = Above(b.bound, top_cut_.load(std::memory_order_relaxed));
      if (cut) statistics_.pruned += space_.Leaves(LateNode(b.index));
      return cut;
    });
    // By bound, then by the leaves' own order: threads found them in any order.
    std::sort(late_order_.begin(), late_order_.end(), [this](const Bounded& a, const Bounded& b) {
      return a.bound != b.bound ? a.bound < b.bound : space_.Before(LateNode(a.index), LateNode(b.index));
    });
    late_ready_ = true;
    all_bounded_.notify_all();
  }
  void WaitForLate() {
    std::unique_lock lock(mutex_);
    all_bounded_.wait(lock, [this] { return late_ready_; });
  }

  double FrontLimit(double best) const { return best * (1 + options_.front_slack); }

  /// What is above this is of no interest. A relaxed read of an old value only cuts less: the value falls, and what the
  /// final one would not cut, no earlier one cuts.
  double Cut(const Local& local) const { return (local.late ? top_cut_ : cut_).load(std::memory_order_relaxed); }

  bool Above(double bound, double cut) const {
    return !options_.exhaustive && (bound * (1 - 1e-12) > cut || bound == std::numeric_limits<double>::infinity());
  }

  bool Ended(const std::stop_token& stop) {
    return stop.stop_requested() || spent_.load(std::memory_order_relaxed) >= options_.node_budget;
  }

  void Leave(const Node& node, double bound, Local& local) {
    local.statistics.left += space_.Leaves(node);
    const std::lock_guard lock(mutex_);
    open_bound_ = std::min(open_bound_, bound);
  }

  void Visit(const Node& node, double bound, size_t depth, Local& local, Scratch& scratch,
             const std::stop_token& stop) {
    if (Above(bound, Cut(local))) {
      local.statistics.pruned += space_.Leaves(node);
      return;
    }
    if (IsLate(space_, node)) return Defer(node, bound);
    Enter(node, bound, depth, local, scratch, stop);
  }

  /// Visits a node that waits no longer.
  void Enter(const Node& node, double bound, size_t depth, Local& local, Scratch& scratch,
             const std::stop_token& stop) {
    if (Above(bound, Cut(local))) {
      local.statistics.pruned += space_.Leaves(node);
      return;
    }
    if (Ended(stop)) return Leave(node, bound, local);
    if (space_.IsLeaf(node)) return Price(node, local, scratch);
    if (local.children.size() <= depth) {
      local.children.resize(depth + 1);
      local.bounded.resize(depth + 1);
    }
    local.children[depth].clear();
    space_.Children(node, local.children[depth]);
    // Below, deeper levels may grow the outer vectors: index anew after each call. What the inner ones hold stays in its place.
    local.bounded[depth].clear();
    for (size_t i = 0; i < local.children[depth].size(); ++i) {
      const Node& child = local.children[depth][i];
      // A leaf's own price is its best bound; what waits is bounded when its turn comes.
      const bool later = options_.exhaustive || space_.IsLeaf(child) || IsLate(space_, child);
      const double own = later ? bound : space_.Bound(child, scratch);
      local.bounded[depth].push_back({std::max(bound, own), i});
    }
    std::sort(local.bounded[depth].begin(), local.bounded[depth].end());
    for (size_t i = 0; i < local.bounded[depth].size(); ++i) {
      const Bounded child = local.bounded[depth][i];
      Visit(local.children[depth][child.index], child.bound, depth + 1, local, scratch, stop);
    }
  }

  void Price(const Node& leaf, Local& local, Scratch& scratch) {
    spent_.fetch_add(1, std::memory_order_relaxed);
    ++local.statistics.evaluated;
    const auto value = space_.Evaluate(leaf, scratch);
    if (!value.feasible) {
      ++local.statistics.infeasible;
      if (best_value_.load(std::memory_order_relaxed) < std::numeric_limits<double>::infinity()) return;
      const std::lock_guard lock(mutex_);
      if (best_.empty()) OfferNearest({leaf, value.value, value.second});
      return;
    }
    if (value.value > Cut(local)) return;
    const std::lock_guard lock(mutex_);
    Offer({leaf, value.value, value.second}, local.late);
  }

  void OfferNearest(Found found) {
    if (!nearest_ || found.second < nearest_->second ||
        (found.second == nearest_->second && space_.Before(found.leaf, nearest_->leaf))) {
      nearest_ = std::move(found);
    }
  }

  void Offer(Found found, bool late) {
    nearest_.reset();
    if (options_.front_slack > 0 && !late) OfferToFront(found, front_);
    const auto better = [this](const Found& a, const Found& b) {
      return a.value != b.value ? a.value < b.value : space_.Before(a.leaf, b.leaf);
    };
    best_.insert(std::upper_bound(best_.begin(), best_.end(), found, better), found);
    if (best_.size() > options_.keep) best_.pop_back();
    if (best_.empty()) return;
    best_value_.store(best_.front().value, std::memory_order_relaxed);
    double cut = best_.size() == options_.keep ? best_.back().value : options_.most;
    top_cut_.store(cut, std::memory_order_relaxed);
    if (options_.front_slack > 0) cut = std::max(cut, FrontLimit(best_.front().value));
    cut_.store(cut, std::memory_order_relaxed);
  }

  void OfferToFront(const Found& found, std::vector<Found>& front) const {
    const auto dominates = [this](const Found& a, const Found& b) {
      if (a.value == b.value && a.second == b.second) return space_.Before(a.leaf, b.leaf);
      return a.value <= b.value && a.second <= b.second;
    };
    for (const Found& other : front) {
      const bool same = other.value == found.value && other.second == found.second;
      if (same ? !space_.Before(found.leaf, other.leaf) : dominates(other, found)) return;  // itself included
    }
    std::erase_if(front, [&](const Found& other) { return dominates(found, other); });
    front.insert(std::upper_bound(front.begin(), front.end(), found,
                                  [](const Found& a, const Found& b) { return a.value < b.value; }),
                 found);
  }

  const S& space_;
  const SearchOptions options_;
  std::vector<Node> roots_;
  std::vector<Bounded> root_order_;      // ascending bound, once `ordered_`
  static constexpr size_t kLateChunk = 1024;
  std::vector<std::vector<Node>> late_;  // in chunks, which never move; guarded by the mutex until `late_ready_`
  std::vector<Bounded> late_order_;      // likewise; then in ascending bound

  // Between threads. Counters and cuts carry no other data with them: relaxed order suffices.
  std::atomic<size_t> next_bound_{0}, next_root_{0}, next_late_{0};
  std::atomic<int64_t> spent_{0};
  std::atomic<double> cut_{std::numeric_limits<double>::infinity()};      // with the front
  std::atomic<double> top_cut_{std::numeric_limits<double>::infinity()};  // of the `keep` best alone
  std::atomic<double> best_value_{std::numeric_limits<double>::infinity()};

  std::mutex mutex_;  // guards all below
  std::condition_variable all_bounded_;
  size_t bounded_ = 0;
  bool ordered_ = false;
  size_t finished_ = 0;  // roots
  bool late_ready_ = false;
  std::vector<Found> best_, front_;
  std::optional<Found> nearest_;
  SearchStatistics statistics_;
  double open_bound_ = std::numeric_limits<double>::infinity();
};

}  // namespace weft::planner::search

#include "planner/search/branch_and_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace weft::planner::inline search {
namespace {

struct LeafValue {
  double value = 0, second = 0;
  bool feasible = true;
};

/// Some variables with few values each; a leaf's value is a table entry, a node's bound the least below it, made worse.
struct TableSpace {
  using Node = std::vector<int>;
  struct Scratch {};
  std::vector<int> sizes;                 // of each variable
  std::vector<LeafValue> leaves;          // mixed radix
  std::vector<double> slack;              // of bounds, per depth: how far below the truth

  int64_t Leaves(const Node& node) const {
    int64_t count = 1;
    for (size_t i = node.size(); i < sizes.size(); ++i) count *= sizes[i];
    return count;
  }
  size_t First(const Node& node) const {
    size_t at = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at = at * static_cast<size_t>(sizes[i]) + static_cast<size_t>(i < node.size() ? node[i] : 0);
    }
    return at;
  }
  bool IsLeaf(const Node& node) const { return node.size() == sizes.size(); }
  void Roots(std::vector<Node>& out) const { Children({}, out); }
  void Children(const Node& node, std::vector<Node>& out) const {
    for (int i = 0; i < sizes[node.size()]; ++i) {
      out.push_back(node);
      out.back().push_back(i);
    }
  }
  double Bound(const Node& node, Scratch&) const {
    double least = 1e9;
    const size_t first = First(node), count = static_cast<size_t>(Leaves(node));
    for (size_t i = first; i < first + count; ++i) {
      if (leaves[i].feasible) least = std::min(least, leaves[i].value);
    }
    return least - slack[node.size() - 1];
  }
  LeafValue Evaluate(const Node& node, Scratch&) const { return leaves[First(node)]; }
  bool Before(const Node& a, const Node& b) const { return a < b; }
};
static_assert(SearchSpace<TableSpace>);

TableSpace Random(std::mt19937& random, bool some_feasible = true) {
  TableSpace space;
  size_t count = 1;
  for (size_t i = 0; i < 2 + random() % 4; ++i) {
    space.sizes.push_back(static_cast<int>(1 + random() % 5));
    space.slack.push_back(static_cast<double>(random() % 6));
    count *= static_cast<size_t>(space.sizes.back());
  }
  for (size_t i = 0; i < count; ++i) {
    space.leaves.push_back({static_cast<double>(random() % 25), static_cast<double>(random() % 25),
                            some_feasible && random() % 4 != 0});
  }
  return space;
}

using Search = BranchAndBound<TableSpace>;

/// The same, where every second node of a depth waits until all others have been visited.
struct LateSpace : TableSpace {
  size_t depth = 2;
  bool Late(const Node& node) const { return node.size() == depth && node.back() % 2 == 1; }
};
static_assert(SearchSpace<LateSpace>);

TEST(BranchAndBound, WhatWaitsChangesNothing) {
  std::mt19937 random(23);
  for (int round = 0; round < 500; ++round) {
    LateSpace late;
    static_cast<TableSpace&>(late) = Random(random);
    late.depth = 1 + random() % late.sizes.size();
    const TableSpace& plain = late;
    const double slack = random() % 2 == 0 ? 0.5 : 0;
    const SearchOptions options{.keep = 1 + random() % 4, .exhaustive = random() % 4 == 0, .front_slack = slack};
    Search one(plain, options);
    BranchAndBound<LateSpace> other(late, options);
    TableSpace::Scratch scratch;
    one.Work(scratch);
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < 1 + random() % 3; ++i) {
        threads.emplace_back([&other] {
          TableSpace::Scratch own;
          other.Work(own);
        });
      }
    }
    ASSERT_EQ(other.Best().size(), one.Best().size());
    for (size_t i = 0; i < one.Best().size(); ++i) ASSERT_EQ(other.Best()[i].leaf, one.Best()[i].leaf);
    // What waits is on the front where it is among the best.
    const auto front = other.Front();
    const auto whole = one.Front();
    ASSERT_EQ(front.empty(), whole.empty());
    if (!front.empty()) {
      ASSERT_EQ(front[0].value, whole[0].value);
    }
    ASSERT_LE(front.size(), whole.size() + options.keep);
    const SearchStatistics& all = other.statistics();
    ASSERT_EQ(all.evaluated + all.pruned, one.statistics().evaluated + one.statistics().pruned);
    ASSERT_TRUE(all.complete());
  }
}

// A budget that ends the search while nodes wait: they are counted as left, and the bound holds.
TEST(BranchAndBound, ABudgetLeavesWhatWaits) {
  std::mt19937 random(29);
  for (int round = 0; round < 200; ++round) {
    LateSpace late;
    static_cast<TableSpace&>(late) = Random(random);
    late.depth = 1;
    TableSpace::Scratch scratch;
    BranchAndBound<LateSpace> whole(late, {}), cut(late, {.node_budget = 1 + static_cast<int64_t>(random() % 4)});
    whole.Work(scratch);
    cut.Work(scratch);
    const SearchStatistics& all = cut.statistics();
    ASSERT_EQ(all.evaluated + all.pruned + all.left, whole.statistics().evaluated + whole.statistics().pruned);
    if (!whole.Best().empty()) {
      const double found = cut.Best().empty() ? std::numeric_limits<double>::infinity() : cut.Best()[0].value;
      ASSERT_LE(std::min(cut.OpenBound(), found), whole.Best()[0].value);
    }
  }
}

TEST(BranchAndBound, EqualsSortingOnRandomTrees) {
  std::mt19937 random(2);
  int64_t pruned = 0;
  for (int round = 0; round < 500; ++round) {
    const TableSpace space = Random(random);
    const size_t keep = 1 + random() % 4;
    TableSpace::Scratch scratch;
    Search search(space, {.keep = keep});
    search.Work(scratch);
    Search all(space, {.keep = keep, .exhaustive = true});
    all.Work(scratch);
    std::vector<std::pair<double, size_t>> sorted;
    for (size_t i = 0; i < space.leaves.size(); ++i) {
      if (space.leaves[i].feasible) sorted.emplace_back(space.leaves[i].value, i);
    }
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(search.Best().size(), std::min(keep, sorted.size()));
    for (size_t i = 0; i < search.Best().size(); ++i) {
      ASSERT_EQ(search.Best()[i].value, sorted[i].first);
      ASSERT_EQ(space.First(search.Best()[i].leaf), sorted[i].second);
      ASSERT_EQ(all.Best()[i].leaf, search.Best()[i].leaf);
    }
    const SearchStatistics& statistics = search.statistics();
    ASSERT_EQ(statistics.evaluated + statistics.pruned, static_cast<int64_t>(space.leaves.size()));
    ASSERT_EQ(all.statistics().evaluated, static_cast<int64_t>(space.leaves.size()));
    pruned += statistics.pruned;
    ASSERT_TRUE(statistics.complete());
    if (!search.Best().empty()) {
      ASSERT_EQ(search.OpenBound(), std::numeric_limits<double>::infinity());
      ASSERT_LE(search.RootBound(), search.Best()[0].value);
    }
  }
  EXPECT_GT(pruned, 1000);
}

TEST(BranchAndBound, TheFrontIsThatOfAllLeavesWithinTheSlack) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const TableSpace space = Random(random);
    TableSpace::Scratch scratch;
    Search search(space, {.keep = 1, .front_slack = 0.5});
    search.Work(scratch);
    if (search.Best().empty()) continue;
    const double limit = search.Best()[0].value * 1.5;
    std::vector<std::pair<double, double>> expected, found;
    for (const LeafValue& leaf : space.leaves) {
      if (!leaf.feasible || leaf.value > limit) continue;
      const bool beaten = std::any_of(space.leaves.begin(), space.leaves.end(), [&](const LeafValue& other) {
        return other.feasible && other.value <= leaf.value && other.second <= leaf.second &&
               (other.value < leaf.value || other.second < leaf.second);
      });
      if (!beaten) expected.emplace_back(leaf.value, leaf.second);
    }
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    for (const auto& point : search.Front()) found.emplace_back(point.value, point.second);
    ASSERT_EQ(found, expected) << round;
  }
}

TEST(BranchAndBound, AnyNumberOfThreadsFindsTheSame) {
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) {
    const TableSpace space = Random(random);
    TableSpace::Scratch scratch;
    Search one(space, {.keep = 3, .front_slack = 0.3}), many(space, {.keep = 3, .front_slack = 0.3});
    one.Work(scratch);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&many] {
          TableSpace::Scratch own;
          many.Work(own);
        });
      }
    }
    ASSERT_EQ(one.Best().size(), many.Best().size());
    for (size_t i = 0; i < one.Best().size(); ++i) ASSERT_EQ(one.Best()[i].leaf, many.Best()[i].leaf);
    ASSERT_EQ(one.Front().size(), many.Front().size());
    for (size_t i = 0; i < one.Front().size(); ++i) ASSERT_EQ(one.Front()[i].leaf, many.Front()[i].leaf);
  }
}

TEST(BranchAndBound, NothingFeasibleNamesTheNearest) {
  std::mt19937 random(5);
  const TableSpace space = Random(random, false);
  TableSpace::Scratch scratch;
  Search search(space, {});
  search.Work(scratch);
  EXPECT_TRUE(search.Best().empty());
  ASSERT_TRUE(search.Nearest().has_value());
  for (const LeafValue& leaf : space.leaves) EXPECT_GE(leaf.second, search.Nearest()->second);
}

TEST(BranchAndBound, ASpentBudgetOrAStopIsSaidAndTheBoundHolds) {
  std::mt19937 random(6);
  TableSpace space = Random(random);
  while (space.leaves.size() < 100) space = Random(random);
  TableSpace::Scratch scratch;
  Search whole(space, {}), cut(space, {.exhaustive = true, .node_budget = 20});
  whole.Work(scratch);
  cut.Work(scratch);
  EXPECT_FALSE(cut.statistics().complete());
  EXPECT_EQ(cut.statistics().evaluated, 20);
  EXPECT_EQ(cut.statistics().evaluated + cut.statistics().left, static_cast<int64_t>(space.leaves.size()));
  EXPECT_LE(std::min(cut.OpenBound(), cut.Best().at(0).value), whole.Best().at(0).value);
  std::stop_source stop;
  stop.request_stop();
  Search stopped(space, {});
  stopped.Work(scratch, stop.get_token());
  EXPECT_EQ(stopped.statistics().evaluated, 0);
  EXPECT_EQ(stopped.statistics().left, static_cast<int64_t>(space.leaves.size()));
}

}  // namespace
}  // namespace weft::planner::search

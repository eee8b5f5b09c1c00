#include "planner/collectives/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "planner/collectives/schedule_builder.h"

namespace weft::planner::inline collectives {
namespace {

/// An in-order binary tree over positions [begin, end): inner nodes are odd positions, because every left subtree is
/// perfect and begin is even.
void PlaceInOrder(int32_t begin, int32_t end, int32_t parent, RankTree* tree) {
  if (begin >= end) return;
  const int32_t root = begin + static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(end - begin))) - 1;
  tree->parent[static_cast<size_t>(root)] = parent;
  tree->order.push_back(root);
  PlaceInOrder(begin, root, root, tree);
  PlaceInOrder(root + 1, end, root, tree);
}

/// The same tree with every rank r called name(r).
template <typename Name>
RankTree Renamed(const RankTree& tree, Name name) {
  RankTree renamed = tree;
  for (size_t r = 0; r < tree.parent.size(); ++r) {
    const int32_t parent = tree.parent[r];
    renamed.parent[static_cast<size_t>(name(static_cast<int32_t>(r)))] = parent < 0 ? -1 : name(parent);
  }
  for (int32_t& rank : renamed.order) rank = name(rank);
  return renamed;
}

void SumUp(const RankTree& tree, int32_t chunk, ScheduleBuilder* builder) {
  for (auto rank = tree.order.rbegin(); rank != tree.order.rend(); ++rank) {
    const int32_t parent = tree.parent[static_cast<size_t>(*rank)];
    if (parent >= 0) builder->TransferAndAdd(*rank, OutputChunk(chunk), parent, OutputChunk(chunk));
  }
}

void SendDown(const RankTree& tree, int32_t chunk, ScheduleBuilder* builder) {
  for (const int32_t rank : tree.order) {
    const int32_t parent = tree.parent[static_cast<size_t>(rank)];
    if (parent >= 0) builder->Transfer(parent, OutputChunk(chunk), rank, OutputChunk(chunk));
  }
}

/// The trees over the ranks but `root`, whose position would be the last, and where `root` hands each half in.
void Broadcast(int32_t ranks, int32_t root, ScheduleBuilder* builder) {
  for (int32_t chunk = 0; chunk < 2; ++chunk) builder->Copy(root, OutputChunk(chunk), InputChunk(chunk));
  if (ranks == 1) return;
  const auto others = [&](int32_t position) { return (root + 1 + position) % ranks; };
  const std::array<RankTree, 2> trees = DoubleBinaryTree(ranks - 1);
  for (int32_t chunk = 0; chunk < 2; ++chunk) {
    const RankTree& tree = trees[static_cast<size_t>(chunk)];
    builder->Transfer(root, OutputChunk(chunk), others(tree.order.front()), OutputChunk(chunk));
    for (const int32_t position : tree.order) {
      const int32_t parent = tree.parent[static_cast<size_t>(position)];
      if (parent >= 0) builder->Transfer(others(parent), OutputChunk(chunk), others(position), OutputChunk(chunk));
    }
  }
}

}  // namespace

std::array<RankTree, 2> DoubleBinaryTree(int32_t ranks) {
  RankTree tree;
  tree.parent.assign(static_cast<size_t>(ranks), -1);
  PlaceInOrder(0, ranks, -1, &tree);
  // Inner nodes are odd. The mirror image makes them even where `ranks` is even, a shift by one where it is odd.
  RankTree other = ranks % 2 == 0 ? Renamed(tree, [&](int32_t r) { return ranks - 1 - r; })
                                  : Renamed(tree, [&](int32_t r) { return (r + 1) % ranks; });
  return {std::move(tree), std::move(other)};
}

Result<Schedule> TreeSchedule(Collective collective, int32_t ranks, RankId root) {
  if (collective != Collective::kAllReduce && collective != Collective::kBroadcast) {
    return Fail(Code::kInvalidArgument,
                fmt::format("tree {}: expected allreduce or broadcast", CollectiveName(collective)));
  }
  if (ranks < 1 || root.value() < 0 || root.value() >= ranks) {
    return Fail(Code::kInvalidArgument, fmt::format("tree {}: {} ranks with root {}, expected at least 1 and a rank below it",
                                                    CollectiveName(collective), ranks, root.value()));
  }
  ScheduleBuilder builder(collective, "tree", ranks, 2);
  if (collective == Collective::kBroadcast) {
    Broadcast(ranks, root.value(), &builder);
    return builder.Finish();
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    for (int32_t chunk = 0; chunk < 2; ++chunk) builder.Copy(rank, OutputChunk(chunk), InputChunk(chunk));
  }
  const std::array<RankTree, 2> trees = DoubleBinaryTree(ranks);
  for (int32_t chunk = 0; chunk < 2; ++chunk) SumUp(trees[static_cast<size_t>(chunk)], chunk, &builder);
  for (int32_t chunk = 0; chunk < 2; ++chunk) SendDown(trees[static_cast<size_t>(chunk)], chunk, &builder);
  return builder.Finish();
}

}  // namespace weft::planner::collectives
